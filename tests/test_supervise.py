import asyncio

import pytest

from bench_cable import within_s
from serialwatch.service import supervise as module
from serialwatch.service.supervise import supervise


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.001)


async def test_a_part_that_raises_is_told_and_started_again() -> None:
    failures: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def part() -> None:
        raise ValueError("planted")

    task = asyncio.create_task(supervise("notifier", part, lambda *f: failures.put_nowait(f)))
    try:
        for _ in range(3):
            assert await within_s(5, failures.get()) == ("notifier", "ValueError: planted")
    finally:
        task.cancel()


async def test_a_part_that_ends_is_started_again() -> None:
    failures: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def part() -> None:
        return

    task = asyncio.create_task(supervise("agent", part, lambda *f: failures.put_nowait(f)))
    try:
        assert await within_s(5, failures.get()) == ("agent", "ended by itself")
        assert await within_s(5, failures.get()) == ("agent", "ended by itself")
    finally:
        task.cancel()


async def test_cancelling_ends_part_and_supervisor() -> None:
    ended = asyncio.Event()

    async def part() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(supervise("api", part, lambda *_: None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended.is_set()
