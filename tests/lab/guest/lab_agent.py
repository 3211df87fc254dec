"""Runs in the lab's PC as root: does what the test outside asks, a line of JSON each way.

It needs the interpreter and its standard library only, so that it says nothing about the wheel.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

API = "/run/serialwatch/serialwatch.sock"
API_LIMIT_S = 10.0


class _Api(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(API_LIMIT_S)
        self.sock.connect(API)


def main() -> None:
    """Answer one request after the other until the machine goes."""
    with open(sys.argv[1], "r+b", buffering=0) as port:
        rest = b""
        while True:
            data = os.read(port.fileno(), 1 << 16)
            if not data:  # nobody is connected on the other side
                time.sleep(0.1)
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = memoryview(json.dumps(_answer(json.loads(line))).encode() + b"\n")
                while answer:
                    answer = answer[os.write(port.fileno(), answer) :]


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"id": request["id"], **_done(request)}
    except (OSError, subprocess.TimeoutExpired, http.client.HTTPException) as exc:
        return {"id": request["id"], "problem": f"{type(exc).__name__}: {exc}"}


def _done(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "clock":
            return {"mono_ns": time.monotonic_ns(), "utc_ns": time.time_ns()}
        case "run":
            ended = subprocess.run(
                request["argv"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=request["limit_s"],
            )
            return {
                "code": ended.returncode,
                "out": ended.stdout.decode(errors="replace"),
                "err": ended.stderr.decode(errors="replace"),
            }
        case "start":  # and do not wait for it
            with open(request["output"], "wb") as output:
                process = subprocess.Popen(
                    request["argv"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            return {"pid": process.pid}
        case "get":
            api = _Api("localhost")
            try:
                api.request("GET", request["path"])
                response = api.getresponse()
                return {"status": response.status, "body": response.read().decode()}
            finally:
                api.close()
        case "put":
            os.makedirs(os.path.dirname(request["path"]), exist_ok=True)
            with open(request["path"], "wb") as file:
                file.write(base64.b64decode(request["content"]))
            return {}
    raise ValueError(request["do"])


main()
