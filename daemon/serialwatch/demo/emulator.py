"""Play the boards on ptys: `python -m serialwatch.demo.emulator FOLDER`.

A link for each board appears in FOLDER; they begin to print at the first line on stdin. What is
typed to a board is echoed, as a shell would, once its stream is over.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tty
from pathlib import Path

from serialwatch.demo.boards import BOARDS, Board

BIT_RATE = 115200  # bit/s: ten bits a byte on the wire


async def play(board: Board, master: int) -> None:
    """Print what the board prints, at wire speed, then answer keys."""
    for step in board.steps():
        if isinstance(step, float):
            await asyncio.sleep(step)
            continue
        for line in step.splitlines(keepends=True):
            data = line.replace("\n", "\r\n").encode()
            await _print(master, data)
            await asyncio.sleep(len(data) * 10 / BIT_RATE)
    await _echo(master)


async def _print(master: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(master, data) :]
        except BlockingIOError:  # nobody reads: a real UART would lose these bytes, we wait
            await asyncio.sleep(0.01)


async def _echo(master: int) -> None:
    keys: asyncio.Queue[bytes] = asyncio.Queue(64)
    loop = asyncio.get_running_loop()

    def ready() -> None:
        data = os.read(master, 256)
        if not keys.full():
            keys.put_nowait(data)

    loop.add_reader(master, ready)
    try:
        while True:
            await _print(master, (await keys.get()).replace(b"\r", b"\r\n"))
    finally:
        loop.remove_reader(master)


async def main(folder: Path) -> None:
    """Make the ptys, wait for the go, play until stdin ends."""
    loop = asyncio.get_running_loop()
    go = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(go), sys.stdin)
    masters = {}
    for board in BOARDS:
        master, slave = os.openpty()  # the slave stays open: a reader that leaves is no hang-up
        tty.setraw(slave)
        os.set_blocking(master, False)
        (folder / board.name).symlink_to(os.ttyname(slave))
        masters[board] = master
    print("ready", flush=True)
    if not await go.readline():
        return
    async with asyncio.TaskGroup() as tasks:
        players = [
            tasks.create_task(play(board, master), name=f"board {board.name}")
            for board, master in masters.items()
        ]
        await go.read()
        for player in players:
            player.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
