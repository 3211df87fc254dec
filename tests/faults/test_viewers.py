"""Escape sequences of every kind, torn anywhere, on every way to a terminal."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from fault_bed import Tell

from serialwatch.agent.text.device_text import readable
from serialwatch.cli.ask import answer_lines, step_line
from serialwatch.cli.escapes import Allowed, EscapeFilter, line_text
from serialwatch.cli.show_report import About, report_lines
from serialwatch.records import Conclusion, Evidence, NextStep, Report
from serialwatch.wire import report_to_json
from test_screen import DANGEROUS, SAFE

pytestmark = pytest.mark.faults

SEQUENCES = 100_000
TOGETHER = 40  # of them in one claim
NOW = datetime(2026, 6, 22, 8, 0, tzinfo=UTC)
_LINE = re.compile(r"(?:[\x20-\x7e\u00a0-\U0010ffff\t]|\x1b\[[0-9;:]*m)*")
_PIECES = (
    *DANGEROUS.values(), b"\x1b", b"[", b"]", b"\x1b[", b"\x9b", b"\xc2", b"6n", b"\\", b"\x07",
    b";", b"52;c;", b"?", b"P", b"\r", b"\n", b"\x08", b"text", "\u202e\u2028\u200b".encode(),
)  # fmt: skip


def test_no_escape_gets_through_a_viewer(tell: Tell) -> None:
    chance = random.Random(18)
    fuzz = [_sequence(chance) for _ in range(SEQUENCES)]
    began_s = time.monotonic()
    bad = {
        "attach": sum(not _is_shown_safely(data) for data in fuzz),
        "logs": sum(not _is_safe_line(data) for data in fuzz),
        "report": _bad_texts(fuzz, _report_text),
        "ask": _bad_texts(fuzz, _answer_text),
    }
    tell(
        18,
        f"{SEQUENCES:,} random escapes, torn at every byte",
        f"dangerous in {', '.join(f'{name} {count}' for name, count in bad.items())} "
        f"({time.monotonic() - began_s:.0f} s)",
    )

    assert not any(bad.values())


def _sequence(chance: random.Random) -> bytes:
    return b"".join(
        chance.choice(_PIECES) if chance.random() < 0.8 else chance.randbytes(2)
        for _ in range(chance.randrange(1, 4))
    )[:60]


def _is_shown_safely(data: bytes) -> bool:
    """Tell whether a screen gets nothing dangerous, the same whole and byte by byte."""
    whole = EscapeFilter(Allowed.SCREEN).feed(data)
    torn = EscapeFilter(Allowed.SCREEN)
    is_same = b"".join([torn.feed(data[at : at + 1]) for at in range(len(data))]) == whole
    # What ends within a sequence is not shown before its end has come.
    return is_same and SAFE.fullmatch(whole.decode()) is not None


def _is_safe_line(data: bytes) -> bool:
    texts = [line_text(data, colour=has_colour) for has_colour in (False, True)]
    return "\x1b" not in texts[0] and all(map(_LINE.fullmatch, texts))


def _bad_texts(fuzz: list[bytes], shown: Callable[[str, str], str]) -> int:
    """Return how many texts with these sequences, as found and as a model has them, do harm."""
    bad = 0
    for at in range(0, len(fuzz), TOGETHER):
        lines = fuzz[at : at + TOGETHER]
        told = shown(
            " ".join(map(readable, lines)), b" ".join(lines).decode("utf-8", "surrogateescape")
        )
        bad += any(c not in "\t\n" and not c.isprintable() for c in told)
    return bad


def _report(found: str, said: str) -> Report:
    cited = Evidence("dut1", 1, found)
    return Report(
        1, 1, f"model {said[:20]}", said[:80], "linux.oops", "error", "likely", 0.5,
        conclusions=(Conclusion("c1", "observation", said, (cited,)),),
        unknowns=(found,), next_steps=(NextStep(said[:200]),),
    )  # fmt: skip


def _report_text(found: str, said: str) -> str:
    about = About(port="dut1", boot=1, fault_utc_ns=0)
    return "\n".join(t.plain for t in report_lines(_report(found, said), about, NOW, 100))


def _answer_text(found: str, said: str) -> str:
    message = {"report": report_to_json(_report(found, said)), "is_answered": True, "run_id": "r"}
    step = {"skill": "log-read", "params": said, "told": found, "ms": 1, "status": "success"}
    return "\n".join(t.plain for t in (*answer_lines(message, 100), step_line(step, 100)))
