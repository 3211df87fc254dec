"""What a device printed, as text for a report or a prompt: harmless, one line, comparable."""

from __future__ import annotations

import re
import unicodedata

from serialwatch.wire import show

MAX_SHOWN = 240  # characters of a line in a report or a prompt


def readable(raw: bytes) -> str:
    """Return a line without its escape sequences, every other control character spelled out."""
    return show(_ESCAPES.sub(b"", raw).rstrip(b"\r\n")).replace("\t", " ")


def shortened(text: str, limit: int = MAX_SHOWN) -> str:
    """Return `text`, cut to `limit` characters with an ellipsis where it was longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def normal(text: str) -> str:
    """Return `text` in the form in which quotes are compared: NFKC, runs of spaces collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


_ESCAPES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    rb"|\x1b[ -/]*[0-~]"
    rb"|\^\[\[[0-9;]*m"  # a colour in caret notation, as some loggers write it
    rb"|[\x00\x07\x08\x0e\x0f\x7f]"
)
