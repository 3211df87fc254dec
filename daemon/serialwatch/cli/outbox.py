"""What was typed and is still to be sent: in order, at the pace of the board, nothing dropped."""

from __future__ import annotations

import asyncio
from collections import deque

MAX_WAITING = 1024 * 1024  # bytes; then the keyboard is not read, which makes the terminal wait
MAX_UNDERWAY = 4096  # bytes sent that the daemon has not written to the board yet
_PART = 1024  # bytes a message: one second of a board at 9600 bit/s


class Outbox:
    """Keys and control messages for the daemon.

    The daemon answers for what it has written to the board (`arrived`); only so much is underway
    that whoever leaves, or breaks in, does not wait for a long paste.
    """

    def __init__(self) -> None:
        self._items: deque[bytes | str] = deque()
        self.waiting_bytes = 0  # keys that are not sent yet
        self.sent_bytes = 0  # all keys since the start,
        self._arrived_bytes = 0  # and so many of them are with the board
        self._until = 0  # keys stay here until the daemon asks for this; 0: they go
        self._change = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Tell whether no more keys should be read."""
        return self.waiting_bytes >= MAX_WAITING

    @property
    def underway_bytes(self) -> int:
        """Return how many keys are sent of which it is not known yet whether the board has them."""
        return self.sent_bytes - self._arrived_bytes

    @property
    def is_held_up(self) -> bool:
        """Tell whether keys wait for those before them to arrive."""
        keys = next((item for item in self._items if isinstance(item, bytes)), b"")
        return not self._may_go(keys)

    def put(self, item: bytes | str) -> None:
        """Add keys, or a control message; that goes before keys which are held up."""
        if isinstance(item, str) and self.is_held_up:
            ahead = next(n for n, each in enumerate(self._items) if isinstance(each, bytes))
            self._items.insert(ahead, item)
        elif isinstance(item, bytes):
            self._items.extend(item[at : at + _PART] for at in range(0, len(item), _PART))
            self.waiting_bytes += len(item)
        else:
            self._items.append(item)
        self._change.set()

    def arrived(self, sent_bytes: int) -> None:
        """Note that the first `sent_bytes` keys are with the board, or were refused."""
        self._arrived_bytes = max(self._arrived_bytes, sent_bytes)
        self._change.set()

    def drop_keys(self, until: int = 0) -> int:
        """Forget the keys that wait; return how many bytes they were.

        Those that come now wait until the daemon takes some again (`asked`).
        """
        self._until = until
        dropped, self.waiting_bytes = self.waiting_bytes, 0
        self._items = deque(item for item in self._items if isinstance(item, str))
        self._change.set()
        return dropped

    def asked(self, number: int) -> None:
        """Note that the daemon asks whether we know of a refusal."""
        if number == self._until:
            self._until = 0
            self._change.set()

    async def take(self) -> bytes | str:
        """Return what is sent next, as soon as it may go."""
        while not self._items or not self._may_go(self._items[0]):
            await self._changed()
        item = self._items.popleft()
        if isinstance(item, bytes):
            self.waiting_bytes -= len(item)
            self.sent_bytes += len(item)
        self._change.set()
        return item

    async def has_room(self) -> None:
        """Return when more keys may be read."""
        while self.is_full:
            await self._changed()

    async def is_empty(self) -> None:
        """Return when everything is sent, and all keys are with the board."""
        while self._items or self.underway_bytes:
            await self._changed()

    async def flows(self) -> None:
        """Return when nothing is held up."""
        while self.is_held_up:
            await self._changed()

    async def is_stuck(self, limit_s: float) -> None:
        """Return when keys were held up for so long and none arrived meanwhile."""
        while True:
            while not self.is_held_up:
                await self._changed()
            before = self._arrived_bytes
            try:
                async with asyncio.timeout(limit_s):
                    while self.is_held_up and self._arrived_bytes == before:
                        await self._changed()
            except TimeoutError:
                return

    async def _changed(self) -> None:
        self._change.clear()
        await self._change.wait()

    def _may_go(self, item: bytes | str) -> bool:
        has_room = self.underway_bytes + len(item) <= MAX_UNDERWAY
        return isinstance(item, str) or not item or (has_room and not self._until)
