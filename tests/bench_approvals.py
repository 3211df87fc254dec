"""Approvals over a real database and the API's bench: real ptys take what is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_api import FakeBench, serving
from serialwatch.api.bench import Who
from serialwatch.api.rights import Policy
from serialwatch.board_steps import checked_step
from serialwatch.service.approvals import Approvals
from serialwatch.store.database import Database
from serialwatch.wire import Json

NOW = 1_782_000_000_123_456_000
ANN = Who(1000, "ann", 4242)
SEND: Json = {"op": "console.send", "hex": b"cat /proc/interrupts\r".hex()}


@dataclass
class Agent:
    """The process that runs skills, as far as the core sees it."""

    pid: int | None = 77
    sent: list[Json] = field(default_factory=list)

    def send(self, message: Json) -> bool:
        if self.pid is None:
            return False
        self.sent.append(message)
        return True


class Desk:
    """Approvals with all that is around them; `now` is the time."""

    def __init__(self, db: Database, bench: FakeBench) -> None:
        self.db = db
        self.bench = bench
        self.agent = Agent()
        self.now = NOW
        self.devices = {"dut1": "usb 0403:6001 A5", "dut2": "usb 0403:6001 A6"}
        self.resets = {"dut1": "RTS on for 100 ms, RTS off"}
        self.told: list[Json] = []
        self.counted: Mapping[str, int] = {}
        self.is_on = True
        self.approvals = self.started()

    def started(self) -> Approvals:
        """Return the approvals of a daemon that has just started."""
        assert self.bench.server is not None
        consoles = self.bench.server.consoles

        async def device(port: str) -> str:
            return self.devices[port]

        def counted(numbers: Mapping[str, int]) -> None:
            self.counted = numbers

        self.approvals = self.bench.approvals = Approvals(
            self.db,
            self.bench,
            self.agent,
            refusal=consoles.refusal_to_act,
            hold=consoles.held,
            how_reset=lambda port: self.resets.get(port, ""),
            device=device,
            is_on=lambda: self.is_on,
            pending=self.told.append,
            counted=counted,
            clock=lambda: self.now,
        )
        return self.approvals

    async def proposed(self, *steps: Json, **more: Any) -> Json:
        """Propose an action as the agent does, and return what it is told."""
        body = {
            "run_id": "run-1", "role": "log-detective", "incident": 17, "port": "dut1",
            "skill": "console-send", "version": "1.0.0", "sha": "ab", "args": {"text": "x"},
            "why": "to see which line storms", "evidence": ["dut1:L3"],
            "steps": [checked_step(step) for step in steps or (SEND,)],
        }  # fmt: skip
        return await self.approvals.propose(body | more)

    async def approved(self, *steps: Json, **more: Any) -> str:
        """Have an action approved and begun; return its id."""
        action = str((await self.proposed(*steps, **more))["id"])
        await self.approvals.decide(action, "approve", "", ANN)
        await self.approvals.turn()
        return action

    async def acts(self, action: str, step: Json = SEND, **more: Any) -> Json:
        """Have the skill do a step."""
        body = {"grant": action, "run_id": "run-1", "skill": "console-send", "sha": "ab",
                "port": "dut1", "step": step}  # fmt: skip
        return await self.approvals.act(body | more)

    async def stands(self, action: str) -> tuple[str, str]:
        """Return the state of an action and what came of it."""
        found = await self.approvals.get(action)
        assert found is not None
        return found["state"], found["result"]

    def received(self, port: str = "dut1") -> bytes:
        """Return what a board has received since the last call."""
        return self.bench.by_name[port].cable.received()


@asynccontextmanager
async def desk_of(
    tmp_path: Path, *, policy: Policy | None = None, token: str = "", listen: str = ""
) -> AsyncIterator[Desk]:
    """Give approvals over a bench with the ports dut1 and dut2, and its API."""
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    try:
        async with serving(tmp_path, policy=policy, token=token, listen=listen) as bench:
            yield Desk(db, bench)
    finally:
        await db.stop()
