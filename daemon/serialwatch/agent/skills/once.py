"""What the calls of a run that write have given, so that none of them is done twice."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.skills.skill import Skill
from serialwatch.records import SkillResult
from serialwatch.store.late_results import DoneCall, load_done_calls


class Once:
    """The successful calls of one run, those of an earlier process of the agent included."""

    def __init__(self, archive: Archive, run_id: str) -> None:
        self._archive = archive
        self._run_id = run_id
        self._loaded: set[str] = set()  # skills whose earlier calls are known
        self._done: dict[str, SkillResult] = {}  # by skill and parameters
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def turn(self, skill: Skill, params: Mapping[str, Any]) -> asyncio.Lock:
        """Return what keeps the same call from being made twice at a time."""
        return self._turns[_key(skill, params)]

    async def result(self, skill: Skill, params: Mapping[str, Any]) -> SkillResult | None:
        """Return what the same call gave in this run, None if there was none."""
        if skill.name not in self._loaded:
            for call in await self._archive.ask(lambda archive: self._stored(archive, skill.name)):
                result = SkillResult("success", call.body, metadata={"result": call.result_id})
                self._done.setdefault(_key(skill, call.args), result)
            self._loaded.add(skill.name)
        found = self._done.get(_key(skill, params))
        if found is None:
            return None
        return replace(found, metadata={**found.metadata, "repeated": True})

    def keep(self, skill: Skill, params: Mapping[str, Any], result: SkillResult) -> None:
        """Note what a call gave; one that failed may be made again."""
        if result.status == "success":
            self._done[_key(skill, params)] = result

    def _stored(self, archive: Archive, skill: str) -> list[DoneCall]:
        db = archive.database
        return load_done_calls(db, self._run_id, skill) if db is not None else []


def _key(skill: Skill, params: Mapping[str, Any]) -> str:
    return json.dumps([skill.name, skill.with_defaults(params)], sort_keys=True, default=str)
