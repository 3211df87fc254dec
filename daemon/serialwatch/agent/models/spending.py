"""What asking models costs: counted by run and by day, and kept within the configured caps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

HOUR_S = 3600.0
MAX_SESSIONS = 512  # whose tokens are remembered; the oldest are forgotten first


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent, and what a token costs; 0 is no cap, or a price that is not known."""

    tokens_per_incident: int = 48_000
    tokens_per_day: int = 400_000
    incidents_per_hour: int = 12
    price_in: float = 0.0  # for a million tokens of prompts
    price_out: float = 0.0  # for a million tokens of answers
    cheap_model: str = ""  # which has prices of its own
    cheap_price_in: float | None = None  # likewise; None: as the other model
    cheap_price_out: float | None = None
    cost_per_day: float = 0.0

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Caps:
        """Read them from the core's `hello`."""
        usual = cls()
        return cls(
            tokens_per_incident=int(told.get("tokens_per_incident", usual.tokens_per_incident)),
            tokens_per_day=int(told.get("tokens_per_day", usual.tokens_per_day)),
            incidents_per_hour=int(told.get("incidents_per_hour", usual.incidents_per_hour)),
            price_in=float(told.get("price_in", 0.0)),
            price_out=float(told.get("price_out", 0.0)),
            cheap_model=str(told.get("cheap_model") or ""),
            cheap_price_in=_price(told.get("cheap_price_in")),
            cheap_price_out=_price(told.get("cheap_price_out")),
            cost_per_day=float(told.get("cost_per_day", 0.0)),
        )

    def price(self, prompt_tokens: int, completion_tokens: int, model: str = "") -> float:
        """Return what these tokens of a model cost, 0 where no price is known."""
        price_in, price_out = self.price_in, self.price_out
        if model and model == self.cheap_model:
            price_in = price_in if self.cheap_price_in is None else self.cheap_price_in
            price_out = price_out if self.cheap_price_out is None else self.cheap_price_out
        return (prompt_tokens * price_in + completion_tokens * price_out) / 1e6


def _price(told: Any) -> float | None:
    return None if told is None else float(told)


@dataclass(frozen=True, slots=True)
class Spent:
    """One request that was billed."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    cost: float

    @property
    def tokens(self) -> int:
        """Return both kinds together."""
        return self.prompt_tokens + self.completion_tokens

    def with_more(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(
            self.model,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


class Spending:
    """Counts what models cost and says when it is enough. `clock` is UTC in seconds."""

    def __init__(
        self,
        caps: Caps,
        on_spent: Callable[[Spent], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.caps = caps
        self._on_spent = on_spent
        self._clock = clock
        self._day = ""
        self._tokens = 0  # of the day
        self._cost = 0.0
        self._sessions: dict[str, int] = {}  # tokens by session, the oldest first
        self._begun: deque[tuple[float, str]] = deque()  # sessions of the last hour

    def restore(
        self,
        day: str,
        tokens: int,
        cost: float,
        begun: Iterable[tuple[float, str]] = (),
        sessions: Mapping[str, int] | None = None,
    ) -> None:
        """Take up what an earlier agent had spent on `day` and whom it had asked about."""
        self._turn_day()
        if day == self._day:
            self._tokens += tokens
            self._cost += cost
        self._begun.extendleft(sorted(begun, reverse=True))
        for session, spent in (sessions or {}).items():
            self._sessions[session] = self._sessions.get(session, 0) + spent

    def refusal(self, session: str = "") -> str:
        """Return why no model may be asked about a session now; "" if one may."""
        return self._spent_up(0) or self._too_often(session) or self._session_over(session)

    def account(self, session: str) -> Account:
        """Begin to ask about a session such as `incident-7`; it counts for the hour.

        Where that is one too many, the account refuses every request.
        """
        if not self._is_begun(session) and not self._too_often(session):
            self._begun.append((self._clock(), session))
        return Account(self, session)

    def refused(self, session: str, tokens: int) -> str:
        """Return why a request of so many tokens may not go out; "" if it may."""
        return self._spent_up(tokens) or self._session_over(session) or self._too_often(session)

    def _session_over(self, session: str) -> str:
        """Look at what is spent only: how much a run still needs, it knows better itself."""
        limit, spent = self.caps.tokens_per_incident, self._sessions.get(session, 0)
        if limit and spent >= limit:
            return f"its budget of {limit} tokens is spent"
        return ""

    def _spent_up(self, tokens: int) -> str:
        self._turn_day()
        caps = self.caps
        if caps.tokens_per_day and self._tokens + tokens >= caps.tokens_per_day:
            return (
                f"the budget of {caps.tokens_per_day} tokens a day is spent; it is new at 00:00 UTC"
            )
        if caps.cost_per_day and self._cost + caps.price(tokens, 0) >= caps.cost_per_day:
            return f"the {caps.cost_per_day:g} that a day may cost are spent; new at 00:00 UTC"
        return ""

    def _too_often(self, session: str) -> str:
        limit = self.caps.incidents_per_hour
        if limit and not self._is_begun(session) and len(self._begun) >= limit:
            return f"a model was asked about {limit} incidents within the last hour"
        return ""

    def _is_begun(self, session: str) -> bool:
        oldest_s = self._clock() - HOUR_S
        while self._begun and self._begun[0][0] < oldest_s:
            self._begun.popleft()
        return any(session == other for _, other in self._begun)

    def take(self, session: str, spent: Spent) -> None:
        """Count a request."""
        self._turn_day()
        self._tokens += spent.tokens
        self._cost += spent.cost
        self._sessions[session] = self._sessions.pop(session, 0) + spent.tokens
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._on_spent(spent)

    def _turn_day(self) -> None:
        day = day_of(self._clock())
        if day != self._day:
            self._day, self._tokens, self._cost = day, 0, 0.0


class Account:
    """What one run spends. Each request asks it first and tells it afterwards."""

    def __init__(self, spending: Spending, session: str) -> None:
        self._spending = spending
        self._session = session
        self.tokens = 0  # of this run, with what came back broken
        self.price = 0.0  # in the currency of the prices, 0 if they are not known
        self.models: dict[str, Spent] = {}  # the same, by model

    def refusal(self, tokens: int) -> str:
        """Return why a request of about so many tokens may not go out; "" if it may."""
        return self._spending.refused(self._session, tokens)

    def spent(self, model: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Count what a request was billed."""
        cost = self._spending.caps.price(prompt_tokens, completion_tokens, model)
        spent = Spent(model, prompt_tokens, completion_tokens, cost)
        before = self.models.get(model) or Spent(model, 0, 0, 0.0)
        self.models[model] = before.with_more(spent)
        self.tokens += spent.tokens
        self.price += cost
        self._spending.take(self._session, spent)


def unlimited(prices: Caps | None = None) -> Account:
    """Return an account without caps, for whoever asks by hand."""
    caps = replace(prices or Caps(), tokens_per_incident=0, tokens_per_day=0, incidents_per_hour=0)
    return Spending(replace(caps, cost_per_day=0.0)).account("")


def day_of(utc_s: float) -> str:
    """Return the UTC day of a time, e.g. 2026-06-22."""
    return datetime.fromtimestamp(utc_s, UTC).strftime("%Y-%m-%d")
