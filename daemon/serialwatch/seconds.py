"""What is done each second is done in the same moment: the PC wakes up once, not ten times."""

from __future__ import annotations


def until_next(period_s: float, now_s: float) -> float:
    """Return how long to wait for the next multiple of `period_s` on the clock of `now_s`.

    All who use the same clock (the loop's and `time.monotonic` are) wake up together. A multiple
    that is nearly there is left out: a timer may end a little before its time.
    """
    left_s = period_s - now_s % period_s
    return left_s if left_s > period_s / 10 else left_s + period_s
