"""What an attached person sees: the board's own text, and our messages between two dashes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.cells import cell_len

from serialwatch.api.bench import PortView, port_from_json
from serialwatch.cli.escapes import Allowed, EscapeFilter
from serialwatch.cli.ports import short_device, why_not_up
from serialwatch.cli.tables import safe, shorten, wrapped
from serialwatch.cli.times import span
from serialwatch.wire import Json

HELP = (
    "Ctrl-T q  leave (also ~. at the start of a line)",
    "Ctrl-T b  send a break",
    "Ctrl-T d  set DTR on or off",
    "Ctrl-T r  set RTS on or off",
    "Ctrl-T m  set a marker in the log",
    "Ctrl-T w  take the write lease, from another person too",
    "Ctrl-T Ctrl-T  send Ctrl-T itself",
)
# What a board may have changed is put back: character set, bracketed paste, colours, cursor, and
# the scroll region, which loses the cursor's place if that is not saved.
RESTORE = b"\x0f\x1b[?2004l\x1b[0m\x1b[?25h\x1b7\x1b[r\x1b8"
RESTORE_RAW = (
    RESTORE + b"\x1b(B\x1b[?1l\x1b>\x1b[?7h\x1b[4l"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l"
)
_LEAVE_ALTERNATE = b"\x1b[?1049l"
_ALTERNATE = re.compile(rb"\x1b\[\?(?:\d+;)*(?:1049|1047|47)(?:;\d+)*([hl])")
_ALTERNATE_BYTES = 32  # of it at most; a longer one is not looked for
_FRAME = "── {} ──"
_LEAST_TITLE = 10  # columns of an incident's title
_LEAST_MESSAGE = 20  # columns
_MAX_REPEATED = 512  # bytes of an unfinished line that are shown again after a message


class AttachedView:
    """Turns messages of the daemon into bytes for the terminal."""

    def __init__(
        self,
        show: Callable[[bytes], None],
        *,
        is_raw: bool,
        has_colour: bool,
        width: Callable[[], int],  # columns of the terminal now
    ) -> None:
        self._show = show
        self._filter = None if is_raw else EscapeFilter(Allowed.SCREEN)
        self._has_colour = has_colour
        self._width = width
        self._line = b""  # what the board has printed since its last line end
        self._scrollback = 0  # bytes of it still to come
        self._state = ""
        self._was_up = False
        self._end = b""  # of what was shown as it came
        self._is_alternate = False  # the board has switched to the other screen, as vi does
        self.port = ""

    @property
    def restore(self) -> bytes:
        """Return what puts the terminal back as the board should have left it."""
        if self._filter is not None:
            return RESTORE
        # Not without need: it moves the cursor where nobody has saved one.
        return (_LEAVE_ALTERNATE if self._is_alternate else b"") + RESTORE_RAW

    def board(self, data: bytes) -> None:
        """Show what the board prints."""
        if self._scrollback:
            old, data = data[: self._scrollback], data[self._scrollback :]
            self._scrollback -= len(old)
            self._print(old)
            if not self._scrollback:
                self._allow(Allowed.SCREEN)
                self.say("live")
        if data:
            self._print(data)

    def say(self, *texts: str) -> None:
        """Show messages of ours on lines of their own, then the unfinished line again."""
        shown = bytearray(b"\r\n" if self._line else b"\r")
        room = max(_LEAST_MESSAGE, self._width() - cell_len(_FRAME.format("")))
        for row in (row for text in texts for row in wrapped("", text, room)):
            line = _FRAME.format(row.plain).encode(errors="replace")
            shown += b"\x1b[2m" + line + b"\x1b[22m" if self._has_colour else line
            shown += b"\r\n"
        if len(self._line) <= _MAX_REPEATED and b"\x1b" not in self._line:
            shown += self._line
        self._show(bytes(shown))

    def hello(self, hello: Json) -> None:
        """Show the header; what comes next is the scrollback."""
        port = port_from_json(hello["port"])
        self.port, self._state, self._was_up = port.name, port.state, port.state == "up"
        for line in header_lines(port, hello, self._width(), time.time_ns()):
            self._show(line.encode(errors="replace") + b"\r\n")
        self._scrollback = hello["scrollback"]
        if self._scrollback:
            self._allow(Allowed.LINES)  # it must not clear the header away
        self.say("what came last" if self._scrollback else "live")

    def control(self, what: str, body: Any) -> None:
        """Show a control message."""
        texts = list(self._words(what, body))
        if texts and what == "state" and self._state != "up":
            self._end_line()
        for text in texts:
            self.say(text)

    def _words(self, what: str, body: Any) -> Iterator[str]:
        match what:
            case "lag":
                self._scrollback = 0
                self._allow(Allowed.SCREEN)
                yield (
                    f"{body:,} bytes skipped: this terminal was too slow; "
                    f"`serialwatch logs {self.port}` has them"
                )
            case "state":
                yield from self._state_words(port_from_json(body))
            case "lease":
                yield _lease_words(body)
            case "done":
                if "break" in body:
                    yield "break sent"
                for line, is_on in body.get("lines", {}).items():
                    yield f"{safe(line.upper())} set {'on' if is_on else 'off'}"
            case "marker" if _is_news(body):
                yield f"marker by {safe(body['who'])}: {safe(body['text'])}"
            case "incident":
                start = f"incident {body['id']}: {body['severity']}: "
                end = f" → serialwatch report {body['id']}"
                room = self._width() - len(_FRAME.format(start + end))
                yield start + shorten(safe(body["title"]), max(_LEAST_TITLE, room)) + end
            case "error":
                if body["code"] == "not_found":
                    self._state = "removed"
                hint = f": {safe(body['hint'])}" if body["hint"] else ""
                yield f"not done: {safe(body['message'])}{hint}"

    def _state_words(self, port: PortView) -> Iterator[str]:
        if port.state == self._state:
            return
        was, self._state = self._state, port.state
        if port.state == "up":
            yield f"{port.name} is {'back' if self._was_up or was != 'opening' else 'up'}"
            self._was_up = True
        elif port.state != "opening":
            why = why_not_up(port)
            yield f"{port.name} is {port.state}{f': {why}' if why else ''}; this stays attached"

    def _end_line(self) -> None:
        """Leave the unfinished line as it is: nothing will continue it."""
        if self._line:
            self._show(b"\r\n")
            self._line = b""

    def _allow(self, allowed: Allowed) -> None:
        if self._filter is not None:
            self._filter.allow(allowed)

    def _print(self, data: bytes) -> None:
        shown = self._as_it_came(data) if self._filter is None else self._filter.feed(data)
        if not shown:
            return
        self._show(shown)
        end = max(shown.rfind(b"\n"), shown.rfind(b"\r")) + 1
        self._line = shown[end:] if end else (self._line + shown)[-_MAX_REPEATED - 1 :]

    def _as_it_came(self, data: bytes) -> bytes:
        """Return `data`; note which of the two screens it leaves the terminal on."""
        seen = self._end + data
        for match in _ALTERNATE.finditer(seen):
            self._is_alternate = match[1] == b"h"
        self._end = seen[-_ALTERNATE_BYTES:]
        return data


def header_lines(port: PortView, hello: Json, width: int, now_utc_ns: int) -> list[str]:
    """Return what is shown first, in lines of at most `width` columns."""
    facts = [port.name, short_device(port.device)]
    if port.bit_rate:
        facts.append(f"{port.bit_rate} 8N1")
    facts.append(_up_words(port, now_utc_ns))
    if port.boot:
        facts.append(f"boot #{port.boot}")
    facts.append(_may_words(hello))
    facts.append("Ctrl-T ? for help, Ctrl-T q to leave")
    lines = [facts[0]]
    for fact in facts[1:]:
        longer = f"{lines[-1]} · {fact}"
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fact)
    return lines


def _up_words(port: PortView, now_utc_ns: int) -> str:
    if port.state != "up":
        return ": ".join(filter(None, (port.state, why_not_up(port))))
    return f"up {span((now_utc_ns - port.since_utc_ns) / 1e9)}"


def _may_words(hello: Json) -> str:
    if not hello["may_write"]:
        return f"read-only: {safe(hello['why_not'])}"
    if lease := hello["lease"]:
        return f"{safe(lease['user'])} (pid {lease['pid']}) is typing; Ctrl-T w takes over"
    return "you may write (first key takes the lease)"


def _is_news(marker: Json) -> bool:
    """Tell whether a marker says what no other message does."""
    is_release = marker["kind"] == "flash" and marker["text"].startswith("released to ")
    return marker["kind"] != "attach" and not is_release


def _lease_words(body: Json) -> str:
    holder, before = body["holder"], body["before"]
    if body["yours"]:
        return "you may type now: the write lease is yours"
    if holder:
        how = "has taken over" if body["why"] == "stolen" else "may type now"
        return f"{safe(holder['user'])} (pid {holder['pid']}) {how}"
    left = f"{safe(before['user'])} (pid {before['pid']})" if before else "nobody"
    how = "was silent for too long: " if body["why"] == "expired" else "has left: "
    return f"{left} {how}the write lease is free"
