"""The match view: lines without the escapes and control characters that consoles put into them."""

from __future__ import annotations

import re

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
