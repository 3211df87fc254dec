"""Actions are named by the beginning of their id; a shell completes those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.port_names import listed
from serialwatch.cli.tables import safe
from serialwatch.wire import Json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ApprovalId(click.ParamType[str]):
    """The id of an action, or its beginning."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the actions that wait and begin so, with what they would do."""
        from click.shell_completion import CompletionItem

        begin = incomplete.upper()
        return [
            CompletionItem(str(row["id"]), help=safe("; ".join(map(str, row["effect"]))))
            for row in listed(ctx.params.get("socket"), "approvals")
            if str(row["id"]).startswith(begin) and row["state"] == "pending"
        ]


APPROVAL = ApprovalId()


def one_approval(begin: str, rows: Sequence[Json]) -> str:
    """Return the id that begins so; those that wait come before those that are over.

    Raises:
        CliError: none does, or several do.

    """
    named = begin.upper()
    meant = [row for row in rows if named and str(row["id"]).startswith(named)]
    waiting = [row for row in meant if row["state"] == "pending"]
    ids = [str(row["id"]) for row in waiting or meant]
    if named in [str(row["id"]) for row in meant]:
        return named
    if len(ids) > 1:
        some = ", ".join(map(safe, ids[:5]))
        raise CliError(f"{safe(begin)}: more than one action begins so: {some}", WRONG_USE)
    if not ids:
        raise CliError(f"no action {safe(begin)!r}: `serialwatch approvals list --all` lists them")
    return ids[0]
