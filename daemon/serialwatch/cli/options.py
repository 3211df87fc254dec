"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


FAR = 10**15  # lines, boots: there are never so many


class Number(click.IntRange):
    """A whole number; one that is none is not called "no valid integer range"."""

    name = "number"

    def _describe_range(self) -> str:
        """Say nothing of bounds that are only there so that a number can be worked with."""
        return "" if self.max is not None and self.max >= FAR else super()._describe_range()


class ListGroup(click.Group):
    """A group that lists if no command is named, with the options of its `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the command that is meant."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


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
