"""`logs --verify` over several ports: each is looked at, whatever the others are like."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from bench_cli import Cli, Result
from log_feed import Feed
from serialwatch.cli.main import run_cli
from serialwatch.store import log_repair
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_format import HEADER_BYTES, Cut, log_files


class Verify:
    """Runs `logs --verify` on a state folder."""

    def __init__(self, state: Path, cli: Cli) -> None:
        self._state = state
        self._cli = cli

    def __call__(self, *args: str) -> Result:
        return self._cli("logs", "--verify", "--state", str(self._state), *args)


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(tmp_path, Cli(tmp_path / "sw", capsys))


def save(state: Path, port: str) -> list[Path]:
    """Save a log of three files."""
    feed = Feed(name=port)
    appender = LogAppender(state / "log" / port, feed.ring, bytes(16), 1 << 30)
    for _ in range(3):
        feed.prints(b"one\ntwo\n")
        feed.new_file(Cut.LOST)
    appender.write(0.0, is_last=True)
    appender.sync(0.0)
    return log_files(state / "log" / port)


def damage(path: Path) -> None:
    with path.with_suffix(".idx").open("r+b") as file:
        file.seek(HEADER_BYTES + 9)
        file.write(b"\xff")


def test_an_index_that_cannot_be_written_keeps_no_other_from_being_repaired(
    tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = save(tmp_path, "dut1")[0], save(tmp_path, "dut2")[0]
    damage(first)
    damage(second)
    real = log_repair.replace_index

    def full(path: Path, data: bytes) -> None:
        if path.parent.name == "dut1":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(log_repair, "replace_index", full)
    shown = verify("--repair")

    assert shown.code == 1
    assert "not repaired: the index cannot be written: No space left on device" in shown.out
    assert "dut1: 1 of 3 files not sound" in shown.out
    assert "dut2: sound" in shown.out
    assert "dut2: sound" in verify("dut2").out


def test_another_daemons_socket_does_not_make_it_check_logs_that_are_not_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERIALWATCH_SOCKET", str(tmp_path / "sw"))
    code = run_cli(["logs", "--verify"])

    assert code == 2
    assert "name its state folder with --state" in capsys.readouterr().err


def test_a_port_that_cannot_be_read_keeps_no_other_from_being_checked(
    tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, "dut1")
    save(tmp_path, "dut2")
    real = Path.glob

    def refused(folder: Path, pattern: str) -> object:
        if folder.name == "dut1":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return real(folder, pattern)

    monkeypatch.setattr(Path, "glob", refused)
    shown = verify()

    assert shown.code == 1
    assert "dut2: sound" in shown.out
    assert "cannot be read: Permission denied" in shown.err


def test_a_file_that_was_deleted_in_the_middle_is_not_sound_and_not_to_be_repaired(
    tmp_path: Path, verify: Verify
) -> None:
    _, second, third = save(tmp_path, "dut1")
    second.unlink()
    second.with_suffix(".idx").unlink()
    index = third.with_suffix(".idx").read_bytes()
    told = f"{third}: L3 to L4 are missing: a file before it was deleted or cut\n"

    for how in ((), ("--repair",)):
        shown = verify(*how)
        assert shown.code == 1
        assert shown.out == (told + "dut1: 1 of 2 files not sound: 2 files, 16 bytes, L1 to L6\n")
    assert third.with_suffix(".idx").read_bytes() == index
    last = json.loads(verify("--json").out.splitlines()[-1])
    assert last["faults"] == ["L3 to L4 are missing: a file before it was deleted or cut"]


def test_a_folder_without_logs_is_not_called_sound(tmp_path: Path, verify: Verify) -> None:
    (tmp_path / "log" / "stray").mkdir(parents=True)

    assert verify().out == "stray: no log files\n"


def test_an_index_of_no_byte_is_repaired_once_for_all(tmp_path: Path, verify: Verify) -> None:
    path = save(tmp_path, "dut1")[1]
    path.with_suffix(".idx").write_bytes(b"")
    told = verify()
    mended = verify("--repair")
    index = path.with_suffix(".idx").read_bytes()

    assert "the index is empty: when its bytes came is not known" in told.out
    assert (told.code, mended.code) == (1, 0)
    assert verify("--repair").code == 0
    assert path.with_suffix(".idx").read_bytes() == index
