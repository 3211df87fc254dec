"""Hands a run to the core step by step, each thing once: another agent can go on with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from serialwatch.agent.core_link import CoreError, CoreLink
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.trace import Round, RunRecord, RunStatus
from serialwatch.agent.workers.tools import Tools
from serialwatch.store.runs import trace_to_json

log = logging.getLogger(__name__)


class Diary:
    """What the core knows of one run. What it did not take goes with the next step again."""

    def __init__(self, link: CoreLink, record: RunRecord, known: Tools | None = None) -> None:
        """Begin; `known` has what the core knows already of a run that is taken up."""
        self.record = record
        self._link = link
        self._rounds = 0
        self._calls = {call.n for call in known.calls} if known else set()
        self._results = set(known.results) if known else set()

    async def keep(self, state: RunState, rounds: Sequence[Round], tools: Tools) -> None:
        """Store how a run stands between two steps."""
        await self._send(state, rounds, tools, RunStatus.RUNNING, None)

    async def close(
        self, state: RunState | None, rounds: Sequence[Round], tools: Tools, status: RunStatus
    ) -> None:
        """Store how it ended."""
        await self._send(state, rounds, tools, status, time.time_ns())

    async def _send(
        self,
        state: RunState | None,
        rounds: Sequence[Round],
        tools: Tools,
        status: RunStatus,
        ended_utc_ns: int | None,
    ) -> None:
        calls = [call for call in tools.calls if call.n not in self._calls]
        results = {ref: body for ref, body in tools.results.items() if ref not in self._results}
        trace = self.record.trace(
            calls, results, status, ended_utc_ns, state, rounds[self._rounds :]
        )
        try:
            await self._link.ask("run", trace_to_json(trace))
        except CoreError as exc:
            log.log(exc.level, "%s: its run is not stored: %s", self.record.session.session_id, exc)
            return
        self._rounds = len(rounds)
        self._calls.update(call.n for call in calls)
        self._results.update(results)
