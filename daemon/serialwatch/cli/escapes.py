"""What a board may do to a person's terminal: print, move the cursor, choose colours. No more."""

from __future__ import annotations

import re
from enum import Enum, auto

_ESC = 0x1B
_MAX_SEQUENCE = 96  # bytes of a CSI sequence that is still looked at
_MAX_STRING = 4096  # bytes of an OSC, DCS, ...; noise may begin one that never ends

_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
# Cursor, erase, insert, delete, scroll. Not among them, for each would change what the terminal
# types into the board, report to it, print, lock or resize it, or wipe what the person has on it:
# h and l (modes), n, c, x, t (reports), q, p, i, g, u with parameters, and 3J.
_MOVES = re.compile(
    rb"\x1b\[(?:(?:\d{0,4}(?:;\d{0,4})?)[ABCDEFGHIKLMPSXZ@`abdefr]|[012]?J|\d{0,4}T|[su]|\?25[hl])"
)
_ERASES_IN_LINE = re.compile(rb"\x1b\[[012]?K")
_ERASES = re.compile(rb"\x1b\[[0-3]?[JK]")
_PLAIN_ESCAPES = frozenset(b"78DEM")  # save and restore the cursor, index, next line, reverse index
_STRINGS = frozenset(b"]PX^_")  # OSC, DCS, SOS, PM, APC
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()

_SCREEN_CONTROLS = rb"\x07-\x0a\x0d"  # BEL, BS, TAB, LF, CR
_LINES_CONTROLS = rb"\x08-\x0a\x0d"  # BS, TAB, LF, CR
_LINE_CONTROLS = rb"\x09"  # TAB

# Characters that reorder or hide what stands around them, begin a line, or are letters unseen.
_STEERING = frozenset((
    *range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A),
    *range(0xE0000, 0xE0080),
))  # fmt: skip


class Allowed(Enum):
    """How much gets through."""

    TEXT = auto()  # no escape at all
    COLOUR = auto()  # of one line
    LINES = auto()  # what was printed earlier: nothing leaves its own line
    SCREEN = auto()  # an attached terminal


_CONTROLS = {Allowed.SCREEN: _SCREEN_CONTROLS, Allowed.LINES: _LINES_CONTROLS}
_PLAIN = {
    allowed: re.compile(rb"[\x20-\x7e" + _CONTROLS.get(allowed, _LINE_CONTROLS) + rb"]+")
    for allowed in Allowed
}


class EscapeFilter:
    """Lets through what cannot harm a terminal, in chunks of any size.

    What comes out is always whole: characters of UTF-8, some controls, complete sequences.
    """

    def __init__(self, allowed: Allowed) -> None:
        self.allow(allowed)
        self._step = self._text
        self._held = bytearray()  # an unfinished sequence or character
        self._length = 0  # of an unfinished string, or what is missing of a character

    def allow(self, allowed: Allowed) -> None:
        """Let more or less through from here on."""
        self._allowed = allowed
        self._plain = _PLAIN[allowed]

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown of `data`, with what was held back of earlier chunks."""
        out = bytearray()
        at = 0
        while at < len(data):
            if self._step == self._text and (run := self._plain.match(data, at)):
                out += run.group()
                at = run.end()
            elif self._step(data[at], out):
                at += 1
        return bytes(out)

    # Each step takes one byte and tells whether it is done with it.

    def _text(self, byte: int, out: bytearray) -> bool:
        if byte == _ESC:
            self._held[:] = b"\x1b"
            self._step = self._escape
        elif 0xC2 <= byte <= 0xF4:
            self._held[:] = bytes((byte,))
            self._length = 1 + (byte >= 0xE0) + (byte >= 0xF0)
            self._step = self._character
        elif byte >= 0x80:
            out += _REPLACEMENT
        return True

    def _character(self, byte: int, out: bytearray) -> bool:
        low, high = _second_byte(self._held) if len(self._held) == 1 else (0x80, 0xBF)
        if not low <= byte <= high:
            out += _REPLACEMENT
            self._step = self._text
            return False
        self._held.append(byte)
        self._length -= 1
        if not self._length:
            if ord(self._held.decode()) not in _STEERING:
                out += self._held
            self._step = self._text
        return True

    def _escape(self, byte: int, out: bytearray) -> bool:
        if byte == ord("["):
            self._held.append(byte)
            self._step = self._csi
        elif byte in _STRINGS:
            self._length = 0
            self._step = self._string
        elif 0x20 <= byte <= 0x2F:
            self._step = self._designation
        elif byte != _ESC:
            self._step = self._text
            if self._allowed is Allowed.SCREEN and byte in _PLAIN_ESCAPES:
                out += bytes((_ESC, byte))
            return 0x30 <= byte <= 0x7E
        return True

    def _designation(self, byte: int, out: bytearray) -> bool:
        """Swallow `ESC ( 0` and its kind: they switch the terminal to another character set."""
        if 0x20 <= byte <= 0x2F:
            return True
        self._step = self._text
        return 0x30 <= byte <= 0x7E

    def _csi(self, byte: int, out: bytearray) -> bool:
        if 0x20 <= byte <= 0x3F:
            if len(self._held) <= _MAX_SEQUENCE:
                self._held.append(byte)
            return True
        self._step = self._text
        if 0x40 <= byte <= 0x7E:
            self._held.append(byte)
            if self._may_pass():
                out += self._held
            return True
        return False

    def _string(self, byte: int, out: bytearray) -> bool:
        """Swallow a string up to its end, or to the board's next line: then it was noise."""
        self._length += 1
        if byte in b"\x07\x18\x1a":
            self._step = self._text
            return True
        if byte in b"\x1b\r\n" or self._length > _MAX_STRING:
            self._step = self._text
            return False
        return True

    def _may_pass(self) -> bool:
        if self._allowed is Allowed.TEXT or len(self._held) > _MAX_SEQUENCE:
            return False
        if _COLOUR.fullmatch(self._held):
            return True
        if self._allowed is Allowed.LINES:
            return _ERASES_IN_LINE.fullmatch(self._held) is not None
        return self._allowed is Allowed.SCREEN and _MOVES.fullmatch(self._held) is not None


def line_text(raw: bytes, *, colour: bool) -> str:
    """Return a line of a log as it may be printed: what CRs have overwritten is left out.

    What prints nothing overwrites nothing: NULs that fill, a bell, the end of a colour.
    """
    allowed = Allowed.COLOUR if colour else Allowed.TEXT
    first, *others = raw.split(b"\r")
    shown = EscapeFilter(allowed).feed(first)
    for part in others:
        over = EscapeFilter(allowed).feed(part)
        seen, before = _COLOUR.sub(b"", over), _COLOUR.sub(b"", shown)
        if seen.strip() or len(seen) >= len(before) or _ERASES.search(part):
            shown = over
    text = shown.decode("utf-8", errors="replace")
    return f"{text}\x1b[0m" if "\x1b" in text else text


def _second_byte(lead: bytearray) -> tuple[int, int]:
    """Return what may follow a lead byte: no overlong forms, surrogates or beyond Unicode."""
    return {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}.get(
        lead[0], (0x80, 0xBF)
    )
