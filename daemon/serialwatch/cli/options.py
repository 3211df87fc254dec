"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


FAR = 10**15  # lines, boots: there are never so many


class Number(click.IntRange):
    """A whole number; one that is none is not called "no valid integer range"."""

    name = "number"

    def _describe_range(self) -> str:
        """Say nothing of bounds that are only there so that a number can be worked with."""
        return "" if self.max is not None and self.max >= FAR else super()._describe_range()


class PortName(click.ParamType[str]):
    """The name of a port, which a shell completes."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the ports that begin so."""
        from click.shell_completion import CompletionItem

        from serialwatch.cli.port_names import port_names

        known = port_names(ctx.params.get("socket"))
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]


PORT = PortName()


class ListGroup(click.Group):
    """A group that lists if no command is named, with the options of its `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the command that is meant."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def config_file(command: F) -> F:
    """Add PATH, also as the -c that `run` has; `one_file` says which was given."""
    argument = click.argument(
        "path", required=False, type=click.Path(path_type=Path, allow_dash=True)
    )
    option = click.option(
        "-c", "--config", "named", type=click.Path(path_type=Path), help="The same as PATH."
    )
    return argument(option(command))


def one_file(path: Path | None, named: Path | None) -> Path | None:
    """Return the file that was given in either way, None if in neither.

    Raises:
        click.UsageError: it was given in both.

    """
    if path is not None and named is not None:
        raise click.UsageError("PATH and -c PATH exclude each other")
    return named if path is None else path


def json_option(command: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, times in UTC.")(
        command
    )


def socket_option(command: F) -> F:
    """Add --socket."""
    return click.option(
        "--socket",
        "socket",
        metavar="PATH",
        help="The daemon's socket; else $SERIALWATCH_SOCKET, your own daemon's, the system's.",
    )(command)
