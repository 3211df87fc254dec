"""What stays of models from run to run: what they cost, can do and have answered.

Kept in the database through the core, read from it at the start. Importing it loads no client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.models.abilities import (
    CHECK_AGAIN_S,
    Abilities,
    abilities_from_json,
    abilities_to_json,
)
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.models.spending import Account, Caps, Spending, Spent, day_of
from serialwatch.agent.skills.results import RefusedError
from serialwatch.store.cached_answers import load_answer
from serialwatch.store.endpoints import EndpointRow, load_endpoints
from serialwatch.store.spending import SpendingRow, asked_lately, load_spending, session_tokens
from serialwatch.wire import Json, utc_ns

MAX_OUTBOX = 256  # things the core is to keep; the oldest are given up
SESSION_DAYS = 7  # for which the tokens of an incident are remembered

log = logging.getLogger(__name__)

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]  # of the core; raises CoreError


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """How models are asked, as it is configured."""

    base_url: str = ""
    model: str = ""
    api_key: str = field(default="", repr=False)
    cheap_model: str = ""  # for mechanical steps; "": the model itself
    temperature: float | None = 0.2
    context_tokens: int = 6144
    caps: Caps = field(default_factory=Caps)
    is_caching: bool = False
    is_redacting: bool = True
    redact_patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any], api_key: str) -> ModelSetup:
        """Read the part `agent` of the core's `hello`."""
        usual = cls()
        return cls(
            base_url=str(told.get("base_url") or ""),
            model=str(told.get("model") or ""),
            api_key=api_key,
            cheap_model=str(told.get("cheap_model") or ""),
            temperature=float(told.get("temperature", usual.temperature)),
            context_tokens=int(told.get("context_tokens", usual.context_tokens)),
            caps=Caps.of(told),
            is_caching=bool(told.get("cache", False)),
            is_redacting=bool(told.get("redact", True)),
            redact_patterns=tuple(map(str, told.get("redact_patterns") or ())),
        )


class ModelUse:
    """The models of the configuration, counted and remembered."""

    def __init__(self, setup: ModelSetup, archive: Archive, breaker: Breaker, ask: Ask) -> None:
        self.setup = setup
        self.breaker = breaker
        self._archive = archive
        self._ask = ask
        self._spending = Spending(setup.caps, self._on_spent)
        self._can: dict[str, tuple[Abilities, float]] = {}  # by model; since when, UTC
        self._unsent: dict[str, SpendingRow] = {}  # by model; what the core does not know yet
        self._outbox: deque[tuple[str, Json]] = deque(maxlen=MAX_OUTBOX)
        self._is_news = asyncio.Event()

    async def restore(self) -> None:
        """Take up what an earlier agent has left in the database; without one there is nothing."""
        now_ns = time.time_ns()
        try:
            past = await self._archive.ask(lambda archive: _past(archive, now_ns))
        except Exception:  # a database that cannot be read costs the memory, not the agent
            log.exception("what models have cost so far is not known")
            return
        if past is None:
            return
        tokens = sum(row.prompt_tokens + row.completion_tokens for row in past.spending)
        cost = sum(row.cost for row in past.spending)
        begun = [(utc_ns(at) / 1e9, session) for session, at in past.begun.items()]
        self._spending.restore(past.day, tokens, cost, begun, past.sessions)
        for row in past.endpoints:
            if row.base_url == self.setup.base_url:
                self._can[row.model] = (abilities_from_json(row.can), row.checked_utc_ns / 1e9)

    async def run(self) -> None:
        """Tell the core what there is to keep, until cancelled."""
        while True:
            await self._is_news.wait()
            self._is_news.clear()
            while self._outbox:
                op, body = self._outbox.popleft()
                try:
                    await self._ask(op, body)
                except CoreError as exc:
                    log.log(exc.level, "not stored: %s", exc)
            await self._send_spent()

    def refusal(self, session: str = "") -> str:
        """Return why no model may be asked about a session now; "" if one may."""
        return self.breaker.refusal() or self._spending.refusal(session)

    def account(self, session: str) -> Account:
        """Return the account of a run that begins."""
        return self._spending.account(session)

    def redactor(self) -> Redactor | None:
        """Return what hides the secrets of one run, None if they may be seen."""
        setup = self.setup
        return Redactor(setup.redact_patterns) if setup.is_redacting else None

    def can(self, model: str) -> Abilities:
        """Return what a model of the endpoint can do, as far as it is known and not too old."""
        can, since_s = self._can.get(model, (Abilities(), 0.0))
        return can if time.time() - since_s < CHECK_AGAIN_S else Abilities()

    def learned(self, model: str, can: Abilities) -> None:
        """Note what a model has shown."""
        self._can[model] = (can, time.time())
        body = {"base_url": self.setup.base_url, "model": model, "can": abilities_to_json(can)}
        self._tell("endpoint", body)

    async def cached(self, key: str) -> Json | None:
        """Return the answer that was kept under a key, None if there is none."""
        now_ns = time.time_ns()
        return await self._archive.ask(lambda archive: _answer(archive, key, now_ns))

    def keep(self, key: str, body: Json) -> None:
        """Keep an answer for a day."""
        self._tell("cached", {"key": key, "body": body})

    def _tell(self, op: str, body: Json) -> None:
        self._outbox.append((op, body))
        self._is_news.set()

    def _on_spent(self, spent: Spent) -> None:
        row = self._unsent.get(spent.model) or SpendingRow("", spent.model, 0, 0, 0, 0.0)
        self._unsent[spent.model] = replace(
            row,
            calls=row.calls + 1,
            prompt_tokens=row.prompt_tokens + spent.prompt_tokens,
            completion_tokens=row.completion_tokens + spent.completion_tokens,
            cost=row.cost + spent.cost,
        )
        self._is_news.set()

    async def _send_spent(self) -> None:
        """Tell the core what it does not know; what it does not take waits for the next time."""
        for model, row in list(self._unsent.items()):
            body = {
                "model": model,
                "calls": row.calls,
                "prompt_tokens": row.prompt_tokens,
                "completion_tokens": row.completion_tokens,
                "cost": row.cost,
            }
            try:
                await self._ask("spent", body)
            except CoreError as exc:
                log.log(exc.level, "what %s has cost is not stored yet: %s", model, exc)
                return
            self._settle(model, row)

    def _settle(self, model: str, told: SpendingRow) -> None:
        """Take off what the core knows now; more may have come meanwhile."""
        row = self._unsent.pop(model)
        if row.calls > told.calls:
            self._unsent[model] = replace(
                row,
                calls=row.calls - told.calls,
                prompt_tokens=row.prompt_tokens - told.prompt_tokens,
                completion_tokens=row.completion_tokens - told.completion_tokens,
                cost=row.cost - told.cost,
            )


@dataclass(frozen=True, slots=True)
class _Past:
    day: str
    spending: list[SpendingRow]
    begun: dict[str, str]  # when each session of the last hour was last asked about
    sessions: dict[str, int]  # tokens of each
    endpoints: list[EndpointRow]


def _past(archive: Archive, now_ns: int) -> _Past | None:
    try:
        database = archive.database
    except RefusedError:
        return None
    if database is None:
        return None
    day = day_of(now_ns / 1e9)
    return _Past(
        day,
        load_spending(database, day),
        asked_lately(database, now_ns),
        session_tokens(database, now_ns - SESSION_DAYS * 24 * 3600 * 1_000_000_000),
        load_endpoints(database),
    )


def _answer(archive: Archive, key: str, now_ns: int) -> Json | None:
    try:
        database = archive.database
    except RefusedError:
        return None
    return load_answer(database, key, now_ns) if database is not None else None
