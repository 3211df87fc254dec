"""How a command fails: one line for people, and an exit code for scripts."""

from __future__ import annotations

FAULT = 1  # something is broken or not there
WRONG_USE = 2  # of the command line or the configuration


class CliError(Exception):
    """A command cannot do its work; the message names the thing and the remedy."""

    def __init__(self, message: str, exit_code: int = FAULT) -> None:
        super().__init__(message)
        self.exit_code = exit_code
