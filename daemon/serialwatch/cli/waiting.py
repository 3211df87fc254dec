"""Input that comes late or never: say so on the terminal instead of standing still."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serialwatch.cli.errors import tell
from serialwatch.cli.tables import safe

AFTER_S = 1.0  # of silence; what another program writes is mostly there by then


@contextmanager
def told_while_waiting(name: str) -> Iterator[None]:
    """Say what is waited for while a pipe or the terminal is opened and read; `-` is stdin."""
    words = _awaited(name)
    if not words or not sys.stderr.isatty():
        yield
        return
    if name == "-" and sys.stdin.isatty():
        tell(words)
        yield
        return
    timer = threading.Timer(AFTER_S, tell, [words])
    timer.name = f"waiting for {name}"
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _awaited(name: str) -> str:
    """Return what is waited for, "" for a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if name == "-" else Path(name).stat().st_mode
    except (OSError, ValueError):
        return ""  # opening it tells why
    if name == "-" and sys.stdin.isatty():
        return "reads what you type or paste; end it with Ctrl-D on a line of its own"
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return ""
    if name == "-":
        return "stdin: waits for the program that writes to it to end (Ctrl-C: stop)"
    words = "a pipe: waits for somebody to write to it and to close it (Ctrl-C: stop)"
    return f"{safe(name)}: {words}"
