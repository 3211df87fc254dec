"""The boards of the demo print what their reports promise."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bench_cli import COMMAND
from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.skills.registry import load_skills
from serialwatch.bundled import bundled_dir
from serialwatch.cli.demo import Show, _real_board, _say_what_to_try
from serialwatch.demo import uboot
from serialwatch.demo.boards import BOARDS, Board
from serialwatch.saved.analysis import analyze
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules


@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.name)
def test_a_board_fails_as_announced(board: Board) -> None:
    text = "".join(step for step in board.steps() if isinstance(step, str))
    matcher = Matcher(load_rules([bundled_dir("config/rules")]))
    found = asyncio.run(
        analyze(
            io.BytesIO(text.encode()),
            matcher,
            load_skills([bundled_dir("skills")]),
            load_knowledge([bundled_dir("config/knowledge")]),
        )
    )

    seen = {hit.trigger for incident in found.incidents for hit in incident.hits}
    for triggers in board.faults:
        assert triggers & seen, f"{sorted(triggers)} not in {sorted(seen)}"
    assert found.report is not None
    assert found.report.claims.dropped == 0


def test_the_emulator_prints_at_the_go_and_ends_with_its_stdin(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "serialwatch.demo.emulator", tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == b"ready\n"
        console = os.open(tmp_path / "linux-gw", os.O_RDWR | os.O_NOCTTY)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert os.read(console, 4096).startswith(b"U-Boot SPL")
        os.close(console)
        process.stdin.close()
        assert process.wait(10) == 0
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


def test_no_board_prints_while_it_is_off(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "serialwatch.demo.emulator", tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        process.stdout.readline()
        console = os.open(tmp_path / "linux-gw", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            os.read(console, 1)
        os.close(console)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "qemu-system-aarch64 ended with status 1"),
        ("exec sleep 60", "qemu-system-aarch64 does not answer"),
    ],
)
async def test_a_qemu_that_does_not_start_costs_the_real_board_and_not_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    qemu = tmp_path / "qemu-system-aarch64"
    qemu.write_text(f"#!/bin/sh\n{script}\n")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(uboot, "FIRMWARE", qemu)  # any file that exists
    monkeypatch.setattr(uboot, "START_S", 0.5)

    async with _real_board(tmp_path) as (board, why_not):
        assert (board, why_not) == (None, why)


@pytest.mark.parametrize("is_usual", [True, False])
def test_what_to_try_can_be_copied_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_usual: bool
) -> None:
    socket = Path("/tmp/serialwatch-demo-12345678/run/of/a/rather/long/name/serialwatch.sock")
    monkeypatch.setattr("serialwatch.cli.demo.width_of", lambda _: 60)
    monkeypatch.setattr("sys.argv", [".venv/bin/serialwatch", "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    _say_what_to_try(Show(socket, is_usual, [], None))
    told = capsys.readouterr().out

    assert f"  {Path.cwd()}/.venv/bin/serialwatch report 1\n" in told
    assert (f"  export SERIALWATCH_SOCKET={socket}\n" in told) is not is_usual


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_daemon_no_board_and_no_folder(tmp_path: Path, number: int) -> None:
    environ = os.environ | {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [*COMMAND, "demo"], env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert any(b" up " in line for line in process.stdout), "the demo ended before its daemon ran"
    process.send_signal(number)
    process.send_signal(number)
    process.communicate(timeout=20)

    assert process.returncode == 128 + number
    assert list(tmp_path.glob("serialwatch-demo-*")) == []
    commands = list(command_lines())
    assert not any(str(tmp_path).encode() in command for command in commands)


def command_lines() -> Iterator[bytes]:
    """Return how each process of this machine was called."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            yield path.read_bytes()
