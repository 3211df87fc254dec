"""Commands that read a pipe or the terminal say what they wait for."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serialwatch.cli import waiting
from serialwatch.cli.main import run_cli
from serialwatch.cli.waiting import told_while_waiting


class Terminal(io.StringIO):
    """A stderr that is a terminal; it calls `seen` when something is printed."""

    def __init__(self, seen: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._seen = seen

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        self._seen()
        return done


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AFTER_S", 0.0)


@pytest.mark.parametrize("command", [["rules", "test"], ["analyze"]])
def test_a_pipe_nobody_writes_to_is_named_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    fifo = tmp_path / "console.fifo"
    os.mkfifo(fifo)
    # Somebody writes only once the words stand there: without them the command would wait on.
    told = threading.Event()
    writer = threading.Thread(target=lambda: told.wait(20) and fifo.write_bytes(b"all is well\n"))
    writer.start()
    terminal = Terminal(told.set)
    monkeypatch.setattr(sys, "stderr", terminal)
    run_cli([*command, str(fifo)])
    writer.join()

    words = " ".join(terminal.getvalue().split())
    assert f"{fifo}: a pipe: waits for somebody to write to it" in words


def _stdin(monkeypatch: pytest.MonkeyPatch, fd: int) -> None:
    file: Any = os.fdopen(fd, "r")
    monkeypatch.setattr(sys, "stdin", file)


def test_a_line_that_another_program_writes_late_is_waited_for_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, writes = os.pipe()
    _stdin(monkeypatch, reads)
    told = threading.Event()

    def write() -> None:
        told.wait(20)
        os.write(writes, b"pump 7 ran dry at 0x1f\n")
        os.close(writes)

    writer = threading.Thread(target=write)
    writer.start()
    terminal = Terminal(told.set)
    monkeypatch.setattr(sys, "stderr", terminal)
    run_cli(["rules", "new"])
    writer.join()
    sys.stdin.close()

    assert "stdin: waits for the program that writes to it to end" in terminal.getvalue()


def test_who_has_to_type_is_told_how_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    board, person = os.openpty()
    _stdin(monkeypatch, person)
    with told_while_waiting("-"):
        pass
    sys.stdin.close()
    os.close(board)

    assert "Ctrl-D" in terminal.getvalue()


def test_a_file_and_a_script_are_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x\n")
    os.mkfifo(tmp_path / "p")
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with told_while_waiting(str(log)), told_while_waiting(str(tmp_path / "missing")):
        pass
    monkeypatch.setattr(sys, "stderr", pipe)
    with told_while_waiting(str(tmp_path / "p")):
        pass

    assert terminal.getvalue() + pipe.getvalue() == ""
