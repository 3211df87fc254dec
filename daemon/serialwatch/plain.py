"""What a person sees of console bytes: without escapes and what else is not shown."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    rb"\x1b(?:"
    rb"\[[ -?]*[@-~]?"  # CSI, also one that is cut short
    rb"|[\]PX^_][^\x07\x18\x1a\x1b\r\n]*[\x07\x18\x1a]?"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]+[0-~]?"  # character sets
    rb"|[0-~]"
    rb")?"
)
_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
_UNSEEN = re.compile(  # UTF-8 of characters that are not shown, for they steer what is
    rb"\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
    rb"|\xf3\xa0[\x80\x81][\x80-\xbf]"
)


def plain(data: bytes) -> bytes:
    """Return lines without escapes, controls but TAB, CR and LF, and characters that are unseen."""
    if b"\x1b" in data:
        data = _ESCAPE.sub(b"", data)
    data = data.translate(None, _CONTROLS)
    return data if data.isascii() else _UNSEEN.sub(b"", data)


def holds(raw: bytes, text: bytes) -> bool:
    """Tell whether `text` stands in a line, in its bytes or in what is seen of them."""
    return text in raw or text in plain(raw)
