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
    """The write lease of one port."""

    def __init__(self) -> None:
        self.holder: Holder | None = None

    def take(self, holder: Holder) -> bool:
        """Give a free lease to a client; False if another client has it."""
        if self.holder is None:
            self.holder = holder
        return self.holder == holder

    def steal(self, holder: Holder) -> None:
        """Give the lease to a client, whoever has it."""
        self.holder = holder

    def release(self, client: int) -> bool:
        """Free the lease if this client has it; tell whether it did."""
        if not self.is_held_by(client):
            return False
        self.holder = None
        return True

    def is_held_by(self, client: int) -> bool:
        """Tell whether this client may type now."""
        return self.holder is not None and self.holder.client == client
