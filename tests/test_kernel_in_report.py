"""What the PC's kernel said of an adapter stands in the report on the fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from serialwatch.agent.offline.case import Story
from serialwatch.agent.offline.reflexes.general import tell_without_line
from serialwatch.records import Line

DISCONNECT = "usb 1-2: USB disconnect, device number 5"


def test_a_vanished_port_is_told_with_the_words_of_the_kernel() -> None:
    line = Line("dut1", 7, b"sensor: 23.4 C", 0, 10, 10, 10)
    incident = SimpleNamespace(
        port="dut1",
        title="the serial adapter vanished",
        fault_utc_ns=20,
        fields={"kernel": DISCONNECT},
    )
    story = Story(case=_case(incident, [line]))

    tell_without_line(story.case, story)

    (conclusion,) = story.conclusions
    assert conclusion.claim == (
        "the serial adapter vanished: around these lines. The PC's kernel said then: "
        "usb 1-2: USB disconnect, device number 5."
    )
    assert conclusion.evidence[0].seq == 7


def _case(incident: Any, lines: list[Line]) -> Any:
    return SimpleNamespace(incident=incident, lines=lines, page=None)
