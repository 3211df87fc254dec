"""What one approved action may do, while it is done: its steps, each once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serialwatch.board_steps import checked_step
from serialwatch.store.approvals import ApprovalRow
from serialwatch.wire import Json


@dataclass(eq=False, slots=True)
class Grant:
    """It lives as long as the action is done, and in this process only."""

    row: ApprovalRow
    agent_pid: int | None  # whom it was given to
    until_s: float  # loop time
    begun: int = 0  # steps, those that failed too
    did: list[str] = field(default_factory=list)  # steps that were done, in words
    problem: str = ""  # why no other step is done
    is_over: bool = False
    acting: asyncio.Lock = field(default_factory=asyncio.Lock)  # one step at a time

    @property
    def is_whole(self) -> bool:
        """Tell whether all of it was done."""
        return len(self.did) == len(self.row.steps)

    def mismatch(self, asked: Mapping[str, Any]) -> str:
        """Return how what is asked differs from what was approved, "" if it does not."""
        row = self.row
        if self.is_over:
            return "its time is over"
        if self.problem:
            return self.problem
        for name, approved in (
            ("run_id", row.run_id), ("skill", row.skill), ("sha", row.sha), ("port", row.port),
        ):  # fmt: skip
            if asked.get(name) != approved:
                return f"another {name.removesuffix('_id')} than the approved one"
        if self.begun >= len(row.steps):
            return "all that was approved is done"
        try:
            step = checked_step(asked["step"])
        except (KeyError, ValueError):
            return "no step at all"
        if step != dict(row.steps[self.begun]):
            return f"step {self.begun + 1} is not the approved one"
        return ""

    def step(self) -> Json:
        """Take the next step: whatever comes of it, it is not taken again."""
        step = self.row.steps[self.begun]
        self.begun += 1
        return dict(step)

    def words(self, said: str) -> str:
        """Return what came of it; `said` is how the skill ended, "" if it did not."""
        if self.is_whole:
            return "; ".join([*self.did, *([said] if said else [])])
        why = self.problem or said or "the skill did not do it"
        if not self.begun:
            return f"nothing was sent: {why}"
        done = f"{len(self.did)} of {len(self.row.steps)} steps were done"
        return "; ".join([*self.did, f"{done}: {why}"])
