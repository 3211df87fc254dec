"""Every command with --json: JSON and nothing else on stdout, and 0, 1 or 2 as exit code.

The commands are those that there are: a new one is tried like the others, with "1" for whatever it
wants, once without a daemon and once with one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench_cli import Cli, Result, threaded_bench
from serialwatch.cli.main import cli as cli_group

SHOWS = {"run", "demo"}  # they show what happens, and stay; their words are for people
GIVEN = {  # where "1" would not do
    "completion": ("bash",),
    "incidents mute": ("1", "--for", "1h"),
    "notify test": (),
    "release": ("dut1", "--", "sh", "-c", "echo no JSON"),
    "skills test": ("no-such-skill",),
}
STAYS = {"attach"}  # with a daemon; its rows have a test of their own in test_cli_attach


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that can be given, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command


COMMANDS = {name: c for name, c in leaves(cli_group) if name not in SHOWS}
EVERY = pytest.mark.parametrize("name", COMMANDS)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands as somebody who has nothing: no daemon, no configuration, no state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERIALWATCH_SOCKET", str(tmp_path / "sw"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", tmp_path / "etc/serialwatch.toml")
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115 -- closed below
    return Cli(tmp_path / "sw", capsys)


@pytest.fixture(autouse=True)
def stdin_is_closed(cli: Cli) -> Iterator[None]:
    yield
    import sys

    sys.stdin.close()


def arguments(name: str, command: click.Command, port: str = "1") -> list[str]:
    """Return words that the command takes, and that change nothing outside the test's folder."""
    options = {option for param in command.params for option in param.opts}
    given = GIVEN.get(name)
    if given is None:
        wants = [param for param in command.params if isinstance(param, click.Argument)]
        given = tuple(port if type(param.type).__name__ == "PortName" else "1" for param in wants)
    return [*name.split(), "--json", *(["--dry-run"] if "--dry-run" in options else []), *given]


def rows_of(result: Result) -> list[object]:
    """Return the JSON that was printed, one object or one a line; fail on anything else."""
    try:
        return [json.loads(result.out, parse_constant=_refused)]
    except json.JSONDecodeError:
        return [json.loads(row, parse_constant=_refused) for row in result.out.splitlines()]


def _refused(name: str) -> object:
    raise AssertionError(f"{name} is no JSON")


def test_every_command_is_found() -> None:
    assert {"ports", "incidents", "incidents mute", "rules check", "config init"} <= set(COMMANDS)
    assert GIVEN.keys() | STAYS <= COMMANDS.keys()


@EVERY
def test_every_command_takes_json(name: str) -> None:
    assert "--json" in {option for param in COMMANDS[name].params for option in param.opts}


@EVERY
def test_without_a_daemon_it_prints_json(name: str, cli: Cli) -> None:
    result = cli(*arguments(name, COMMANDS[name]))

    assert result.code in (0, 1, 2), result.err
    rows = rows_of(result)
    assert rows, result.err
    if any(isinstance(row, dict) and "error" in row for row in rows):
        assert result.code != 0


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in STAYS])
def test_with_a_daemon_it_prints_json(name: str, cli: Cli, tmp_path: Path) -> None:
    command = COMMANDS[name]
    if not any("--socket" in param.opts for param in command.params):
        return
    with threaded_bench(tmp_path) as bench:
        bench.prints(b"U-Boot\r\n")
        result = cli(*arguments(name, command, "dut1"))

    assert result.code in (0, 1, 2), result.err
    assert rows_of(result), result.err


@EVERY
def test_wrong_use_is_json_too(name: str, cli: Cli) -> None:
    result = cli(*name.split(), "--json", "--no-such-option")
    told = json.loads(result.out)

    assert (result.code, set(told)) == (2, {"error"})
    assert told["error"]["code"] == "wrong_use"
    assert result.err.startswith(f"serialwatch: {told['error']['message'].splitlines()[0]}\n")


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (("ports", "--json"), 1, "no_daemon"),
        (("bogus", "--json"), 2, "wrong_use"),
        (("rules", "--json"), 2, "wrong_use"),
        (("analyze", "--json"), 2, "wrong_use"),
        (("config", "check", "none.toml", "--json"), 2, None),
    ],
)
def test_what_went_wrong_has_a_word_for_scripts(
    cli: Cli, args: tuple[str, ...], code: int, error: str | None
) -> None:
    result = cli(*args)
    told = json.loads(result.out)

    assert result.code == code
    assert told.get("error", {}).get("code") == error


def test_a_refusal_of_the_daemon_keeps_its_word(cli: Cli, tmp_path: Path) -> None:
    with threaded_bench(tmp_path):
        result = cli("logs", "dut9", "--json")

    assert (result.code, json.loads(result.out)["error"]["code"]) == (1, "not_found")


def test_a_fault_of_our_own_is_json_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("serialwatch.cli.ports.find_daemon", broken)
    result = cli("ports", "--json")

    assert (result.code, json.loads(result.out)["error"]["code"]) == (1, "internal")


def test_what_stands_behind_the_dashes_asks_for_no_json(cli: Cli) -> None:
    assert cli("release", "dut1", "--", "esptool", "--json").out == ""
