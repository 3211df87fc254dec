"""Lines that show what somebody sent."""

from __future__ import annotations

from serialwatch.service.sent import Sent, SentLines


def test_each_line_that_a_send_was_typed_on_is_its_own() -> None:
    lines = SentLines()
    for seq in (7, 7, 8, 10):  # character by character, three lines
        lines.wrote("dut1", seq)
    lines.ended("dut1", "jo", has_sent=True)
    lines.wrote("dut1", 11)
    lines.ended("dut1", "ada", has_sent=True)

    assert lines.of("dut1") == (Sent(7, "jo"), Sent(8, "jo"), Sent(10, "jo"), Sent(11, "ada"))
    assert lines.of("dut2") == ()


def test_what_did_not_leave_is_nobodys() -> None:
    lines = SentLines()
    lines.wrote("dut1", 7)
    lines.ended("dut1", "jo", has_sent=False)
    lines.ended("dut1", "ada", has_sent=True)

    assert lines.of("dut1") == ()


def test_only_the_newest_are_kept() -> None:
    lines = SentLines()
    for seq in range(100):
        lines.wrote("dut1", seq)
        lines.ended("dut1", "jo", has_sent=True)

    assert [sent.seq for sent in lines.of("dut1")] == list(range(80, 100))
