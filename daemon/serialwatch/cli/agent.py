"""`serialwatch agent`: whether the model's endpoint can be used, and how."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serialwatch.agent.models.api_key import CREDENTIAL, VARIABLES, ApiKey, find_api_key
from serialwatch.agent.models.model_use import ModelSetup
from serialwatch.agent.models.spending import Caps, day_of
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import amount, console, safe, say
from serialwatch.config import Config, config_to_json, load_config, state_dir
from serialwatch.config_file import found_config, usual_config
from serialwatch.store.database import StoreError
from serialwatch.store.read import read_once
from serialwatch.store.spending import SpendingRow, load_spending
from serialwatch.tomlfile import TomlError

if TYPE_CHECKING:
    from serialwatch.agent.models.model_check import EndpointCheck, Finding

_STYLES = {"yes": "", "no": "yellow", "partly": "yellow", "unknown": ""}


@click.group()
def agent() -> None:
    """The investigator and its model."""


@agent.command(short_help="Test the model's endpoint.")
@click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="Else the system's file."
)
@json_option
def check(path: Path | None, as_json: bool) -> int:
    """Test the configured endpoint and say what it can do; this takes a few thousand tokens.

    Exits with 0 if the agent can use it, 1 if it cannot, 2 if none is configured.
    """
    try:
        config = load_config(path)
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    key = find_api_key(os.environ)
    setup = ModelSetup.of(config_to_json(config)["agent"], key.text)
    if not setup.base_url:
        raise CliError(
            f"{safe(path or found_config() or usual_config())}: no model is configured; write\n"
            '    [agent]\n    base_url = "http://127.0.0.1:11434/v1"\n    model = "qwen3:8b"\n'
            "and for an endpoint that wants a key set "
            f"{VARIABLES[0]}, or the credential {CREDENTIAL} of the service.\n"
            "Without a model the offline analyst writes every report.",
            WRONG_USE,
        )
    from serialwatch.agent.models.model import ModelError  # the client takes a second to load

    try:
        return asyncio.run(_checked(config, setup, key, as_json))
    except ModelError as exc:
        raise CliError(safe(exc), WRONG_USE) from exc


async def _checked(config: Config, setup: ModelSetup, key: ApiKey, as_json: bool) -> int:
    from serialwatch.agent.models.model_check import EndpointCheck

    found: list[Finding] = []
    checking = EndpointCheck(setup)
    if not as_json:
        _show_head(setup, key)
    async for finding in checking.run():
        found.append(finding)
        if not as_json:
            _show(finding)
    is_usable = not any(f.is_fatal or (f.name == "context" and f.verdict == "no") for f in found)
    today = _today(config)
    if as_json:
        body = {
            "base_url": setup.base_url,
            "model": setup.model,
            "key": key.source or None,
            "ok": is_usable,
            "findings": [asdict(finding) for finding in found],
            "tokens": checking.tokens,
            "price": round(checking.price, 6),
            "today": [asdict(row) for row in today],
        }
        click.echo(json.dumps(body, indent=2))
    else:
        _show_end(setup.caps, found, checking, today, is_usable)
    return 0 if is_usable else FAULT


def _show_head(setup: ModelSetup, key: ApiKey) -> None:
    out = console()
    out.print(f"{safe(_without_password(setup.base_url))}, model {safe(setup.model)}")
    out.print(f"key: {f'from {key.source}' if key.source else 'none'}")
    out.print()


def _show(finding: Finding) -> None:
    style = "red" if finding.is_fatal else _STYLES[finding.verdict]
    out = console()
    out.print(f"  {finding.name:<15} ", end="")
    verdict = "?" if finding.verdict == "unknown" else finding.verdict
    out.print(f"{verdict:<7} " if finding.words else verdict, style=style, end="")
    out.print(safe(finding.words))


def _show_end(
    caps: Caps,
    found: list[Finding],
    checking: EndpointCheck,
    today: list[SpendingRow],
    is_usable: bool,
) -> None:
    out = console()
    out.print()
    for finding in found:
        if finding.follows:
            verdict = "?" if finding.verdict == "unknown" else finding.verdict
            say(f"{finding.name}: {verdict} → {finding.follows}")
    spent = sum(row.prompt_tokens + row.completion_tokens for row in today)
    cost = sum(row.cost for row in today)
    limit = f" of {amount(caps.tokens_per_day)}" if caps.tokens_per_day else ""
    price = f", {cost:.2f}" if cost else ""
    out.print(f"today the agent has spent {amount(spent)} tokens{limit}{price}")
    for row in today if len(today) > 1 else ():
        price = f", {row.cost:.4f}" if row.cost else ""
        tokens = amount(row.prompt_tokens + row.completion_tokens)
        out.print(f"  {safe(row.model)}: {tokens} tokens{price}")
    price = f", {checking.price:.4f}" if checking.price else ""
    out.print(f"this check took {amount(checking.tokens)} tokens{price}")
    if not is_usable:
        say("The agent cannot use this endpoint; the offline analyst writes the reports.")


def _today(config: Config) -> list[SpendingRow]:
    """Return what the agent has spent today, nothing if it never ran here."""
    path = state_dir(config) / "serialwatch.db"
    try:
        return read_once(path, partial(load_spending, day=day_of(time.time())))
    except StoreError:
        return []


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    place, slash, tail = rest.partition("/")
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{tail}"
