"""`serialwatch completion`: what makes a shell complete commands, options and ports."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from serialwatch.cli.options import json_option

VARIABLE = "_SERIALWATCH_COMPLETE"  # as click derives it from the name of the program


@click.command(short_help="Print what makes a shell complete commands.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print what makes SHELL complete commands, options and the names of ports.

    \b
    bash   eval "$(serialwatch completion bash)"    in ~/.bashrc
    zsh    eval "$(serialwatch completion zsh)"     in ~/.zshrc
    fish   serialwatch completion fish | source     in ~/.config/fish/config.fish

    Ports are those of the daemon that runs, else those of the configuration.
    """  # noqa: D301 -- click's mark for lines to keep
    from serialwatch.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "serialwatch", VARIABLE).source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
