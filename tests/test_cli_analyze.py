import gzip
import json
import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serialwatch.cli.main import run_cli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BOOT = "U-Boot 2023.10 (Nov 02 2023 - 08:00:00 +0000)\nDRAM:  512 MiB\n"
OOPS = (
    "[   12.000001] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010\n"
    "[   12.000201] pc : sensor_irq+0x14/0x80\n"
    "[   12.000301] ---[ end trace 0000000000000000 ]---\n"
)
OVERRUN = "[  500.000000] ttyS1: 12 input overrun(s)\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with logs of all kinds, and with what is none."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "clean.log").write_text(BOOT + "[    1.000000] all is well\n")
    (tmp_path / "deep" / "oops.log.zst").write_bytes(zstd.compress((BOOT + OOPS).encode("utf-16")))
    (tmp_path / "deep" / "overrun").write_text(OVERRUN)
    (tmp_path / "cut.log").write_bytes(gzip.compress((BOOT + OOPS).encode() * 50)[:12])
    (tmp_path / "vmlinux").write_bytes(b"\x7fELF" + bytes(64))
    return tmp_path


def test_a_folder_gives_an_object_a_log_and_goes_on_behind_a_damaged_one(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_cli(["analyze", "--json", str(logs), f"{logs}/none.log", "--fail-on", "warning"])
    out, err = capsys.readouterr()
    clean, cut, oops, overrun, none = map(json.loads, out.splitlines())

    assert code == 2
    assert (clean["file"], clean["incidents"]) == (f"{logs}/clean.log", [])
    assert cut == {
        "file": f"{logs}/cut.log",
        "error": "damaged: the file ends before its gzip data does",
    }
    assert [(i["rule"], i["first_line"]) for i in oops["incidents"]] == [("linux.oops", 3)]
    assert (oops["lines"], oops["boots"]) == (5, 1)
    assert [i["rule"] for i in overrun["incidents"]] == ["linux.tty_input_overrun"]
    assert none == {"file": f"{logs}/none.log", "error": "No such file or directory"}
    assert f"serialwatch: {logs}: skipped what is no log: vmlinux\n" in err
    assert f"serialwatch: {logs}/cut.log: damaged: " in err
    assert err.endswith("none.log: No such file or directory\n")


def test_of_several_logs_each_has_its_table_and_the_worst_its_report(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "cut.log").unlink()

    assert run_cli(["analyze", str(logs)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert re.search(r"clean.log: 3 lines, .* 1 boot, U-Boot; no fault, \d", out)
    assert re.search(r"overrun: 1 line, 42 B, 0 boots; 1 warning, \d", out)
    assert f"3 logs: faults in 2 of them; the worst is in {logs}/deep/oops.log.zst" in out
    assert "Incident 1 · oops.log.zst, line 3 · critical (boot #1)\n" in out
    assert out.count("What happened") == 1
    assert out.index("overrun: 1 line") < out.index("What happened")


def test_the_log_around_the_fault_is_shown_with_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "".join(f"[   13.{n:06}] later {n}\n" for n in range(20))
    (tmp_path / "a.log").write_text("one\ntwo\nthree\x1b[2Jfour\nfive\n" + OOPS + more)

    assert run_cli(["analyze", str(tmp_path / "a.log")]) == 0
    shown = capsys.readouterr().out.partition("The log there")[2].splitlines()
    assert shown[1:5] == [
        "     2  two",
        "     3  threefour",
        "     4  five",
        f"  >  5  {OOPS.splitlines()[0]}",
    ]
    assert [line[:6] for line in shown if "later" in line] == [
        "     8", "     9", "    10", "    11", "    12", "    13",
    ]  # fmt: skip


def test_the_fault_at_a_line_is_explained_instead_of_the_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_text(BOOT + OOPS + "[  100.000000] all is well\n" * 300 + OVERRUN)

    assert run_cli(["analyze", str(log), "--line", "306"]) == 0
    out, _ = capsys.readouterr()
    assert "Incident 2 · a.log, line 306 · warning" in out
    assert "`--line N` explains what is at another line" in " ".join(out.split())
    assert run_cli(["analyze", str(log), "--line", "306", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["incident"] == 2
    assert run_cli(["analyze", str(log), "--line", "200"]) == 2
    out, err = capsys.readouterr()
    assert "What happened" not in out
    assert err == f"serialwatch: {log}: no fault at line 200: there are some at 3-5, 306\n"
    assert run_cli(["analyze", str(log), "--line", "0"]) == 2, "lines count from 1"
    assert run_cli(["analyze", str(log), str(log), "--line", "3"]) == 2
    assert "--line is for one log; there are 2" in capsys.readouterr().err


def test_an_empty_folder_and_no_folder_are_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["analyze", str(tmp_path)]) == 2
    assert capsys.readouterr() == ("", f"serialwatch: {tmp_path}: no log in this folder\n")
    assert run_cli(["analyze"]) == 2
    assert run_cli(["analyze", "--fail-on", "terrible", "-"]) == 2


def test_the_report_goes_on_where_a_log_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text(OOPS)

    assert run_cli(["analyze", str(tmp_path / "none"), str(tmp_path / "a.log")]) == 2
    out, err = capsys.readouterr()
    assert err == f"serialwatch: {tmp_path}/none: No such file or directory\n"
    assert "1 log: faults in 1 of them; the worst is in" in out
    assert "What happened" in out


def test_a_name_of_any_bytes_is_shown_with_these_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/b\xfc.log")
    Path(path).write_text(OVERRUN)

    assert run_cli(["analyze", path]) == 0
    assert f"{tmp_path}/b\\xfc.log: 1 line" in capsys.readouterr().out


def test_a_name_from_elsewhere_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b]0;x\x07\n.log"
    path.write_text(OOPS)

    assert run_cli(["analyze", str(path), str(tmp_path / "\x1b[2J")]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


class Screen:
    """A terminal that the command of this process writes to; what it shows is read by a thread."""

    def __init__(self, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._master, slave = pty.openpty()
        self._tty = os.fdopen(slave, "w")
        self.shown = b""
        self.wants = b""  # when it is shown,
        self.then: Callable[[], None] = lambda: None  # do that, once
        monkeypatch.setattr(sys, "stdout", self._tty)
        monkeypatch.setattr(sys, "stderr", self._tty)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.delenv("NO_COLOR", raising=False)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def closed(self) -> str:
        """Close the terminal; return all that it has shown."""
        self._tty.close()
        self._thread.join()
        os.close(self._master)
        return self.shown.decode()

    def _read(self) -> None:
        while True:
            try:
                self.shown += os.read(self._master, 65536)
            except OSError:
                return
            if self.wants and self.wants in self.shown:
                self.wants = b""
                self.then()


def test_a_long_log_has_a_bar_and_ctrl_c_ends_it_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b"[%12.6f] usb 1-1: a line of ordinary length, such as a kernel prints\n"
    part = b"".join(line % (n / 200) for n in range(14_000))
    log = tmp_path / "a-log-with-quite-a-long-name.log"
    log.write_bytes(part * 16)
    screen = Screen(72, monkeypatch)
    screen.wants = b" MB"
    screen.then = lambda: os.kill(os.getpid(), signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)

    code = run_cli(["analyze", str(log)])

    shown = screen.closed()
    assert code == 130
    assert "lines" not in shown  # it did not come so far
    assert "\x1b[?25h" in shown  # the cursor is there again
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert max(map(len, re.split(r"[\r\n]+", plain))) == 69  # a `^C` behind the bar does not wrap
    assert signal.getsignal(signal.SIGINT) is before


def test_in_a_terminal_no_line_is_wider_than_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a-log-with-a-long-name-of-a-board-in-the-lab.log"
    path.write_text(BOOT + OOPS + OVERRUN)
    screen = Screen(72, monkeypatch)

    assert run_cli(["analyze", str(path)]) == 0
    shown = screen.closed()
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).replace("\r", "").split("\n")
    assert max(map(len, plain[1:])) <= 72  # the name, in the first, is not cut
    assert "1 critical, 1 warning" in plain[1]
    assert "\x1b[1;31mcritical" in shown


def test_an_empty_log_is_called_empty_rather_than_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "b.log").write_bytes(b"Linux version 6.1.55\n")
    codes = [run_cli(["analyze", str(tmp_path / name)]) for name in ("a.log", "b.log")]
    empty, healthy = capsys.readouterr().out.split("b.log: ")

    assert codes == [0, 0]
    assert "It is empty" in empty
    assert "No fault" not in empty
    assert "No fault was recognised" in healthy


def test_a_count_is_written_like_a_line_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text(
        "Kernel panic - not syncing: VFS: Unable to mount root fs\n" * 1001
    )
    run_cli(["analyze", str(tmp_path / "a.log")])
    row = capsys.readouterr().out.splitlines()[3].split()

    assert (row[1], row[-2]) == ("1–1,001", "1,001")
