"""The `serialwatch` command. A subcommand's module is imported only when it is used."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError, tell

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand and where it is defined, as `module:function`."""

    name: str
    where: str
    words: str


SECTIONS: dict[str, tuple[Command, ...]] = {
    "The bench": (
        Command("run", "serialwatch.cli.run:run", "watch ports: the service itself"),
        Command("demo", "serialwatch.cli.demo:demo", "boards without hardware, and their faults"),
        Command("ports", "serialwatch.cli.ports:ports", "the state of every port"),
        Command("attach", "serialwatch.cli.attach:attach", "a terminal on a port; Ctrl-T q leaves"),
        Command("logs", "serialwatch.cli.logs:logs", "what ports have printed"),
    ),
    "Faults": (
        Command("incidents", "serialwatch.cli.incidents:incidents", "faults that were noticed"),
        Command("report", "serialwatch.cli.report:report", "what was found out about a fault"),
        Command("ask", "serialwatch.cli.ask:ask", "a question, answered as it is found out"),
        Command("runs", "serialwatch.cli.runs:runs", "what the agent did, round by round"),
        Command("memory", "serialwatch.cli.memory:memory", "what the bench remembers, and why"),
        Command("analyze", "serialwatch.cli.analyze:analyze", "a saved log, without a daemon"),
    ),
    "Boards": (
        Command(
            "approvals",
            "serialwatch.cli.approvals:approvals",
            "what the agent wants to do: approve or refuse it",
        ),
        Command("mark", "serialwatch.cli.mark:mark", "set a marker in a log"),
        Command("send", "serialwatch.cli.send:send", "send text or bytes to a port"),
        Command("reset", "serialwatch.cli.reset:reset", "reset a board"),
        Command("release", "serialwatch.cli.release:release", "lend a port, e.g. for flashing"),
    ),
    "Setting up": (
        Command("doctor", "serialwatch.cli.doctor:doctor", "what is wrong with this PC's set-up"),
        Command("rules", "serialwatch.cli.rules:rules", "check, list and explain fault rules"),
        Command(
            "skills", "serialwatch.cli.skills:skills", "the agent's skills: list, check, run, test"
        ),
        Command("roles", "serialwatch.cli.roles:roles", "who the agent is: list, show, check"),
        Command("agent", "serialwatch.cli.agent:agent", "test the model's endpoint"),
        Command(
            "config", "serialwatch.cli.config:config", "write, check and show the configuration"
        ),
        Command("notify", "serialwatch.cli.notify:notify", "try out the programs that tell people"),
        Command("install", "serialwatch.cli.install:install", "the service on this PC"),
        Command("uninstall", "serialwatch.cli.install:uninstall", "take the service off this PC"),
        Command(
            "completion", "serialwatch.cli.completion:completion", "let a shell complete commands"
        ),
    ),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return [command.name for commands in SECTIONS.values() for command in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, None if there is none of that name."""
        for commands in SECTIONS.values():
            for command in commands:
                if command.name == cmd_name:
                    module, _, name = command.where.partition(":")
                    found = getattr(importlib.import_module(module), name)
                    assert isinstance(found, click.Command)
                    return found
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        known = [command for commands in SECTIONS.values() for command in commands]
        found = [
            CompletionItem(c.name, help=c.words) for c in known if c.name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name, command.words) for command in commands])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="serialwatch")
def cli() -> None:
    """Watch the serial ports of a bench, keep every byte, notice faults and explain them.

    Every command that answers takes --json. Exit codes: 0 good, 1 it failed, 2 wrong use.
    """


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] == ["run"]:
        # Whoever asks for a reload before the service can do it must not end it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _open_missing_streams()
    for name in ("COLUMNS", "LINES"):  # 0, as some containers and editors have it: not known
        if not os.environ.get(name, "1").strip("0"):
            del os.environ[name]
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(args: Sequence[str]) -> int:
    """Run one command and return its exit code; what goes wrong is one line on stderr.

    With --json it is an object on stdout as well: {"error": {"code", "message"}}.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # e.g. a Latin-1 terminal
    code = 0
    as_json = _wants_json(args)
    try:
        code = _invoked(args)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message())
        return 0
    except click.UsageError as exc:
        where = exc.ctx.command_path if exc.ctx else "serialwatch"
        told = exc.format_message().replace("\n\t", " ")  # as click lists what there is to choose
        words = f"{told}\nsee `{where} --help`"
        return _fail(CliError(words, WRONG_USE), as_json=as_json)
    except click.ClickException as exc:
        return _fail(CliError(exc.format_message(), exc.exit_code), as_json=as_json)
    except CliError as exc:
        return _fail(exc, as_json=as_json)
    except BrokenPipeError:
        _give_up_output()  # whoever read it has seen enough
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as exc:
        if isinstance(exc, OSError) and _cannot_print(exc):
            _give_up_output()
            return _fail(CliError(f"standard output: cannot be written: {exc.strerror}"))
        if os.environ.get("SERIALWATCH_TRACEBACK"):
            raise
        while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
            exc = exc.exceptions[0]  # of the only task that failed
        words = f"a fault of its own: {type(exc).__name__}: {exc}"
        words += "\nplease report it; SERIALWATCH_TRACEBACK=1 shows where"
        return _fail(CliError(words, FAULT, "internal"), as_json=as_json)
    return code


def _invoked(args: Sequence[str]) -> int:
    """Run a command; what it raises is raised, also what click makes something else of."""
    try:
        code = cli.main(args=list(args), prog_name="serialwatch", standalone_mode=False)
    except click.Abort as exc:  # click's word for Ctrl-C, and for any EOFError
        raise exc.__cause__ or KeyboardInterrupt from exc
    except SystemExit as exc:  # the way out of a broken pipe that click and rich take
        raise BrokenPipeError from exc
    return code if isinstance(code, int) else 0


def _open_missing_streams() -> None:
    """Open what we were started without, so that no file of ours gets the number of stdout."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 -- for as long as we run
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _cannot_print(exc: OSError) -> bool:
    """Tell whether it is standard output that failed: what is left in it fails again."""
    try:
        sys.stdout.flush()
    except OSError as again:
        return again.errno == exc.errno
    return exc.errno == errno.ENOSPC and exc.filename is None


def _give_up_output() -> None:
    """Keep the interpreter from tripping over stdout, or stderr, again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _wants_json(args: Sequence[str]) -> bool:
    """Tell whether a script reads what comes; behind `--` stands what is not for us."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def _fail(fault: CliError, *, as_json: bool = False) -> int:
    try:
        if as_json:
            body = {"error": {"code": fault.code, "message": str(fault)}}
            click.echo(json.dumps(body))
        for line in str(fault).split("\n"):
            tell(line)
    except OSError:  # stdout or stderr is closed or full: the code tells it
        _give_up_output()
    return fault.exit_code
