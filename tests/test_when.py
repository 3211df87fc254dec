from __future__ import annotations

import pytest

from serialwatch.agent.skills.when import Situation, WhenError, is_slow, parse_when


@pytest.mark.parametrize(
    ("text", "now", "holds"),
    [
        ("trigger in (linux.oops, esp.*)", Situation(trigger="esp.guru"), True),
        ("trigger in (linux.oops, esp.*)", Situation(trigger="linux.oops_late"), False),
        ("trigger in (*)", Situation(), False),
        ("tag in (uart, i2c)", Situation(tags=frozenset({"i2c"})), True),
        ("class in (a.b) and tag in (x)", Situation(fault_class="a.b"), False),
        ("class in (a.b) or tag in (x)", Situation(fault_class="a.b"), True),
        ("line ~ overrun|fifo", Situation(lines=("ok", "RX FIFO full")), True),
        ("line ~ overrun|fifo", Situation(lines=("x" * 600 + "fifo",)), False),
        ("", Situation(trigger="a.b"), False),
    ],
)
def test_a_condition_holds_or_not(text: str, now: Situation, holds: bool) -> None:
    assert parse_when(text).holds(now) is holds


@pytest.mark.parametrize("text", ["trigger == a", "trigger in (A B)", "line ~ (", "or", "x in (a)"])
def test_what_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(WhenError):
        parse_when(text)


def test_a_regex_that_may_take_for_ever_is_known() -> None:
    assert is_slow(r"(a+)+$")
    assert is_slow(r"(?:x*y)*")
    assert not is_slow(r"(?:ab|c)+ d+")
