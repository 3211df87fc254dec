"""Which lines of a board show what was sent to it, and by whom: a report may name them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_KEPT = 20  # lines a port


@dataclass(frozen=True, slots=True)
class Sent:
    """Somebody sent something with `serialwatch send` or by the API."""

    seq: int  # the line that was unfinished then: a prompt, which shows what was typed
    user: str


class SentLines:
    """The newest of them, by port."""

    def __init__(self) -> None:
        self._wrote: dict[str, dict[int, None]] = {}  # of a send that goes on
        self._sent: dict[str, deque[Sent]] = {}

    def wrote(self, port: str, seq: int) -> None:
        """Note a part of a send, and the line that was unfinished then."""
        self._wrote.setdefault(port, {})[seq] = None

    def ended(self, port: str, user: str, *, has_sent: bool) -> None:
        """Note that a send is over, and whose it was."""
        wrote = self._wrote.pop(port, {})
        if has_sent:
            sent = self._sent.setdefault(port, deque(maxlen=_KEPT))
            sent.extend(Sent(seq, user) for seq in wrote)

    def of(self, port: str) -> Sequence[Sent]:
        """Return what was sent to a port lately, the newest last."""
        return tuple(self._sent.get(port, ()))
