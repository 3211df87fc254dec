"""What a shell is told when somebody presses Tab."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from bench_cli import Cli, threaded_bench
from serialwatch.cli import port_names as module
from serialwatch.cli.completion import VARIABLE
from serialwatch.cli.main import SECTIONS
from serialwatch.cli.main import cli as cli_group


@pytest.fixture(autouse=True)
def nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let no daemon and no configuration be there."""
    monkeypatch.setenv("SERIALWATCH_SOCKET", str(tmp_path / "sw"))
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", tmp_path / "etc/serialwatch.toml")
    return tmp_path / "etc"


def completed(*args: str) -> list[str]:
    """Return what the shell would offer for the last of the words."""
    found = ShellComplete(cli_group, {}, "serialwatch", VARIABLE)
    return [item.value for item in found.get_completions(list(args[:-1]), args[-1])]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[None]:
    """Serve a bench with dut1 and dut2."""
    with threaded_bench(tmp_path):
        yield


@pytest.mark.parametrize(
    "args",
    [("logs", ""), ("logs", "dut1", ""), ("attach", "d"), ("send", ""), ("mark", ""), ("reset", ""),
     ("release", ""), ("incidents", "--port", ""), ("runs", "list", "--port", ""),
     ("memory", "add", "--port", ""), ("ask", "-p", "")],
)  # fmt: skip
@pytest.mark.usefixtures("bench")
def test_ports_are_those_of_the_daemon(args: tuple[str, ...]) -> None:
    assert completed(*args) == ["dut1", "dut2"]


@pytest.mark.parametrize("args", [("analyze", ""), ("rules", "test", ""), ("config", "check", "")])
def test_where_a_file_is_meant_the_shell_completes_it(args: tuple[str, ...]) -> None:
    found = ShellComplete(cli_group, {}, "serialwatch", VARIABLE)
    items = found.get_completions(list(args[:-1]), args[-1])

    assert [item.type for item in items] == ["file"]


@pytest.mark.usefixtures("bench")
def test_only_ports_that_begin_so_are_offered() -> None:
    assert completed("logs", "dut2") == ["dut2"]
    assert completed("logs", "x") == []


def test_a_daemon_that_is_named_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with threaded_bench(tmp_path):
        monkeypatch.setenv("SERIALWATCH_SOCKET", "/nowhere")

        assert completed("logs", "--socket", str(tmp_path / "sw"), "") == ["dut1", "dut2"]


def test_without_a_daemon_ports_are_those_of_the_configuration(nobody_there: Path) -> None:
    nobody_there.mkdir()
    (nobody_there / "serialwatch.toml").write_text('[port.evk7]\ndevice = "pty:"\n')

    assert completed("logs", "") == ["evk7"]


def test_a_users_own_configuration_goes_first(
    nobody_there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in ((nobody_there, "theirs"), (tmp_path / "serialwatch", "mine")):
        folder.mkdir()
        (folder / "serialwatch.toml").write_text(f'[port.{name}]\ndevice = "pty:"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert completed("logs", "") == ["mine"]


@pytest.mark.parametrize("text", ["", "port = 3\n", "[port\n", "\udc80"])
def test_what_goes_wrong_is_silent(
    nobody_there: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody_there.mkdir()
    (nobody_there / "serialwatch.toml").write_text(text, errors="surrogateescape")

    assert completed("logs", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\n{}"])
def test_a_daemon_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sw"))
        listener.listen()

        def reply() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        found = completed("logs", "")
        thread.join()

    assert found == []


def test_a_daemon_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.01)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sw"))
        listener.listen()  # and accepts nobody

        assert completed("logs", "") == []


def test_commands_are_offered_without_importing_one() -> None:
    code = (
        "import sys\nfrom click.shell_completion import ShellComplete\n"
        "from serialwatch.cli.main import cli\n"
        "found = ShellComplete(cli, {}, 'serialwatch', 'X').get_completions([], '')\n"
        "print(*(item.value for item in found))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('serialwatch.')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert told[0].split() == [c.name for commands in SECTIONS.values() for c in commands]
    assert told[1].split() == ["serialwatch.cli", "serialwatch.cli.errors", "serialwatch.cli.main"]


def test_every_argument_and_option_for_a_port_is_completed() -> None:
    def params(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.params
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from params(found)

    # `run --port` makes one, and that of a saved log may be called anything.
    of_ports = [
        param for param in params(cli_group)
        if param.name in {"port", "ports"} and not (param.multiple or param.metavar == "PORT")
    ]  # fmt: skip

    assert len(of_ports) > 10
    for param in of_ports:
        assert type(param.type).__name__ == "PortName", (param.name, param.opts)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_printed_is_for_that_shell(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(tmp_path / "sw", capsys)
    told = cli("completion", shell)

    assert told.code == 0
    assert f"{VARIABLE}={shell}_complete" in told.out
    assert json.loads(cli("completion", shell, "--json").out)["script"] + "\n" == told.out


def test_bash_completes_with_it(tmp_path: Path, nobody_there: Path) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/serialwatch"
    command.write_text(f"#!{sys.executable}\nfrom serialwatch.cli.main import main\nmain()\n")
    command.chmod(0o755)
    script = (
        f'eval "$({command} completion bash)"\nCOMP_WORDS=(serialwatch rel)\nCOMP_CWORD=1\n'
        f'_serialwatch_completion {command}\necho "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("release\n", "")


def test_completing_a_port_needs_neither_the_client_nor_the_matcher() -> None:
    code = (
        "import sys\nfrom click.shell_completion import ShellComplete\n"
        "from serialwatch.cli.main import cli\n"
        "for name in ('attach', 'logs', 'send', 'mark', 'reset', 'release'):\n"
        "    ShellComplete(cli, {}, 'serialwatch', 'X').get_completions([name], '')\n"
        "print([m for m in ('aiohttp', 'pydantic', 'hyperscan') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert told == "[]\n"
