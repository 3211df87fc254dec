"""How many tokens a prompt has: guessed from its characters, put right by what endpoints count."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from serialwatch.wire import Json

DEVICE_CHARS = 2.2  # a token of console text: numbers, addresses, names
PROSE_CHARS = 3.8  # of English and JSON
MESSAGE_TOKENS = 4  # of the frame around a message
SHARE = 0.3  # of a new count in the average
LEAST, MOST = 0.6, 2.0  # a count outside of this share of the guess is not believed


class Estimator:
    """Guesses for one model; `factor` is how much more its endpoint counts than we guess."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def text(self, text: str, nonce: str) -> int:
        """Return the tokens of a text; lines behind the mark `nonce` were printed by a device."""
        return math.ceil(self._raw(text, nonce) * self.factor)

    def request(self, messages: Iterable[Json], tools: Sequence[Json], nonce: str) -> int:
        """Return the tokens of a whole request, with the schemas of its tools."""
        return math.ceil(self._request(messages, tools, nonce) * self.factor)

    def learn(self, messages: Iterable[Json], tools: Sequence[Json], nonce: str, told: int) -> None:
        """Note how many tokens the endpoint counted."""
        share = told / max(1.0, self._request(messages, tools, nonce))
        if LEAST <= share <= MOST:
            self.factor += SHARE * (share - self.factor)

    def _request(self, messages: Iterable[Json], tools: Sequence[Json], nonce: str) -> float:
        size = len(json.dumps(tools, separators=(",", ":"))) / PROSE_CHARS if tools else 0.0
        for message in messages:
            size += MESSAGE_TOKENS + self._raw(message.get("content") or "", nonce)
            if calls := message.get("tool_calls"):
                size += len(json.dumps(calls, separators=(",", ":"))) / PROSE_CHARS
        return size

    def _raw(self, text: str, nonce: str) -> float:
        mark = f"{nonce}:"
        size = 0.0
        for line in text.split("\n"):
            chars = DEVICE_CHARS if line.startswith(mark) else PROSE_CHARS
            size += (len(line) + 1) / chars
        return size
