"""Runs are named by the beginning of their id, as commits are."""

from __future__ import annotations

from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.tables import safe


def one_id(begin: str, ids: list[str]) -> str:
    """Return the one id that begins so.

    Raises:
        CliError: none does, or several do.

    """
    meant = [each for each in ids if each.startswith(begin)] if begin else []
    if len(meant) > 1 and begin not in meant:
        some = ", ".join(safe(each) for each in meant[:5])
        raise CliError(f"{safe(begin)}: more than one run begins so: {some}", WRONG_USE)
    if not meant:
        raise no_run(begin)
    return begin if begin in meant else meant[0]


def no_run(run_id: str) -> CliError:
    """Return the error of a run that is not there."""
    return CliError(f"no run {safe(run_id)!r}: `serialwatch runs list` lists them")
