import asyncio
import json
from pathlib import Path

import pytest

from bench_cable import within_s
from serialwatch.notify import command as module
from serialwatch.notify.command import CommandNotifier, Notification


async def test_the_program_gets_the_report_on_stdin(tmp_path: Path) -> None:
    fifo = tmp_path / "told"
    notifier = CommandNotifier(["sh", "-c", f"cat > {fifo}.new; mv {fifo}.new {fifo}"], "error")
    notifier.offer(Notification("critical", {"title": "an oops; `$(reboot)`"}))
    task = asyncio.create_task(notifier.run())
    try:
        async with asyncio.timeout(10):
            while not fifo.exists():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert json.loads(fifo.read_text()) == {"title": "an oops; `$(reboot)`"}


async def test_what_is_not_severe_enough_is_not_told() -> None:
    notifier = CommandNotifier(["true"], "error")

    notifier.offer(Notification("warning", {}))

    assert notifier._queue.empty()


async def test_a_hanging_program_drops_the_oldest_and_counts() -> None:
    notifier = CommandNotifier(["true"], "error")

    for n in range(module.WAITING + 5):
        notifier.offer(Notification("error", {"n": n}))

    assert notifier.dropped == 5
    assert notifier._queue.get_nowait().body == {"n": 5}


async def test_a_program_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.05)
    notifier = CommandNotifier(["sleep", "1000"], "error")

    await within_s(5, notifier._tell(b"{}"))

    assert "killed" in caplog.text


async def test_a_program_that_is_missing_raises_for_its_supervisor() -> None:
    notifier = CommandNotifier(["/does/not/exist"], "error")
    notifier.offer(Notification("error", {}))

    with pytest.raises(FileNotFoundError):
        await within_s(5, notifier.run())
