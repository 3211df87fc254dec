"""`serialwatch logs`: saved and live lines, from a daemon and from a folder."""

from __future__ import annotations

import errno
import json
import random
import re
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils

from bench_api import LOG_NAME, STARTED_UTC_NS, serving
from bench_cli import COMMAND, Cli, Result, ThreadedBench, in_terminal, threaded_bench
from serialwatch.cli import log_search, logs, saved_logs
from serialwatch.cli.client import Daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.log_source import DaemonLogs
from serialwatch.records import Marker
from serialwatch.store import saved_file
from serialwatch.store.boots import save_marker
from serialwatch.store.log_format import Header, pack_header
from serialwatch.store.log_index import Indexer
from serialwatch.store.sqlite_file import open_file
from serialwatch.store.state_dir import StateLock

SECOND = 10**9


@pytest.fixture
def board(tmp_path: Path) -> Iterator[ThreadedBench]:
    """Serve a bench."""
    with threaded_bench(tmp_path) as found:
        yield found


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands; their socket is that of `board`."""
    return Cli(tmp_path / "sw", capsys)


def save(state: Path, port: str, data: bytes, every_ns: int = SECOND // 10) -> None:
    """Put a saved log in place; its first line came at 03:58:12, the others one after another."""
    folder = state / "log" / port
    folder.mkdir(parents=True)
    (folder / LOG_NAME).write_bytes(data)
    index = pack_header(Header(port, "lf", 1, boot=0))
    indexer = Indexer("lf", 1)
    for number, line in enumerate(data.splitlines(keepends=True)):
        at = number * every_ns
        index += indexer.add(line, at, at, STARTED_UTC_NS + at)
    (folder / LOG_NAME).with_suffix(".idx").write_bytes(index)


def test_saved_lines_are_read_with_no_daemon(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"one\r\n\x1b[31mtwo\x1b[0m\r\nth\x00ree")
    shown = cli("logs", "dut1", "--state", str(tmp_path))

    assert (shown.code, shown.out, shown.err) == (0, "one\ntwo\nthree\n", "")


def test_lines_are_the_same_from_a_daemon(board: ThreadedBench, cli: Cli) -> None:
    board.prints(b"one\r\ntwo\xff\r\n=> ")
    shown = cli("logs", "dut1", "--socket", str(cli.socket))
    told = cli("logs", "dut1", "--socket", str(cli.socket), "--json")

    assert shown.out == "one\ntwo\ufffd\n=> \n"
    rows = [json.loads(row) for row in told.out.splitlines()]
    assert [(row["seq"], row["complete"]) for row in rows] == [(1, True), (2, True), (3, False)]
    assert rows[1]["raw_base64"] == "dHdv/w=="


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        (("dut1",), range(301, 501)),
        (("dut1", "-n", "3"), range(498, 501)),
        (("dut1", "-n", "all"), range(1, 501)),
        (("dut1:L5-L7",), (5, 6, 7)),
        (("dut1:L5-7",), (5, 6, 7)),
        (("dut1:L500",), (500,)),
        (("dut1", "--grep", "line 49"), (49, *range(490, 500))),
        (("dut1", "--grep", "line 4.9"), ()),
        (("dut1", "-E", "--grep", "4.9$"), range(409, 500, 10)),
        (("dut1", "-E", "--grep", "4.9$", "-n", "2"), (489, 499)),
        (("dut1", "--grep", "line 49", "-n", "2"), (498, 499)),
        (("dut1", "--since", "2026-06-22T03:59:01.55Z"), range(497, 501)),
        (("dut1", "--until", "2026-06-22T03:58:12.2Z"), (1, 2, 3)),
    ],
)
def test_lines_are_chosen(
    tmp_path: Path, cli: Cli, args: tuple[str, ...], numbers: tuple[int, ...]
) -> None:
    save(tmp_path, "dut1", b"".join(b"line %d\n" % n for n in range(1, 501)))
    shown = cli("logs", *args, "--state", str(tmp_path))

    assert [int(n) for n in re.findall(r"line (\d+)\n", shown.out)] == list(numbers)
    assert ("serialwatch: no" in shown.err) is (not numbers)
    assert shown.code == 0


def test_bytes_that_are_no_text_are_found_by_a_daemon_as_in_a_folder(
    board: ThreadedBench, tmp_path: Path, cli: Cli
) -> None:
    board.prints(b"one\r\n\xff\xfe raw\r\n\xc3\xbf no\r\n")
    save(tmp_path / "state", "dut1", b"one\r\n\xff\xfe raw\r\n\xc3\xbf no\r\n")
    for where in (("--socket", str(cli.socket)), ("--state", str(tmp_path / "state"))):
        found = cli("logs", "dut1", "--grep", "\udcff", "-t", *where)

        assert [line.split()[-1] for line in found.out.splitlines()] == ["raw"]


def test_no_lines_at_all_are_as_many_as_were_asked_for(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"one\r\n")

    assert cli("logs", "dut1", "-n", "0", "--state", str(tmp_path)) == Result(0, "", "")


def test_several_ports_are_merged_by_time_with_their_names_before_the_lines(
    tmp_path: Path, cli: Cli
) -> None:
    save(tmp_path, "dut1", b"a1\na2\na3\n", every_ns=3 * SECOND)
    save(tmp_path, "rack-04", b"b1\nb2\nb3\n", every_ns=2 * SECOND)
    shown = cli("logs", "dut1", "rack-04", "--state", str(tmp_path))

    lines = shown.out.splitlines()
    assert lines[0] == "dut1     a1"
    assert [line.split()[1] for line in lines] == ["a1", "b1", "b2", "a2", "b3", "a3"]


def test_times_and_numbers_are_shown_when_asked_for(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"one\ntwo\n")
    shown = cli("logs", "dut1", "-t", "--state", str(tmp_path))

    for line, word in zip(shown.out.splitlines(), ("one", "two"), strict=True):
        assert re.fullmatch(r"(?:2026-06-22 )?\d\d:\d\d:\d\d\.\d{3}  L[12]  " + word, line)


def test_a_port_without_a_log_is_told_with_those_that_have_one(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"")
    save(tmp_path, "dut2", b"x\n")
    (tmp_path / "empty").mkdir()

    assert cli("logs", "dut9", "--state", str(tmp_path)).err == (
        f"serialwatch: {tmp_path}/log/dut9: no saved log: there are dut1, dut2\n"
    )
    nothing = cli("logs", "dut9", "--state", str(tmp_path / "empty"))
    assert nothing.code == 1
    assert nothing.err.startswith(
        f"serialwatch: {tmp_path}/empty/log: no saved logs: is its parent"
    )
    quiet = cli("logs", "dut1", "--state", str(tmp_path))
    assert (quiet.code, quiet.err.startswith("serialwatch: nothing of dut1")) == (0, True)
    boots = cli("logs", "dut2", "--boot", "3", "--state", str(tmp_path))
    assert (boots.code, boots.err) == (1, "serialwatch: dut2: no boot was seen in this log\n")


def test_a_search_in_vain_tells_how_to_ignore_case_where_that_may_help(
    tmp_path: Path, cli: Cli
) -> None:
    save(tmp_path, "dut1", b"BUS FAULT\n")

    def told(*args: str) -> str:
        return cli("logs", "dut1", "--state", str(tmp_path), *args).err

    assert told("--grep", "fault").startswith("serialwatch: no such line of dut1; `-E --grep")
    assert told("--grep", "12:30") == "serialwatch: no such line of dut1\n"
    assert told("--grep", "fault", "-E") == "serialwatch: no such line of dut1\n"
    assert told("--grep", "(?i)fault", "-E") == ""


class Following:
    """A command that follows, in a pipe."""

    def __init__(self, *args: str) -> None:
        self._child = subprocess.Popen([*COMMAND, "logs", *args], stdout=subprocess.PIPE)

    def line(self) -> str:
        """Return its next line."""
        assert self._child.stdout is not None
        return self._child.stdout.readline().decode()

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self._child.send_signal(signal.SIGINT)
        assert self._child.stdout is not None
        self._child.stdout.read()
        self._child.stdout.close()
        return self._child.wait(10)


FAILED = b"[\x1b[0;1;31mFAILED\x1b[0m] Failed to start \x1b[0;1;39mfoo.service\x1b[0m.\r\n"
PROMPT = b"\x1b[1mro\x1b[0mot# "


@pytest.mark.parametrize(
    "args",
    [
        ("--grep", "[FAILED]"),
        ("--grep", "start foo.service."),
        ("--grep", "start foo.service.", "-n", "1"),
        ("--grep", "\x1b[0;1;31m"),
        ("-E", "--grep", r"^\[FAILED\] Failed to start foo"),
        ("-E", "--grep", r"start foo\.service\.$", "-n", "1"),
    ],
)
def test_what_is_shown_is_found_in_a_line_of_colours(
    board: ThreadedBench, cli: Cli, tmp_path: Path, args: tuple[str, ...]
) -> None:
    data = b"one\r\n" * 5 + FAILED + b"two\r\n"
    board.prints(data)
    save(tmp_path / "saved", "dut1", data)
    served = cli("logs", "dut1", "--socket", str(cli.socket), *args)
    saved = cli("logs", "dut1", "--state", str(tmp_path / "saved"), *args)

    assert served.out == saved.out == "[FAILED] Failed to start foo.service.\n"


def test_an_unfinished_line_of_colours_is_found(board: ThreadedBench, cli: Cli) -> None:
    board.prints(b"one\r\n" + PROMPT)
    shown = cli("logs", "dut1", "--socket", str(cli.socket), "--grep", "root#")

    assert shown.out == "root# \n"


def test_a_pattern_that_takes_for_ever_is_refused_at_the_line(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "LIMIT_S", 0.05)
    save(tmp_path, "dut1", b"aaa\n" + b"a" * 40 + b"!\n")
    shown = cli("logs", "dut1", "--state", str(tmp_path), "-E", "--grep", "(a+)+$")

    assert (shown.code, shown.out) == (2, "aaa\n")
    assert shown.err.startswith("serialwatch: --grep (a+)+$: takes too long on dut1:L2, a line of")


def test_a_port_is_followed_until_ctrl_c(board: ThreadedBench, cli: Cli) -> None:
    board.prints(b"".join(b"line %d\r\n" % n for n in range(1, 31)))
    following = Following("dut1", "-f", "--socket", str(cli.socket))
    history = [following.line() for _ in range(10)]
    board.prints(b"line 31\r\n=> ")
    live = following.line()
    board.prints(b"md\r\n")
    command = following.line()

    assert history == [f"line {n}\n" for n in range(21, 31)]
    assert (live, command) == ("line 31\n", "=> md\n")
    assert following.interrupt() == 0


def test_several_ports_are_followed_at_once(board: ThreadedBench, cli: Cli) -> None:
    board.prints(b"one\n")
    following = Following("dut1", "dut2", "-f", "--socket", str(cli.socket))
    first = following.line()
    board.prints(b"two\n", "dut2")
    second = following.line()
    board.prints(b"three\n")
    third = following.line()

    assert (first, second, third) == ("dut1  one\n", "dut2  two\n", "dut1  three\n")
    assert following.interrupt() == 0


def test_a_folder_is_followed_beside_its_writer(tmp_path: Path) -> None:
    save(tmp_path, "dut1", b"one\n")
    following = Following("dut1", "-f", "--json", "--state", str(tmp_path))
    first = json.loads(following.line())
    with (tmp_path / "log" / "dut1" / LOG_NAME).open("ab") as log:
        log.write(b"two\nthr")
    second, third = json.loads(following.line()), json.loads(following.line())

    assert [row["text"] for row in (first, second, third)] == ["one", "two", "thr"]
    assert third["complete"] is False
    assert following.interrupt() == 0


async def test_in_a_terminal_colours_stay_and_a_prompt_is_written_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        args = ("logs", "dut1", "-f", "--socket", str(tmp_path / "sw"))
        async with in_terminal(*args) as terminal:
            cable = bench.by_name["dut1"].cable
            cable.prints(b"\x1b[32mI (31) boot\x1b[0m\x1b]0;evil\x07\x1b[6n\r\n")
            line = await terminal.until("I (31) boot\x1b[0m\x1b[0m\r\n")
            cable.prints(b"=> ")
            prompt = await terminal.until("=> ")
            cable.prints(b"md\r\n")
            command = await terminal.until("=> md\r\n")
            terminal.child.send_signal(signal.SIGINT)

            assert await terminal.exit_code() == 0
        assert line.startswith(b"\x1b[32m")
        assert b"\x1b]" not in line + prompt + command
        assert b"\x1b[6n" not in line + prompt + command
        assert prompt == b"\r\x1b[K=> "
        assert command.startswith(b"\r\x1b[K")
        assert cable.received() == b""


@pytest.mark.parametrize("port", [".", "..", "dut1/../dut1"])
def test_no_name_of_a_port_leads_out_of_the_logs(tmp_path: Path, cli: Cli, port: str) -> None:
    save(tmp_path, "dut1", b"hello\n")
    result = cli("logs", port, "--state", str(tmp_path))

    assert result.code == 1
    assert "no saved log: there are dut1" in result.err


def test_more_lines_than_any_log_has_are_all_of_them(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"hello\nworld\n")
    more = ("--state", str(tmp_path))

    assert cli("logs", "dut1", "-n", "9" * 30, *more).out == "hello\nworld\n"
    assert cli("logs", "dut1:L2-L" + "9" * 30, *more).out == "world\n"


def test_raw_is_the_bytes_as_they_came(tmp_path: Path) -> None:
    save(tmp_path, "dut1", b"\x1b[31mred\x1b[0m\xff\x00\r\n=> ")
    command = [*COMMAND, "logs", "dut1", "--raw", "--state", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, check=True)

    assert shown.stdout == b"\x1b[31mred\x1b[0m\xff\x00\r\n=> "


def test_raw_is_what_stands_in_the_log_line_ends_and_all(
    board: ThreadedBench, tmp_path: Path
) -> None:
    rng = random.Random(17)
    pieces = [b"one", b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\n", b"x" * 9000, b"\xff\x00", b" "]
    data = b"".join(rng.choices(pieces, k=400)) + b"\n=> \r"
    board.prints(b"one\n")
    (path,) = (tmp_path / "log" / "dut1").glob("*.log")
    path.write_bytes(data)
    for place in (("--socket", str(tmp_path / "sw")), ("--state", str(tmp_path))):
        command = [*COMMAND, "logs", "dut1", "--raw", "-n", "all", *place]
        shown = subprocess.run(command, capture_output=True, check=True)

        assert shown.stdout == data


@pytest.mark.parametrize(
    ("marker", "numbers"), [("2", [4, 5]), ("NEW kernel", [4, 5]), ("reset", [2, 3, 4, 5])]
)
def test_lines_from_a_marker_on(tmp_path: Path, cli: Cli, marker: str, numbers: list[int]) -> None:
    save(tmp_path, "dut1", b"".join(b"line %d\n" % n for n in range(1, 6)))
    with closing(open_file(tmp_path / "serialwatch.db").conn) as conn:
        db = sqlite_utils.Database(conn, execute_plugins=False)
        for number, seq, kind, text in ((1, 2, "reset", ""), (2, 4, "note", "new Kernel 6.1")):
            save_marker(db, Marker(number, "dut1", seq, kind, text, "jo", 0, STARTED_UTC_NS))
        conn.commit()
    shown = cli("logs", "dut1", "--marker", marker, "--state", str(tmp_path))
    unknown = cli("logs", "dut1", "--marker", "9", "--state", str(tmp_path))

    assert [int(n) for n in re.findall(r"line (\d+)\n", shown.out)] == numbers
    assert unknown.code == 1
    assert "dut1: no marker '9': the newest are 2 'new Kernel 6.1'; 1 ''" in unknown.err


@pytest.mark.parametrize(
    ("args", "is_told"),
    [(("dut1",), True), (("dut1", "--json", "-n", "1"), True), (("dut1:L1",), False),
     (("dut2",), False), (("dut1", "--until", "1m"), False)],
)  # fmt: skip
def test_lines_that_are_in_no_log_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], is_told: bool
) -> None:
    with threaded_bench(tmp_path) as board:
        for port in ("dut1", "dut2"):
            board.prints(b"U-Boot\r\n", port)
        board.do(lambda: board.bench.change("dut1", log_problem="No space \x1b[2Jleft"))
        shown = Cli(tmp_path / "sw", capsys)("logs", *args, "--socket", str(tmp_path / "sw"))
    words = "dut1: what it prints now is not in its log: No space \\x1b[2Jleft"

    assert shown.code == 0
    assert (f"serialwatch: {words}\n" in shown.err) == is_told


def test_who_follows_is_told_when_the_log_stops_and_when_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LOOK_S", 0)
    told = iter(("", "No space left", "No space left", "", ""))

    class Source(DaemonLogs):
        def problems(self, ports: Collection[str]) -> dict[str, str]:
            try:
                return {"dut1": next(told)}
            except StopIteration:
                raise CliError("the daemon is gone") from None

    logs._tell_changes(Source(Daemon(Path("none"))), {"dut1": ""})

    assert capsys.readouterr().err == (
        "serialwatch: dut1: what it prints now is not in its log: No space left\n"
        "serialwatch: dut1: its log goes on\n"
    )


def test_the_log_of_a_port_that_left_the_configuration_is_told_to_stop(
    board: ThreadedBench, cli: Cli
) -> None:
    source = DaemonLogs(Daemon(cli.socket))

    assert source.problems(["dut1", "old"]) == {
        "dut1": "",
        "old": "it is not in the configuration any more",
    }


def test_verify_says_what_is_wrong_and_repair_makes_it_right(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"".join(b"line %d\n" % n for n in range(1, 500)))
    save(tmp_path, "dut2", b"sound\n")
    index = (tmp_path / "log" / "dut1" / LOG_NAME).with_suffix(".idx")
    with index.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\xff")
    wrong = cli("logs", "--verify", "--state", str(tmp_path))
    told = cli("logs", "dut1", "--verify", "--state", str(tmp_path), "--json")
    mended = cli("logs", "--verify", "--repair", "--state", str(tmp_path))
    again = cli("logs", "--verify", "--state", str(tmp_path))

    assert wrong.code == 1
    assert "records are damaged, the first is 1" in wrong.out
    assert "dut2: sound: 1 file, 6 bytes, L1 to L1" in wrong.out
    assert json.loads(told.out)["faults"]
    assert (mended.code, again.code) == (0, 0)
    assert "repaired: 498 records kept" in mended.out
    assert "dut1: sound" in again.out


def test_a_daemon_that_runs_keeps_its_newest_files_from_repair(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"one\ntwo\n")
    (tmp_path / "log" / "dut1" / LOG_NAME).with_suffix(".idx").unlink()
    with StateLock(tmp_path):
        shown = cli("logs", "--verify", "--repair", "--state", str(tmp_path))

    assert shown.code == 1
    assert "left alone: the daemon writes it" in shown.out


@pytest.mark.parametrize("is_repaired", [False, True])
def test_no_repair_is_offered_or_tried_for_a_log_that_cannot_be_read(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, is_repaired: bool
) -> None:
    save(tmp_path, "dut1", b"one\n")
    real = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.suffix == ".idx":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    how = ("--repair",) if is_repaired else ()
    shown = cli("logs", "--verify", *how, "--state", str(tmp_path))

    assert shown.code == 1
    assert "cannot be read: Permission denied" in shown.out
    assert "dut1: 1 of 1 file not sound" in shown.out
    assert "makes" not in shown.out
    assert ("left alone: there is nothing to make it from" in shown.out) == is_repaired


def test_where_only_some_can_be_repaired_it_is_said_how_many(tmp_path: Path, cli: Cli) -> None:
    save(tmp_path, "dut1", b"one\n")
    index = (tmp_path / "log" / "dut1" / LOG_NAME).with_suffix(".idx")
    index.with_stem("20260101T000000Z-000000000900").write_bytes(index.read_bytes())
    index.unlink()
    shown = cli("logs", "--verify", "--state", str(tmp_path))

    assert "2 of 2 files not sound" in shown.out
    assert shown.out.endswith("; --repair makes the indexes of 1 anew\n")


@pytest.mark.parametrize(
    "args", [("dut1", "--repair"), ("dut1", "--verify", "-f"), (), ("dut1", "--raw", "-t")]
)
def test_options_that_do_not_go_together_are_refused(cli: Cli, args: tuple[str, ...]) -> None:
    assert cli("logs", *args).code == 2


@pytest.mark.parametrize(("args", "code"), [(("--grep", "x"), 130), (("-f",), 0)])
def test_ctrl_c_ends_a_search_before_its_time_but_following_as_it_is_meant(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], code: int
) -> None:
    save(tmp_path, "dut1", b"x\n")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(saved_logs, "select", interrupted)
    assert cli("logs", "dut1", "--state", str(tmp_path), *args).code == code


@pytest.mark.parametrize("args", [("--grep", "line"), ("-E", "--grep", "line.*")])
def test_following_does_not_wait_for_a_search_of_the_whole_log(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    save(tmp_path, "dut1", b"".join(b"%s %d\n" % (b"line", n) for n in range(1, 501)) + b"x\n" * 98)
    monkeypatch.setattr("serialwatch.cli.logs._SEARCHED", 100)
    monkeypatch.setattr(saved_logs.SavedLogs, "follow", lambda *_: iter(()))
    found = cli("logs", "dut1", "-f", *args, "--state", str(tmp_path))
    asked = cli("logs", "dut1", "-f", *args, "-n", "4", "--state", str(tmp_path))

    assert found.out == "line 499\nline 500\n"
    assert asked.out == "line 497\nline 498\nline 499\nline 500\n"


@pytest.mark.parametrize("args", [("dut1",), ("dut1", "--json", "-n", "5"), ("dut1", "-f")])
def test_a_log_that_cannot_be_read_is_told_with_its_file(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    save(tmp_path, "dut1", b"x\n")

    def refused(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(saved_file.os, "open", refused)
    shown = cli("logs", *args, "--state", str(tmp_path))

    assert shown.code == 1
    assert f"/log/dut1/{LOG_NAME}: cannot be read: Permission denied (is this user" in shown.err


@pytest.mark.parametrize("args", [("dut1",), ("--verify",)])
def test_a_folder_that_may_not_be_looked_at_is_not_taken_for_an_empty_one(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    save(tmp_path, "dut1", b"x\n")

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(saved_logs.os, "scandir", refused)
    shown = cli("logs", *args, "--state", str(tmp_path))

    assert (shown.code, shown.err) == (
        1,
        f"serialwatch: {tmp_path}/log: cannot be read: Permission denied"
        " (is this user in group serialwatch?)\n",
    )
