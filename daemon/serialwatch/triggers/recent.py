"""The newest lines of a port, and the newest kernel time seen in them."""

from __future__ import annotations

import re
from collections import deque

from serialwatch.records import Lines
from serialwatch.triggers.moments import Moment

_KEPT_BYTES = 128 * 1024
_EXACT_BYTES = 32 * 1024  # so far back, and up to twice as far, each stamp is looked at
_TAIL_BYTES = 4096
_BLANK_LINES = 4  # that may stand between a line and the garbage behind it
_OLD_S = 5  # a stamp that is older than the newest by more is out of order
_REPLAYS = re.compile(rb"\b(?:dmesg|logread|journalctl|kmsg|syslog|messages|kern\.log)\b")
_RECORD_NAMES = (b"pstore", b"ramoops", b"last_kmsg")  # what a kernel leaves for the next one
_RECORD_ASKED = re.compile(
    rb"^([^\n]{0,80}?[#$>]) ?[a-z][^\n]*(?:pstore|ramoops|last_kmsg)", re.MULTILINE
)
_REPLAY_FORM = re.compile(rb"^[a-z]{3,8} *:[a-z]{3,7} *: ?\[")  # dmesg -x
_STAMP = re.compile(rb"^(?:<\d{1,3}>)?\[ {0,8}(\d{1,8})\.\d{6}\]", re.MULTILINE)
_STAMP_BELOW = re.compile(rb"\n(?:<\d{1,3}>)?\[ {0,8}(\d{1,8})\.\d{6}\]")  # searched twice as fast
_STAMP_ANYWHERE = re.compile(rb"(?:^|[>\] :\r\t,'\"])\[ {0,8}(\d{1,8}\.\d{6})\]")
_NONE = -1


def kernel_stamp_s(line: bytes) -> float | None:
    """Return the kernel time in front of a line, behind any other prefixes."""
    found = _STAMP_ANYWHERE.search(line, 0, 200)
    return float(found[1]) if found else None


class Recent:
    """Chunks of the match view, the newest 128 KiB and more; the last one is being judged."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._last_seq = 0  # first line of the last chunk
        self._newest = Lines(1, 0, b"", 0, 0)
        self._earlier: tuple[Lines, ...] = ()  # those before; a line in pieces may begin in them
        self.torn = 0  # so many lines before, the line that is judged began
        # The highest kernel time, whole seconds: of all chunks but the newest ones, so many, that
        # were not looked at yet, and of the last one up to an offset.
        self._newest_s = _NONE
        self._unlooked = 0
        self._unlooked_bytes = 0
        self._looked_to = 0
        self._looked_s = _NONE
        self._anew_from = 0  # where in the last chunk the kernel's clock started anew
        self._is_replaying = False
        # Chunks that came, those in which `dmesg` was looked for, and the newest that has it.
        self._fed = self._asked_to = self._asked_last = 0
        self._records_to = self._record_last = 0  # the same of a record of an earlier fault

    def fed(self, lines: Lines, view: bytes) -> None:
        """Take a chunk of complete lines."""
        self._earlier = (*self._earlier[-1:], self._newest)
        self._newest = lines
        if self._anew_from:
            self._newest_s = max(self._newest_s, _highest(self._chunks[-1], self._anew_from))
            self._anew_from = 0
        elif self._chunks:
            self._unlooked += 1
            self._unlooked_bytes += len(self._chunks[-1])
            if self._unlooked_bytes > 2 * _EXACT_BYTES:
                self._look_roughly()
        if self._bytes > 2 * _KEPT_BYTES:
            self._drop()
        self._chunks.append(view)
        self._fed += 1
        self._bytes += len(view)
        self._last_seq = lines.first_seq
        self._looked_to = 0
        self._looked_s = _NONE

    @property
    def end(self) -> int:
        """Return the offset behind the newest line."""
        return len(self._chunks[-1]) if self._chunks else 0

    def lines_before(self, offset: int, count: int) -> list[bytes]:
        """Return up to so many lines before the one that starts at `offset` of the last chunk."""
        lines = self._lines_before(offset, count + self.torn)
        return lines[: len(lines) - self.torn]

    def _lines_before(self, offset: int, count: int) -> list[bytes]:
        found: list[bytes] = []
        for number, view in enumerate(reversed(self._chunks)):
            end = len(view) if number else offset
            while end > 0 and len(found) < count:
                start = view.rfind(b"\n", 0, end - 1) + 1
                found.append(view[start : end - 1])
                end = start
            if len(found) == count:
                break
        return found[::-1]

    def lines_between(self, first_seq: int, last_seq: int) -> list[bytes]:
        """Return the lines of these numbers, as far as they are kept."""
        found: list[bytes] = []
        seq = self._last_seq
        for number, view in enumerate(reversed(self._chunks)):
            lines = view.split(b"\n")[:-1]
            seq -= len(lines) if number else 0
            found[:0] = lines[max(0, first_seq - seq) : max(0, last_seq + 1 - seq)]
            if seq <= first_seq:
                break
        return found

    def said_before(
        self, first_seq: int, view: bytes, seq: int, count: int
    ) -> list[tuple[int, bytes]]:
        """Return lines before `seq` that are not blank; `view` is the newest chunk."""
        offset = self.end
        if view:
            offset = sum(len(line) + 1 for line in view.split(b"\n")[: seq - first_seq])
        lines = self.lines_before(offset, count + _BLANK_LINES)
        numbered = enumerate(lines, seq - len(lines))
        return [(number, line) for number, line in numbered if line.strip()][-count:]

    def begun_at(self, seq: int, lines: Lines) -> Moment:
        """Return when a line began that ends in the newest lines: a line is as old as that."""
        for earlier in self._earlier:
            if seq < earlier.first_seq + earlier.count:
                return Moment(seq, earlier.mono_ns, earlier.utc_ns, until_ns=lines.mono_ns)
        return Moment(seq, lines.mono_ns, lines.utc_ns)

    def line_behind(self, offset: int, behind: bytes) -> bytes:
        """Return the line after the one at `offset` of the last chunk; `behind` is after that."""
        view = self._chunks[-1] if self._chunks else b""
        end = view.find(b"\n", offset)
        if end < 0 or self.torn or b"\r" in view[offset:end].rstrip(b"\r"):
            return b""
        next_end = view.find(b"\n", end + 1)
        return behind if next_end < 0 else view[end + 1 : next_end]

    def last_line(self) -> tuple[bytes, int]:
        """Return the newest line that is not blank, and its seq; b"" and 0 if there is none."""
        seq = self._last_seq
        for number, view in enumerate(reversed(self._chunks)):
            lines = view.split(b"\n")[:-1]
            if number:
                seq -= len(lines)
            for index in range(len(lines) - 1, -1, -1):
                if lines[index].strip():
                    return lines[index], seq + index
        return b"", 0

    def is_replay(self, line: bytes, offset: int) -> bool:
        """Tell whether a stamped line, at `offset` of the last chunk, was printed by `dmesg`.

        An old stamp alone may be a kernel whose restart went unseen; then the clock starts anew.
        """
        if _REPLAY_FORM.match(line):  # unless the whole log is one that `dmesg -x` has written
            return self._newest_before(offset) != _NONE or self._has_been_asked(offset)
        stamp_s = kernel_stamp_s(line)
        newest_s = self._newest_before(offset)
        if stamp_s is None:
            return False
        if self._is_of_record(offset):
            return True
        if newest_s - stamp_s <= _OLD_S:  # whoever asks right after a fault sees it again
            return stamp_s < newest_s + 1 and self._is_printed_again(line, offset)
        if self._asked_for_it(offset, newest_s - _OLD_S):
            return True
        self.forget_stamps(offset)
        return False

    def _is_printed_again(self, line: bytes, offset: int) -> bool:
        """Tell whether this very line, stamp and all, stands before a `dmesg` as well."""
        kept = len(self._chunks)
        if self._asked_to < self._fed:  # once a chunk: in a flood each line would look
            for number in range(max(0, self._asked_to - (self._fed - kept)), kept):
                if b"dmesg" in self._chunks[number]:
                    self._asked_last = self._fed - kept + number + 1
            self._asked_to = self._fed
        if self._asked_last <= self._fed - kept:
            return False
        has_asked = False
        for number, view in enumerate(reversed(self._chunks)):
            end = len(view) if number else offset
            if not has_asked:
                end = max(0, view.rfind(b"dmesg", 0, end))
                has_asked = end > 0
            if has_asked and view.find(line, 0, end) >= 0:
                return True
        return False

    def _is_of_record(self, offset: int) -> bool:
        """Tell whether `cat` prints there what an earlier kernel left, up to the next prompt."""
        gone = self._fed - len(self._chunks)
        for number in range(max(self._records_to, gone), self._fed):
            chunk = self._chunks[number - gone]
            if any(name in chunk for name in _RECORD_NAMES) and _RECORD_ASKED.search(chunk):
                self._record_last = number + 1
        self._records_to = self._fed
        if self._record_last <= gone:
            return False
        between = b""
        for number, view in enumerate(reversed(self._chunks)):
            end = len(view) if number else offset
            asked = list(_RECORD_ASKED.finditer(view, 0, end))
            if asked:
                between = view[asked[-1].end() : end] + between
                return b"\n" + asked[-1][1] not in between
            between = view[:end] + between
        return False

    def _has_been_asked(self, offset: int) -> bool:
        """Tell whether `dmesg` stands somewhere before an offset of the last chunk."""
        newest = len(self._chunks) - 1
        return any(
            b"dmesg" in (view[:offset] if number == newest else view)
            for number, view in enumerate(self._chunks)
        )

    def _asked_for_it(self, offset: int, live_s: int) -> bool:
        """Tell whether the log was asked for after the last line with a stamp from `live_s` on."""
        between = b""  # what came after that line, without what is older
        for number, view in enumerate(reversed(self._chunks)):
            end = len(view) if number else offset
            live = None
            for stamp in _STAMP.finditer(view, 0, end):
                if int(stamp[1]) >= live_s:
                    live = stamp
            start = view.find(b"\n", live.start()) + 1 if live else 0
            between = view[start : min(end, start + _TAIL_BYTES)] + between
            if live:
                first_old = _STAMP.search(between)
                asked = between[: first_old.start()] if first_old else between
                self._is_replaying = bool(_REPLAYS.search(asked))
                break
        return self._is_replaying

    def _newest_before(self, offset: int) -> int:
        """Return the highest kernel time before an offset of the last chunk, -1 for none."""
        newest = len(self._chunks) - 1
        for index in range(newest - self._unlooked, newest):
            self._newest_s = max(self._newest_s, _highest(self._chunks[index]))
        self._unlooked = self._unlooked_bytes = 0
        if self._chunks and offset > self._looked_to:
            here = _highest(self._chunks[-1], self._looked_to, offset)
            self._looked_s = max(self._looked_s, here)
            self._looked_to = offset
        return max(self._newest_s, self._looked_s)

    def forget_stamps(self, offset: int) -> None:
        """Note that the kernel's clock starts anew at an offset of the last chunk."""
        self._newest_s = self._looked_s = _NONE
        self._unlooked = self._unlooked_bytes = 0
        self._looked_to = self._anew_from = offset
        self._is_replaying = False

    def _look_roughly(self) -> None:
        """Look at the oldest chunks that were not looked at, before a fault must wait for it."""
        views = []
        while self._unlooked_bytes > _EXACT_BYTES:
            view = self._chunks[-self._unlooked]
            views.append(view)
            self._unlooked -= 1
            self._unlooked_bytes -= len(view)
        self._newest_s = max(self._newest_s, _highest_roughly(views))

    def _drop(self) -> None:
        while self._bytes > _KEPT_BYTES and len(self._chunks) > self._unlooked + 1:
            self._bytes -= len(self._chunks.popleft())


def _highest(text: bytes, start: int = 0, end: int | None = None) -> int:
    """Return the highest stamp in whole lines, from the start of one on."""
    end = len(text) if end is None else end
    first = _STAMP.match(text, start, end)
    below = max(map(int, _STAMP_BELOW.findall(text, start, end)), default=_NONE)
    return max(int(first[1]), below) if first else below


def _highest_roughly(views: list[bytes]) -> int:
    """Return the last stamp unless the first is higher: then something was printed again."""
    first = _STAMP.search(views[0], 0, _TAIL_BYTES)
    last = _highest(views[-1], max(0, len(views[-1]) - _TAIL_BYTES))
    if first is None or last >= int(first[1]):
        return last
    return max(map(_highest, views))
