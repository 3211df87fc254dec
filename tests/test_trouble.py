"""What lasts is told when it begins, once a minute, and when it is over."""

from serialwatch.trouble import Trouble

FULL, BROKEN = "the disk is full", "the disk is broken"


def test_what_lasts_is_told_when_it_begins_each_minute_and_when_it_is_over() -> None:
    trouble = Trouble()
    told = [(second, trouble.note(FULL, float(second))) for second in range(130)]

    assert [each for each in told if each[1]] == [(0, "begins"), (60, "lasts"), (120, "lasts")]
    assert trouble.note("", 131.0) == "ends"
    assert trouble.lasted_s == 131.0
    assert trouble.note("", 132.0) == ""


def test_what_comes_and_goes_each_second_is_told_once_a_minute_with_its_end() -> None:
    trouble = Trouble()
    told = [trouble.note(FULL if n % 2 == 0 else "", float(n)) for n in range(120)]

    assert [turn for turn in told if turn] == ["begins", "ends"] * 2


def test_another_reason_is_told_at_once_and_two_that_alternate_are_not_told_each_time() -> None:
    trouble = Trouble()
    told = [trouble.note((FULL, BROKEN)[n % 2], n / 10) for n in range(100)]

    assert told[:2] == ["begins", "begins"]
    assert set(told[2:]) == {""}
