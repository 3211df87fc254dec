"""What an action may do to a board: one exact step after another, checked, and said in words.

A step is JSON, the same where it is proposed, stored, shown and done:

    {"op": "console.send", "hex": "03"}                exactly these bytes
    {"op": "port.reset"}                               as the port's configuration says
    {"op": "port.set_lines", "dtr": true, "rts": null} null leaves a line alone
    {"op": "port.send_break", "ms": 250}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serialwatch.spelling import Json

MAX_STEPS = 8  # of one action: a person has to read them
MAX_SEND = 1024  # bytes of one step, for the same reason
MAX_BREAK_MS = 5_000
OPS = ("console.send", "port.reset", "port.set_lines", "port.send_break")


def checked_step(body: object) -> Json:
    """Return a step in its only spelling.

    Raises:
        ValueError: it is none.

    """
    match body:
        case {"op": "console.send", "hex": str() as digits, **rest} if not rest:
            data = bytes.fromhex(digits)
            if not 1 <= len(data) <= MAX_SEND:
                raise ValueError(f"{len(data)} bytes to send: must be 1 to {MAX_SEND}")
            return {"op": "console.send", "hex": data.hex()}
        case {"op": "port.reset", **rest} if not rest:
            return {"op": "port.reset"}
        case {"op": "port.set_lines", "dtr": dtr, "rts": rts, **rest} if not rest:
            if not all(line is None or isinstance(line, bool) for line in (dtr, rts)):
                raise ValueError("dtr and rts: true, false, or nothing")
            if dtr is None and rts is None:
                raise ValueError("neither DTR nor RTS is to be set")
            return {"op": "port.set_lines", "dtr": dtr, "rts": rts}
        case {"op": "port.send_break", "ms": int() as ms, **rest} if not rest:
            if isinstance(ms, bool) or not 1 <= ms <= MAX_BREAK_MS:
                raise ValueError(f"ms: a whole number from 1 to {MAX_BREAK_MS}")
            return {"op": "port.send_break", "ms": ms}
        case _:
            raise ValueError(f"no step of an action: {str(body)[:60]!r}")


def bytes_of(step: Mapping[str, Any]) -> bytes:
    """Return what a step sends, b"" if it sends nothing."""
    return bytes.fromhex(step.get("hex", ""))


def step_words(step: Mapping[str, Any], port: str, how_reset: str) -> str:
    """Return what a step would do, after "would"; `how_reset` is the configured way."""
    match step["op"]:
        case "console.send":
            count = len(bytes_of(step))
            return f"send exactly {count} byte{'s'[: count != 1]} to {port}"
        case "port.reset":
            return f"reset {port}: {how_reset}"
        case "port.set_lines":
            lines = [
                f"{name} {'on' if step[key] else 'off'}"
                for name, key in (("DTR", "dtr"), ("RTS", "rts"))
                if step[key] is not None
            ]
            return f"set {' and '.join(lines)} of {port}"
        case _:
            return f"send a break of {step['ms']} ms to {port}"
