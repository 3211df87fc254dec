"""What a claim says against what is known: of silence, of resets, of the first time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from serialwatch.agent.text.device_text import readable
from serialwatch.records import Evidence, Incident, Line

QUIET_S = 1.0  # from here on a board may be said to have printed nothing
LOOKED_AT = 50  # lines after a cited one, of which the first that says something counts

Ledger = Mapping[tuple[str, int], Line]


def contradiction(
    text: str, cited: Iterable[Evidence], ledger: Ledger, incident: Incident | None
) -> str:
    """Return what speaks against a claim, "" if nothing that is known does."""
    if _SILENT.search(text) and (spoken := _spoken_after(cited, ledger)) is not None:
        return f"{spoken.port}:L{spoken.seq} was printed within {QUIET_S:g} s"
    if incident is None:
        return ""
    if _FIRST_TIME.search(text) and incident.seen_before:
        number = len(incident.seen_before)
        times = "once" if number == 1 else f"{number} times"
        return f"it was seen before {times}: #{incident.seen_before[0]}"
    is_up = incident.outcome in {"rebooted", "continued"}
    if _NEVER_BACK.search(text) and is_up:
        return f"the board {incident.outcome}"
    if _NO_RESET.search(text) and (why := _reset_seen(ledger, incident)):
        return why
    if _HAS_RESET.search(text) and incident.outcome == "continued":
        lines = [ledger[e.port, e.seq] for e in cited]
        is_shown = len({line.boot for line in lines}) > 1 or any(
            _RESET_WORD.search(readable(line.raw)) for line in lines
        )
        if not is_shown and not _reset_seen(ledger, incident):
            return "the board continued, and no start was read"
    return ""


def _spoken_after(cited: Iterable[Evidence], ledger: Ledger) -> Line | None:
    """Return a line that came right after each cited one; None if one of them was the last."""
    spoken: Line | None = None
    for evidence in cited:
        line = ledger[evidence.port, evidence.seq]
        following = _next_words(line, ledger)
        if following is None or not line.utc_ns or following.boot != line.boot:
            return None
        if following.utc_ns - max(line.utc_ns, line.last_utc_ns) >= QUIET_S * 1e9:
            return None
        spoken = following
    return spoken


def _next_words(line: Line, ledger: Ledger) -> Line | None:
    """Return the next line that says something, None if what follows was not read."""
    for seq in range(line.seq + 1, line.seq + LOOKED_AT):
        following = ledger.get((line.port, seq))
        if following is None:
            return None
        if readable(following.raw).strip():
            return following
    return None


def _reset_seen(ledger: Ledger, incident: Incident) -> str:
    if incident.outcome == "rebooted":
        return f"the board rebooted at L{incident.outcome_seq}"
    first = incident.first_seq or incident.last_seq
    later = (
        line
        for (port, seq), line in ledger.items()
        if port == incident.port and seq > first and line.boot > incident.boot
    )
    found = min(later, key=lambda line: line.seq, default=None)
    return f"boot {found.boot} begins at or before L{found.seq}" if found else ""


_SILENT = re.compile(
    r"\b(?:printed|said|sent|wrote) nothing\b"
    r"|\b(?:went|fell|was|became|stayed) (?:completely |entirely )?silent\b(?! (?:about|on|as)\b)"
    r"|\bno (?:further|more|other) (?:output|lines?)\b"
    r"|\bnothing (?:more|further|else) (?:came|followed|was printed)\b",
    re.IGNORECASE,
)
_FIRST_TIME = re.compile(
    r"\bfor the (?:very )?first time\b(?! (?:in|of|since|after))"
    r"|\b(?:first|only) time (?:on|for) this (?:bench|board|port)\b"
    r"|\bnever (?:been )?(?:seen|happened|occurred)\b"
    r"|\b(?:not|never) (?:been )?seen before\b"
    r"|\bno (?:earlier|previous) (?:incident|case|occurrence)s?\b",
    re.IGNORECASE,
)
_NEVER_BACK = re.compile(
    r"\bnever (?:came|comes|come) (?:back|up)\b|\bdid not come (?:back|up)\b"
    r"|\b(?:stayed|remained|is still|remains) (?:dead|down|hung|halted)\b"
    r"|\bhalted (?:for good|forever|for ever)\b",
    re.IGNORECASE,
)
_NO_RESET = re.compile(
    r"\bno (?:reset|reboot|restart) (?:followed|happened|came|occurred|was seen)\b"
    r"|\bwithout (?:any |a )(?:reset|reboot|restart)\b"
    r"|\b(?:did not|has not|never) (?:reset|reboot|rebooted|restart|restarted)\b(?! (?:by )?itself)"
    r"|\b(?:kept|went on|continued) running\b",
    re.IGNORECASE,
)
_HAS_RESET = re.compile(
    r"\b(?:board|device|system|target|dut\w*|it) (?:then |has |was |had )?"
    r"(?:reset|rebooted|restarted)\b",
    re.IGNORECASE,
)
_RESET_WORD = re.compile(r"reset|reboot|restart|\brst\b|watchdog|boot", re.IGNORECASE)
