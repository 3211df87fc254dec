from __future__ import annotations

import pytest

from serialwatch.agent.models.breaker import FAILURES, FIRST_PAUSE_S, LAST_PAUSE_S, RECENT, Breaker


class Bench:
    """A breaker, its clock, and what it told."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.told: list[bool] = []
        self.breaker = Breaker(self.told.append, lambda: self.now_s)

    def ask(self, *, is_good: bool, is_final: bool = False) -> None:
        assert not self.breaker.refusal()
        self.breaker.asking()
        if is_good:
            self.breaker.succeeded()
        else:
            self.breaker.failed("host: not reachable", is_final=is_final)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def opened(bench: Bench) -> Bench:
    for _ in range(FAILURES):
        bench.ask(is_good=False)
    return bench


def test_failures_in_a_row_open_it_and_its_refusal_says_why(bench: Bench) -> None:
    for _ in range(FAILURES - 1):
        bench.ask(is_good=False)
    assert not bench.breaker.is_open
    bench.ask(is_good=False)

    assert bench.told == [True]
    assert bench.breaker.refusal() == "host: not reachable (left alone for 30 s more)"


def test_a_success_between_them_starts_the_row_anew(bench: Bench) -> None:
    for _ in range(FAILURES - 1):
        bench.ask(is_good=False)
        bench.now_s += 30
    bench.ask(is_good=True)
    for _ in range(FAILURES - 1):
        bench.now_s += 30
        bench.ask(is_good=False)

    assert not bench.breaker.is_open


def test_every_second_request_failing_within_a_minute_opens_it(bench: Bench) -> None:
    for n in range(RECENT):
        bench.ask(is_good=n % 2 == 0)

    assert bench.breaker.is_open


def test_after_its_pause_one_request_may_see_and_its_answer_closes_it(bench: Bench) -> None:
    opened(bench)
    bench.now_s += FIRST_PAUSE_S
    assert bench.breaker.refusal() == ""
    bench.breaker.asking()
    assert bench.breaker.refusal(), "one is on its way"
    bench.breaker.succeeded()

    assert bench.breaker.refusal() == ""
    assert bench.told == [True, False]


def test_each_probe_that_fails_doubles_the_pause_up_to_ten_minutes(bench: Bench) -> None:
    opened(bench)
    pauses = [FIRST_PAUSE_S]
    for _ in range(6):
        bench.now_s += pauses[-1]
        bench.ask(is_good=False)
        pause_s = next(s for s in range(1, 10_000) if not later(bench, s).refusal())
        pauses.append(pause_s)

    assert pauses == [30, 60, 120, 240, 480, LAST_PAUSE_S, LAST_PAUSE_S]
    assert bench.told == [True]


def later(bench: Bench, seconds: float) -> Breaker:
    seen = Breaker(clock=lambda: bench.now_s + seconds)
    seen.__dict__.update({k: v for k, v in bench.breaker.__dict__.items() if k != "_clock"})
    return seen


def test_a_probe_that_is_never_answered_does_not_close_the_way_for_ever(bench: Bench) -> None:
    opened(bench)
    bench.now_s += FIRST_PAUSE_S
    bench.breaker.asking()
    bench.now_s += FIRST_PAUSE_S

    assert bench.breaker.refusal() == ""


def test_a_wrong_key_opens_it_at_once_and_for_long(bench: Bench) -> None:
    bench.ask(is_good=False, is_final=True)
    bench.now_s += LAST_PAUSE_S - 1
    assert bench.breaker.refusal()
    bench.now_s += 1

    assert bench.breaker.refusal() == ""
