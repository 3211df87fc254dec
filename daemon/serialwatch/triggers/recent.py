"""The newest lines of a port, and the newest kernel time seen in them."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

_KEPT_BYTES = 128 * 1024
_TAIL_BYTES = 4096
_OLD_S = 5  # a stamp that is older than the newest by more is out of order
_REPLAYS = re.compile(rb"\b(?:dmesg|logread|journalctl|kmsg|syslog|messages|kern\.log)\b")
_REPLAY_FORM = re.compile(rb"^[a-z]{3,8} *:[a-z]{3,7} *: ?\[")  # dmesg -x
_STAMP = re.compile(rb"^(?:<\d{1,3}>)?\[ {0,8}(\d{1,8})\.\d{6}\]", re.MULTILINE)
_STAMP_ANYWHERE = re.compile(rb"(?:^|[>\] :\r])\[ {0,8}(\d{1,8}\.\d{6})\]")
_NONE = -1


def kernel_stamp_s(line: bytes) -> float | None:
    """Return the kernel time in front of a line, behind any other prefixes."""
    found = _STAMP_ANYWHERE.search(line, 0, 200)
    return float(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class _Chunk:
    first_seq: int
    view: bytes


class Recent:
    """Chunks of the match view, the newest 128 KiB and more; the last one is being judged."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._bytes = 0
        # The highest kernel time, whole seconds: of all chunks but those not looked at yet, and of
        # the last one up to an offset.
        self._newest_s = _NONE
        self._unlooked: deque[_Chunk] = deque()
        self._looked_to = 0
        self._looked_s = _NONE
        self._is_replaying = False

    def fed(self, first_seq: int, view: bytes) -> None:
        """Take a chunk of complete lines."""
        if self._chunks:
            self._unlooked.append(self._chunks[-1])
        if self._bytes > 2 * _KEPT_BYTES:
            self._drop()
        self._chunks.append(_Chunk(first_seq, view))
        self._bytes += len(view)
        self._looked_to = 0
        self._looked_s = _NONE

    @property
    def end(self) -> int:
        """Return the offset behind the newest line."""
        return len(self._chunks[-1].view) if self._chunks else 0

    def lines_before(self, offset: int, count: int) -> list[bytes]:
        """Return up to so many lines before the one that starts at `offset` of the last chunk."""
        found: list[bytes] = []
        for chunk in reversed(self._chunks):
            end = offset if chunk is self._chunks[-1] else len(chunk.view)
            while end > 0 and len(found) < count:
                start = chunk.view.rfind(b"\n", 0, end - 1) + 1
                found.append(chunk.view[start : end - 1])
                end = start
        return found[::-1]

    def last_line(self) -> tuple[bytes, int]:
        """Return the newest line that is not blank, and its seq; b"" and 0 if there is none."""
        for chunk in reversed(self._chunks):
            lines = chunk.view.split(b"\n")[:-1]
            for number in range(len(lines) - 1, -1, -1):
                if lines[number].strip():
                    return lines[number], chunk.first_seq + number
        return b"", 0

    def is_replay(self, line: bytes, offset: int) -> bool:
        """Tell whether a stamped line, at `offset` of the last chunk, was printed by `dmesg`.

        An old stamp alone may be a kernel whose restart went unseen; then the clock starts anew.
        """
        if _REPLAY_FORM.match(line):
            return True
        stamp_s = kernel_stamp_s(line)
        newest_s = self._newest_before(offset)
        if stamp_s is None or newest_s - stamp_s <= _OLD_S:
            return False
        if self._asked_for_it(offset, newest_s - _OLD_S):
            return True
        self.forget_stamps(offset)
        return False

    def _asked_for_it(self, offset: int, live_s: int) -> bool:
        """Tell whether the log was asked for after the last line with a stamp from `live_s` on."""
        between = b""  # what came after that line, without what is older
        for chunk in reversed(self._chunks):
            end = offset if chunk is self._chunks[-1] else len(chunk.view)
            live = None
            for stamp in _STAMP.finditer(chunk.view, 0, end):
                if int(stamp[1]) >= live_s:
                    live = stamp
            start = chunk.view.find(b"\n", live.start()) + 1 if live else 0
            between = chunk.view[start : min(end, start + _TAIL_BYTES)] + between
            if live:
                first_old = _STAMP.search(between)
                asked = between[: first_old.start()] if first_old else between
                self._is_replaying = bool(_REPLAYS.search(asked))
                break
        return self._is_replaying

    def _newest_before(self, offset: int) -> int:
        """Return the highest kernel time before an offset of the last chunk, -1 for none."""
        while self._unlooked:
            self._newest_s = max(self._newest_s, _highest(self._unlooked.popleft().view))
        if self._chunks and offset > self._looked_to:
            here = _highest(self._chunks[-1].view, self._looked_to, offset)
            self._looked_s = max(self._looked_s, here)
            self._looked_to = offset
        return max(self._newest_s, self._looked_s)

    def forget_stamps(self, offset: int) -> None:
        """Note that the kernel's clock starts anew at an offset of the last chunk."""
        self._newest_s = self._looked_s = _NONE
        self._unlooked.clear()
        self._looked_to = offset

    def _drop(self) -> None:
        dropped = []
        while self._bytes > _KEPT_BYTES and self._chunks:
            chunk = self._chunks.popleft()
            self._bytes -= len(chunk.view)
            if self._unlooked and self._unlooked[0] is chunk:
                dropped.append(self._unlooked.popleft().view)
        self._newest_s = max(self._newest_s, _highest_roughly(b"".join(dropped)))


def _highest(text: bytes, start: int = 0, end: int | None = None) -> int:
    stamps = _STAMP.finditer(text, start, len(text) if end is None else end)
    return max((int(stamp[1]) for stamp in stamps), default=_NONE)


def _highest_roughly(text: bytes) -> int:
    """Return the last stamp unless the first is higher: then something was printed again."""
    first = _STAMP.search(text, 0, _TAIL_BYTES)
    last = _highest(text, max(0, len(text) - _TAIL_BYTES))
    if first is None or last >= int(first[1]):
        return last
    return _highest(text)
