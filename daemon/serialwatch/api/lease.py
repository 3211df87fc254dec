"""Who may type into a port: one client at a time, taken with the first key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serialwatch.api.bench import Who

LeaseChange = Literal["taken", "stolen", "released", "expired"]


@dataclass(frozen=True, slots=True)
class Holder:
    """The client that may type."""

    client: int
    who: Who


class Lease:
    """The write lease of one port. Times are seconds of a monotonic clock."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard_s = 0.0
        self.holder: Holder | None = None

    def take(self, holder: Holder, now_s: float) -> bool:
        """Give a free or expired lease to a client; False if another client has it."""
        if self.holder is not None and self.holder != holder and not self.is_stale(now_s):
            return False
        self.steal(holder, now_s)
        return True

    def steal(self, holder: Holder, now_s: float) -> None:
        """Give the lease to a client, whoever has it."""
        self.holder = holder
        self._heard_s = now_s

    def heard(self, client: int, now_s: float) -> None:
        """Note a sign of life of a client."""
        if self.is_held_by(client):
            self._heard_s = now_s

    def release(self, client: int) -> bool:
        """Free the lease if this client has it; tell whether it did."""
        if not self.is_held_by(client):
            return False
        self.holder = None
        return True

    def is_held_by(self, client: int) -> bool:
        """Tell whether this client may type now."""
        return self.holder is not None and self.holder.client == client

    def is_stale(self, now_s: float) -> bool:
        """Tell whether the client that has the lease has been silent for too long."""
        return self.holder is not None and now_s - self._heard_s > self._limit_s
