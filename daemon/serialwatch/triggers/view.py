"""The match view: lines without the escapes and control characters that consoles put into them."""

from __future__ import annotations

import re
from functools import cache

import hyperscan as hs

# Everything below space but TAB, CR and LF, and DEL.
_CONTROLS = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
_NO_PART_OF_AN_ESCAPE = bytes(set(_CONTROLS) - {0x07, 0x1B})
# Each branch begins with a plain byte: so the search skips to the next of them.
_ESCAPE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*(?:[@-~]|(?=[\r\n]|\Z))"  # CSI
    rb"|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)"  # OSC
    rb"|[PX^_][^\x1b\r\n]*\x1b\\"  # DCS, SOS, PM, APC
    rb"|[#%(-/]+[0-~]"  # character sets
    rb"|[0-9<=>cDEHMNOZ]"  # e.g. save the cursor; other letters may be text behind a lone ESC
    rb"|)"
    rb"|\^\[\[[0-?]*[ -/]*(?:[@-~]|(?=[\r\n]|\Z))"  # CSI in caret notation
    rb"|\x07"
)


def strip_escapes(text: bytes) -> bytes:
    """Return the text without escapes and controls; nearly always that is the same object.

    No LF or CR is added or removed and nothing is seen across a line end, so each line of the view
    is the line of the same number in the text. An escape that never ends hides nothing behind it.
    """
    if len(text.translate(None, _CONTROLS)) == len(text) and (
        b"^" not in text or b"^[[" not in text
    ):
        return text
    return _ESCAPE.sub(b"", text.translate(None, _NO_PART_OF_AN_ESCAPE))


class Stripper:
    """Strips escapes, for one thread; where there are none in a third of the time."""

    def __init__(self) -> None:
        self._controls = _find_controls()
        self._scratch = hs.Scratch(self._controls)
        self._has_found = False
        self._handler = self._found  # Hyperscan's binding keeps no reference

    def __call__(self, text: bytes) -> bytes:
        """Return `strip_escapes(text)`."""
        self._controls.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if self._has_found or b"^" in text:
            self._has_found = False
            return strip_escapes(text)
        return text

    def _found(self, _id: int, _start: int, _end: int, _flags: int, _context: object) -> None:
        self._has_found = True


@cache
def _find_controls() -> hs.Database:
    """Return what finds the first control character: it looks at 16 bytes and more at once."""
    any_of_them = b"[" + b"".join(b"\\x%02x" % each for each in _CONTROLS) + b"]"
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(expressions=[any_of_them], ids=[0], elements=1, flags=[hs.HS_FLAG_SINGLEMATCH])
    return database
