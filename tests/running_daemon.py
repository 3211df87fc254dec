"""A real daemon for tests: `serialwatch run` in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT_S = 20.0


class RunningDaemon:
    """`serialwatch run` on `ports` (name -> device); state and socket lie below `folder`."""

    def __init__(
        self,
        folder: Path,
        ports: dict[str, str],
        extra: str = "",
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.socket = folder / "run" / "serialwatch.sock"
        self.config = folder / "serialwatch.toml"
        self.stderr = folder / "daemon.log"
        self._env = os.environ | (env or {})
        self.configure(ports, extra)
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except AssertionError:  # nobody else knows of it yet
            self.kill()
            raise

    def configure(self, ports: dict[str, str], extra: str = "") -> None:
        """Write the configuration file."""
        listen = "" if "[api]" in extra else '[api]\nlisten = ""\n'
        text = [
            f'[daemon]\nstate_dir = "{self.state}"\nrun_dir = "{self.folder / "run"}"\n',
            listen,
        ]
        text += [f'[port.{name}]\ndevice = "{device}"\n' for name, device in ports.items()]
        self.config.write_text("".join(text) + extra)

    def start(self) -> None:
        """Start it (again) and wait until it answers."""
        with self.stderr.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serialwatch", "run", "-c", self.config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=self._env,
            )
        self.wait_for(lambda: self.get("/healthz", is_json=False), "an answer")

    def wait_for(self, what: Callable[[], T], name: str = "it") -> T:
        """Call `what` until it returns something true; OSErrors mean "not yet"."""
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                if found := what():
                    return found
            except (OSError, sqlite3.OperationalError):
                pass
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.process.returncode}\n{self.log()}")
            if time.monotonic() > end:
                raise AssertionError(f"no {name} within {LIMIT_S} s\n{self.log()}")
            time.sleep(0.02)

    def get(self, address: str, *, is_json: bool = True) -> Any:
        """Ask the API."""
        return self._ask("GET", address, None, is_json=is_json)

    def post(self, address: str, body: dict[str, Any] | None = None) -> Any:
        """Have the API do something; returns (status, body)."""
        return self._ask("POST", address, json.dumps(body or {}))

    def incidents(self, port: str = "") -> list[Any]:
        """Return the unresolved incidents, newest first."""
        found = self.get("/v1/incidents")["incidents"]
        return [i for i in found if not port or i["port"] == port]

    def lines(self, port: str) -> list[Any]:
        """Return the lines of a port's log."""
        text = self.get(f"/v1/logs/{port}?n=20000", is_json=False)
        return [json.loads(row) for row in text.splitlines()]

    def saved(self, port: str) -> bytes:
        """Return all that the log of a port holds."""
        files = sorted(
            (self.state / "log" / port).glob("*.log"), key=lambda p: p.stem.rsplit("-", 1)[1]
        )
        return b"".join(p.read_bytes() for p in files)

    def rows(self, query: str, *values: object) -> list[Any]:
        """Ask the database."""
        path = f"file:{self.state}/serialwatch.db?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as db:
            return db.execute(query, values).fetchall()

    def log(self) -> str:
        """Return what the daemon said."""
        return self.stderr.read_text()

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and what is left of its agent with it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in order; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGABRT)
                self.process.wait()
                raise AssertionError(f"it did not end\n{self.log()}") from None
        return self.process.returncode

    def _ask(self, method: str, address: str, body: str | None, *, is_json: bool = True) -> Any:
        connection = http.client.HTTPConnection("localhost")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(LIMIT_S)
            sock.connect(str(self.socket))
            connection.sock = sock
            connection.request(method, address, body)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            sock.close()
        if method == "POST":
            return answer.status, json.loads(text)
        return json.loads(text) if is_json else text


@contextmanager
def running(
    folder: Path, ports: dict[str, str], extra: str = "", env: dict[str, str] | None = None
) -> Iterator[RunningDaemon]:
    """Run a daemon for the block."""
    daemon = RunningDaemon(folder, ports, extra, env)
    try:
        yield daemon
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
