"""Ticks: often while something happens, seldom while nothing does."""

from __future__ import annotations

import asyncio

import pytest

from serialwatch.seconds import until_next
from serialwatch.service import pulse as pulse_module
from serialwatch.service.pulse import Pulse


async def test_a_long_wait_ends_at_once_and_the_next_tick_is_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulse_module, "CALM_TICK_S", 3600.0)
    pulse = Pulse()
    await pulse.next(is_calm=False)
    waiting = asyncio.create_task(pulse.next(is_calm=True))
    await asyncio.sleep(0)
    assert not waiting.done()

    pulse.hurry()
    async with asyncio.timeout(10):
        assert await waiting == 0.0
        await pulse.next(is_calm=False)


async def test_hurry_between_two_ticks_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "CALM_TICK_S", 3600.0)
    pulse = Pulse()
    await pulse.next(is_calm=False)
    pulse.hurry()
    waiting = asyncio.create_task(pulse.next(is_calm=True))
    await asyncio.sleep(0)

    assert not waiting.done()
    waiting.cancel()


async def test_a_calm_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "CALM_TICK_S", 0.001)
    pulse = Pulse()
    async with asyncio.timeout(10):
        for _ in range(3):
            assert await pulse.next(is_calm=True) >= 0.0


@pytest.mark.parametrize(
    ("now_s", "left_s"), [(7.0, 1.0), (7.25, 0.75), (7.75, 0.25), (7.95, 1.05), (7.9999999, 1.0)]
)
def test_what_is_done_each_second_is_done_in_the_same_moment(now_s: float, left_s: float) -> None:
    assert until_next(1.0, now_s) == pytest.approx(left_s, abs=1e-6)
