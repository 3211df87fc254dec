"""Questions that want a yes or a no: which do, and the word that their answer begins with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from serialwatch.agent.questions.question_forms import LINKS, Kind
from serialwatch.verdict import SILENT_S
from serialwatch.wire import Json

# What a yes would say: that there was something, or that the board, or its cable, is so.
Asks = Literal["", "any", "good", "bad", "up", "down", "silent", "good link", "bad link"]

UNKNOWN = "Not known"
SEEMS_YES, SEEMS_NO = "Yes, as far as is known", "No, as far as is known"
_OPPOSITE = {"Yes": "No", "No": "Yes", SEEMS_YES: SEEMS_NO, SEEMS_NO: SEEMS_YES}

_KINDS: frozenset[Kind] = frozenset({"what_happened", "how_often", "printed", "status"})
_BEGINS = re.compile(r"(?:is|are|was|were|did|does|do|has|have|had|any(?:thing)?|something)\b")
_PAST = re.compile(r"(?:was|were|did|had)\b")
_IS = re.compile(r"(?:is|are)\b")
_LINK = re.compile(rf"\b{LINKS}\b")
_GOOD = re.compile(r"\b(?:ok|okay|fine|good|all right|alright)\b")
_WELL = re.compile(rf"{_GOOD.pattern}|\b(?:healthy|well|working|stable|in order)\b")
_OF_STATUS: tuple[tuple[Asks, re.Pattern[str]], ...] = (
    ("bad", re.compile(r"\b(?:in trouble|having problems)$")),
    ("silent", re.compile(r"\b(?:silent|quiet)\b")),
    ("down", re.compile(r"\b(?:down|dead|offline)\b")),
    ("good", _WELL),
    ("up", re.compile(r"")),
)


def asks_of(kind: Kind, words: str) -> Asks:
    """Return what plain words of a kind of question ask with yes or no, "" if they do not."""
    if kind not in _KINDS or not _BEGINS.match(words):
        return ""
    if kind != "status":
        return "any"
    if _LINK.search(words):
        return "good link" if _GOOD.search(words) else "bad link"
    return next(asks for asks, pattern in _OF_STATUS if pattern.search(words))


def is_past(words: str) -> bool:
    """Tell whether plain words ask how something was."""
    return _PAST.match(words) is not None


def is_present(words: str) -> bool:
    """Tell whether plain words ask how something is now."""
    return _IS.match(words) is not None


def opposite(word: str) -> str:
    """Return the answer to the opposite question."""
    return _OPPOSITE.get(word, word)


def of_incidents(rows: Sequence[Json], *, is_now: bool) -> str:
    """Return whether there was something; `is_now`: whether it still is."""
    if not rows:
        return "No"
    if is_now and all(row["state"] == "resolved" for row in rows):
        return "Not any more"
    return "Yes"


def of_board(asks: Asks, status: Mapping[str, Any], *, has_halted: bool) -> str:
    """Return the answer about one board, by what `port-status` says of it."""
    match asks:
        case "good":
            return _is_good(status)
        case "bad":
            return opposite(_is_good(status))
        case "up":
            return _is_up(status, has_halted=has_halted)
        case "down":
            return opposite(_is_up(status, has_halted=has_halted))
        case "silent":
            return _is_silent(status)
        case "good link":
            return opposite(_is_link_bad(status))
        case "bad link":
            return _is_link_bad(status)
    return ""


def of_boards(asks: Asks, rows: Sequence[Json], *, is_any: bool) -> str:
    """Return the answer about several boards: whether all are so, or `is_any` of them."""
    if not rows:
        return UNKNOWN if asks else ""
    is_bad = any(row["state"] != "up" for row in rows)
    if asks in ("good", "bad"):
        is_bad = is_bad or any(int(row.get("open_incidents") or 0) for row in rows)
    if asks in ("good", "up") and not is_any:
        return "No" if is_bad else SEEMS_YES
    if asks in ("bad", "down") and is_any:
        return "Yes" if is_bad else SEEMS_NO
    return ""


def with_answer(word: str, text: str) -> str:
    """Return a sentence behind the word that answers."""
    if not word or not text:
        return text
    first = text.split(" ", 1)[0]
    if first in _SMALL:
        text = f"{text[0].lower()}{text[1:]}"
    return f"{word}: {text}"


_SMALL = frozenset({"No", "None", "Nothing", "The", "How", "Its"})


def _is_good(status: Mapping[str, Any]) -> str:
    if (unsure := _of_state(status)) is not None:
        return unsure
    if any(row["severity"] != "note" for row in status.get("incidents") or ()):
        return "No"
    verdict = status["verdict"]
    if not verdict.get("is_weak", verdict["place"] == "nothing"):
        return "No"
    return _heard(status)


def _is_up(status: Mapping[str, Any], *, has_halted: bool) -> str:
    if (unsure := _of_state(status)) is not None:
        return unsure
    return "No" if has_halted else _heard(status)


def _of_state(status: Mapping[str, Any]) -> str | None:
    """Return what the state of the port alone decides, None if it decides nothing."""
    if status["state"] in ("opening", "released", "busy", "denied"):  # of the PC, not of the board
        return UNKNOWN
    return None if status["state"] == "up" else "No"


def _heard(status: Mapping[str, Any]) -> str:
    """Return yes, as far as what came lately from a board allows that."""
    age_s = status.get("last_rx_age_s")
    if age_s is None:
        return UNKNOWN
    return "Yes" if age_s <= SILENT_S else SEEMS_YES


def _is_silent(status: Mapping[str, Any]) -> str:
    if status["state"] != "up":
        return UNKNOWN
    age_s = status.get("last_rx_age_s")
    return "Yes" if age_s is None or age_s > SILENT_S else "No"


def _is_link_bad(status: Mapping[str, Any]) -> str:
    verdict = status["verdict"]
    is_weak = verdict.get("is_weak", False)
    if verdict["place"] == "cable":
        return "Perhaps" if is_weak else "Yes"
    if verdict["place"] == "unknown" or (verdict["place"] == "board" and is_weak):
        return UNKNOWN
    return SEEMS_NO
