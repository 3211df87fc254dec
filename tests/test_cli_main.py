"""The command line as such: help, errors, exit codes, and what is imported when."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import click
import pytest

from bench_cli import COMMAND, Cli, in_terminal
from serialwatch.cli import client
from serialwatch.cli.client import Daemon, find_daemon, socket_places
from serialwatch.cli.errors import CliError
from serialwatch.cli.main import SECTIONS, run_cli
from serialwatch.cli.main import cli as cli_group
from serialwatch.config import run_dir


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands where no daemon is."""
    return Cli(tmp_path / "sw", capsys)


def test_the_help_lists_every_command_without_importing_one() -> None:
    code = (
        "import sys\nfrom serialwatch.cli.main import run_cli\nrun_cli(['--help'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('serialwatch.')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    for commands in SECTIONS.values():
        for command in commands:
            assert f"  {command.name} " in told
    modules = told.splitlines()[-1]
    assert modules == "['serialwatch.cli', 'serialwatch.cli.errors', 'serialwatch.cli.main']"


def test_asking_for_ports_imports_neither_the_server_nor_the_matcher() -> None:
    code = (
        "import sys, serialwatch.cli.ports\n"
        "print([m for m in ('aiohttp', 'pydantic', 'hyperscan', 'openai', 'sqlite_utils')"
        " if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert told == "[]\n"


def test_nothing_asked_is_answered_with_help(cli: Cli) -> None:
    result = cli()

    assert (result.code, result.err) == (0, "")
    assert "attach  a terminal on a port" in result.out


def test_a_bound_that_nobody_comes_near_is_no_part_of_the_help(cli: Cli) -> None:
    assert "<=" not in cli("logs", "--help").out
    assert "1<=x<=10000" in cli("incidents", "--help").out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("bogus",), "No such command 'bogus'"),
        (("ports", "--bogus"), "No such option"),
        (("logs",), "which PORT?"),
        (("report", "x"), "'x' is not a valid number."),
        (("report", "1", "--diff", "--markdown"), "--diff goes with --revision and --json only"),
        (("attach", "dut1", "--steal", "--read-only"), "exclude each other"),
        (("logs", "dut1", "-n", "x"), "-n x: must be a number of lines, or all"),
        (("logs", "dut1", "--since", "x"), "--since: 'x' is no time: write 10m"),
        (("logs", "dut1", "-E"), "-E needs --grep"),
        (("logs", "dut1", "-E", "--grep", "("), "not a regular expression"),
        (("logs", "dut1:5"), "must be a port, or lines of one such as"),
        (("logs", "dut1:L5", "-f"), "-f has no end"),
        (("logs", "dut1", "-f", "--boot", "1"), "of all boots only --boot 0 fits"),
        (("logs", "dut1", "--grep", ""), "--grep is empty"),
        (("logs", "dut1", "--marker", ""), "--marker is empty"),
        (("release", "dut1", "--"), "no COMMAND is behind --"),
        (("incidents", "mute", "1", "--for", "x"), "--for: 'x' is no length of time"),
        (("send", "dut1", "--hex", "0"), "not pairs of hex digits"),
        (("rules", "explain", "linux.opps"), "did you mean linux.oops"),
    ],
)
def test_wrong_use_is_told_on_stderr_and_exits_2(
    cli: Cli, args: tuple[str, ...], words: str
) -> None:
    result = cli(*args)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("serialwatch: ")
    assert words in result.err


@pytest.mark.parametrize(
    "args",
    [
        ("ports",),
        ("incidents",),
        ("incidents", "resolve", "1"),
        ("report", "1"),
        ("logs", "dut1"),
        ("logs", "dut1", "dut2", "-f"),
        ("mark", "dut1", "x"),
        ("send", "dut1", "x"),
        ("reset", "dut1"),
    ],
)
def test_without_a_daemon_it_says_where_it_looked_and_what_to_do(
    cli: Cli, args: tuple[str, ...]
) -> None:
    result = cli(*args, "--socket", str(cli.socket))

    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"serialwatch: no daemon at {cli.socket}: start it with `serialwatch run --port "
        "NAME=DEVICE`, or look at saved logs with `serialwatch logs PORT --state DIR`\n"
    )


@pytest.mark.parametrize(
    "args",
    [
        ("report", "x"),
        ("incidents", "resolve", "x"),
        ("incidents", "-n", "x"),
        ("logs", "dut1", "--boot", "x"),
        ("attach", "dut1", "-n", "x"),
    ],
)
def test_what_is_no_number_is_called_so(cli: Cli, args: tuple[str, ...]) -> None:
    result = cli(*args)

    assert result.code == 2
    assert "'x' is not a valid number." in result.err


def test_a_fault_of_our_own_is_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("serialwatch.cli.ports.find_daemon", broken)
    result = cli("ports")

    assert result.code == 1
    assert result.err.startswith("serialwatch: a fault of its own: ZeroDivisionError: planted\n")
    monkeypatch.setenv("SERIALWATCH_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run_cli(["ports"])


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    shell = f"{sys.executable} -c '{COMMAND[2]}' rules list --json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("environ", "uid", "places"),
    [
        ({"SERIALWATCH_SOCKET": "/a/b"}, 1001, ["/a/b"]),
        (
            {"XDG_RUNTIME_DIR": "/run/user/1001"},
            1001,
            ["/run/user/1001/serialwatch/serialwatch.sock", "/run/serialwatch/serialwatch.sock"],
        ),
        (
            {},
            1001,
            [
                "/tmp/serialwatch-1001/serialwatch/serialwatch.sock",
                "/run/serialwatch/serialwatch.sock",
            ],
        ),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, ["/run/serialwatch/serialwatch.sock"]),
    ],
)
def test_the_users_own_daemon_is_looked_for_before_the_systems(
    environ: dict[str, str], uid: int, places: list[str]
) -> None:
    assert [str(place) for place in socket_places(environ, uid)] == places


@pytest.mark.parametrize("runtime", ["/run/user/1001", None])
def test_commands_look_where_a_daemon_of_this_user_listens(
    runtime: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    environ = {}
    if runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        environ = {"XDG_RUNTIME_DIR": runtime}

    assert run_dir() / "serialwatch.sock" == socket_places(environ, 1001)[0]


def test_a_socket_that_nobody_serves_any_more_does_not_hide_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    monkeypatch.setattr(client, "socket_places", lambda *_: [own, system])
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(own))

        assert find_daemon(None).path == system
        left_behind.listen()
        assert find_daemon(None).path == own
        assert find_daemon("named").path == Path("named")


def test_who_comes_while_many_connect_waits_for_a_turn(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "own")
    all_here = threading.Barrier(13)
    got: list[object] = []

    def ask() -> None:
        all_here.wait(10)
        try:
            got.append(daemon.get("/healthz"))
        except CliError as exc:
            got.append(exc)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(daemon.path))
        server.listen(0)  # no room but for one
        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        all_here.wait(10)
        while len(got) < 12:
            server.settimeout(0.2)
            try:
                conn, _ = server.accept()
            except TimeoutError:
                continue
            with conn:
                conn.recv(65536)
                conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        for thread in threads:
            thread.join()

    assert got == [{}] * 12


def listen_as_a_stranger(sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listen as another user than the one whom the code under test takes itself for."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(12345)
    try:
        sock.listen()
    finally:
        if is_root:
            os.seteuid(0)
    monkeypatch.setattr("os.geteuid", lambda: 1001)


def test_what_a_stranger_serves_in_the_users_place_is_told_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    monkeypatch.setattr(client, "socket_places", lambda *_: [own, system])
    with socket.socket(socket.AF_UNIX) as strangers:
        strangers.bind(str(own))
        listen_as_a_stranger(strangers, monkeypatch)

        assert find_daemon(None).path == system
        assert f"{own}: not used: uid " in capsys.readouterr().err
        assert find_daemon(None, is_quiet=True).path == system
        assert capsys.readouterr().err == ""
        assert find_daemon(str(own)).path == own  # whoever names it has looked


def test_a_stranger_who_takes_the_users_place_meanwhile_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(tmp_path / "own", owner=1001)
    with socket.socket(socket.AF_UNIX) as strangers:
        strangers.bind(str(daemon.path))
        listen_as_a_stranger(strangers, monkeypatch)

        with pytest.raises(CliError, match="it is not a daemon of yours"):
            daemon.post("/v1/ports/dut1/send", {"text": "secret"})
        with strangers.accept()[0] as heard:
            assert heard.recv(100) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_who_may_not_use_the_socket_is_told_the_group(cli: Cli) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/sw")
        listener.listen()
        os.seteuid(12345)
        try:
            told = cli("ports", "--socket", f"{folder}/sw").err
        finally:
            os.seteuid(0)

    assert told == (
        f"serialwatch: {folder}/sw: permission denied: an administrator can add you to group "
        "serialwatch (then log in again)\n"
    )


def test_an_answer_that_is_none_is_told(cli: Cli, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sw"))
        listener.listen()

        def answer() -> None:
            for reply in (b"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nno", b""):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        first = cli("ports", "--socket", str(tmp_path / "sw"))
        second = cli("ports", "--socket", str(tmp_path / "sw"))
        thread.join()

    assert first.err == "serialwatch: the daemon answered what is no answer of serialwatch's\n"
    assert second.err == f"serialwatch: the daemon at {tmp_path / 'sw'} has closed the connection\n"


@pytest.mark.parametrize("args", ["--help", "--version", "rules list", "config show"])
def test_output_that_nobody_reads_is_no_error(args: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written: no race with the reader
    done = subprocess.run(
        [*COMMAND, *args.split()], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("args", ["--help", "rules list", "config show"])
def test_a_full_disk_behind_the_output_is_told_as_such(args: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *args.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    words = "standard output: cannot be written: No space left on device"
    assert (done.returncode, done.stderr) == (1, f"serialwatch: {words}\n")


@pytest.mark.parametrize("args", ["--help", "analyze -", "rules list", "config show"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_closed_stdin_or_stdout_is_as_good_as_dev_null(args: str, closed: str) -> None:
    shell = f"{sys.executable} -c '{COMMAND[2]}' {args} {closed}"
    done = subprocess.run(
        ["bash", "-c", shell], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")


async def test_an_error_is_broken_between_words_in_a_terminal(tmp_path: Path) -> None:
    missing = str(tmp_path / "sw")
    async with in_terminal("ports", "--socket", missing, columns=60) as terminal:
        told = (await terminal.until("DIR`")).decode().splitlines()
        code = await terminal.exit_code()

    assert code == 1
    assert told[0].startswith("serialwatch: no daemon at")
    assert all(row.startswith(" " * 13) for row in told[1:])
    assert " ".join(row.strip() for row in told).endswith(
        "or look at saved logs with `serialwatch logs PORT --state DIR`"
    )


def test_what_there_is_to_choose_is_told_in_one_line(cli: Cli) -> None:
    told = cli("completion").err

    assert told.splitlines()[0].endswith("Choose from: bash, zsh, fish")


def test_an_end_of_file_that_nobody_expected_is_a_fault_and_not_ctrl_c(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(_: str | None) -> None:
        raise EOFError("planted")

    monkeypatch.setattr("serialwatch.cli.ports.find_daemon", ends)
    result = cli("ports")

    assert result.code == 1
    assert "EOFError: planted" in result.err


def test_a_socket_that_can_be_none_is_told_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert cli("ports", "--socket", "x" * 200).err.endswith(": AF_UNIX path too long\n")
    assert cli("ports", "--socket", str(tmp_path / "file" / "sw")).err.endswith(
        ": no socket of a daemon: Not a directory\n"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("logs", "dut1", "--since", "99999999999d"), "is no time"),
        (("incidents", "--since", "99999999999999h"), "is no time"),
        (("logs", "dut1", "--since", "800000d"), "is no time"),
        (("incidents", "mute", "1", "--for", "99999999999d"), "is no length of time"),
        (("logs", "dut1", "--since", "1m", "--until", "2m"), "is later than --until 2m"),
        (("logs", "dut1:L9-L5"), "the last line comes before the first"),
        (("logs", "dut1", "--boot", "9" * 30), "is not in the range"),
    ],
)
def test_times_and_numbers_beyond_all_bounds_are_wrong_use(
    cli: Cli, args: tuple[str, ...], words: str
) -> None:
    result = cli(*args)

    assert result.code == 2
    assert words in result.err


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/operating.md"])
def test_every_command_that_a_document_shows_can_be_given(name: str) -> None:
    document = Path(__file__).parent.parent / name
    if not document.exists():
        pytest.skip(f"{name} is not in a wheel")
    shown = re.findall(
        r"(?:^ {4}(?:sudo )?|`)serialwatch ([^`#\n]+)", document.read_text(), re.MULTILINE
    )

    assert shown
    for words in shown:
        command: click.Command = cli_group
        args = shlex.split(words)
        while isinstance(command, click.Group) and args and not args[0].startswith("-"):
            found = command.get_command(click.Context(command), args.pop(0))
            assert found is not None, words
            command = found
        command.make_context(words, args)  # raises if an option or argument is not as shown


@pytest.mark.parametrize(
    "args", [(), ("rules",), ("skills",), ("config",), ("incidents",), ("runs",), ("report",)]
)
def test_what_a_command_does_is_said_in_full_in_the_help(cli: Cli, args: tuple[str, ...]) -> None:
    assert not re.search(r"\w\.\.\.\n", cli(*args, "--help").out)


def test_no_columns_at_all_is_a_width_that_is_not_known() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "serialwatch", "skills", "list"],
        env=os.environ | {"COLUMNS": "0", "LINES": "0"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "boot-compare" in shown.stdout
