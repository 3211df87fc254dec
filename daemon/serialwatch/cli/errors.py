"""How a command fails: one line for people, and an exit code for scripts."""

from __future__ import annotations

import sys

import click

FAULT = 1  # something is broken or not there
WRONG_USE = 2  # of the command line or the configuration


class CliError(Exception):
    """A command cannot do its work; the message names the thing and the remedy.

    `code` is a word for scripts: the API's where the daemon refuses.
    """

    def __init__(self, message: str, exit_code: int = FAULT, code: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code or ("wrong_use" if exit_code == WRONG_USE else "failed")


def tell(words: str) -> None:
    """Print one line on stderr, in a terminal broken between words."""
    lead = "serialwatch: "
    for row in _rows(words, len(lead)):
        click.echo(f"{lead}{row}", err=True)
        lead = " " * len(lead)


def _rows(words: str, indent: int) -> list[str]:
    if not sys.stderr.isatty():
        return [words]
    import shutil  # here, for it is needed only when something is wrong
    import textwrap

    width = max(shutil.get_terminal_size().columns - indent, indent)
    return textwrap.wrap(
        words, width, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
