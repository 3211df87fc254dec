"""Ticks: often while something happens, seldom while nothing does."""

from __future__ import annotations

import asyncio

import pytest

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
