"""A configuration that is read again where nothing may answer."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from serialwatch.service import config_reading
from serialwatch.service.config_reading import read_again


async def test_a_configuration_that_does_not_come_is_told_once_and_used_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_reading, "SLOW_S", 0.01)
    fifo = tmp_path / "c.toml"
    os.mkfifo(fifo)
    told: list[Sequence[str]] = []
    is_told = asyncio.Event()

    def tell(problems: Sequence[str]) -> None:
        told.append(problems)
        is_told.set()

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read_again(fifo.read_text, tell), name="reading")
        await asyncio.wait_for(is_told.wait(), 10)
        with fifo.open("w") as file:
            file.write("[port.dut1]")

    assert reading.result() == "[port.dut1]"
    assert told == [["it is still being read after 0.01 s"]]


async def test_whoever_does_not_wait_for_it_any_more_is_free(tmp_path: Path) -> None:
    fifo = tmp_path / "c.toml"
    os.mkfifo(fifo)
    reading = asyncio.ensure_future(read_again(fifo.read_text, lambda _: None))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    with fifo.open("w"):  # ends the thread
        pass


async def test_what_is_wrong_with_it_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await read_again((tmp_path / "none").read_text, lambda _: None)
