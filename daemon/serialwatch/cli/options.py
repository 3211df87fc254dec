"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.IntRange):
    """A whole number; one that is none is not called "no valid integer range"."""

    name = "number"


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
