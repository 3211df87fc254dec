"""A scripted model on a saved stream: the real loop over real HTTP, with every promise checked."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench_analysis import Seen, get_ready, knowledge, reported, skills, watched
from chat_server import ChatServer, Script
from own_streams import STREAMS
from serialwatch.agent.ctx.context import Submit
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import ChatModel, Endpoint
from serialwatch.agent.offline.case import Surroundings
from serialwatch.agent.offline.reading import NOWHERE
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.role import Role, load_role
from serialwatch.agent.run.goal import Goal, goal_of_incident
from serialwatch.agent.run.loop import NORMAL, Limits
from serialwatch.agent.run.model_run import ask_model
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.trace import ModelRun
from serialwatch.agent.workers.direct import DirectTools
from serialwatch.agent.workers.tools import RunTools, Tools
from serialwatch.bundled import bundled_dir
from serialwatch.records import Report

Json = dict[str, Any]
NONCE = "a1b2"
MARKED = re.compile(rf"{NONCE}:[^|\s]+\| ")


@dataclass(frozen=True)
class Result:
    """What a model's run came to."""

    run: ModelRun
    tools: RunTools
    requests: list[Json]
    baseline: Report

    @property
    def report(self) -> Report:
        """Return the model's report."""
        assert self.run.report is not None, self.run.reason
        return self.run.report

    @property
    def published(self) -> Report:
        """Return what stands in the end."""
        return self.run.report or self.baseline


@functools.cache
def role() -> Role:
    """Return the role of who investigates incidents."""
    return load_role([bundled_dir("config/roles")], "log-detective")


@functools.cache
def stream(name: str) -> Seen:
    """Return one of our own streams as the daemon sees it."""
    get_ready()
    return watched(next(s for s in STREAMS if s.id == name).data)


async def investigated(
    seen: Seen,
    script: Script,
    limits: Limits = NORMAL,
    *,
    trigger: str = "uboot.sync_abort",
    base_url: str = "",
    state: RunState | None = None,
    may_ask: bool = False,
    on_tools: Callable[[RunTools], None] = lambda _: None,
    around: Surroundings = NOWHERE,
) -> Result:
    """Let a scripted model investigate an incident of a stream, and check what always holds."""
    incident = seen.of(trigger)
    baseline, _ = await reported(seen, incident)
    state = state or RunState(nonce=NONCE)
    async with (
        ChatServer(script) as server,
        DirectTools("dut1", seen.lines, skills(), knowledge()) as direct,
    ):

        def open_tools(submit: Submit) -> RunTools:
            tools = direct.open("run-1", incident.id, submit)
            on_tools(tools)
            return tools

        endpoint = Endpoint(base_url or server.base_url, "tiny", first_wait_s=0.001)
        chat = HidingModel(ChatModel(endpoint, Breaker()), None)
        run, tools = await ask_model(
            goal_of_incident(incident, "settled", baseline, around),
            chat=chat,
            open_tools=open_tools,
            skills=skills().skills.values(),
            role=role(),
            state=state,
            limits=limits,
            may_ask=may_ask,
        )
        await chat.close()
    result = Result(run, tools, server.requests, baseline)
    published = result.published
    again = verify(published, tools.ledger, tools.results, incident, tools.pages)
    if run.status != "partial":  # the baseline's claims rest on results of its own run
        assert again.dropped == (), "a report holds what its lines do not carry"
    assert all((e.port, e.seq) in tools.ledger for c in published.conclusions for e in c.evidence)
    assert run.state.rounds <= limits.rounds
    assert run.state.tokens <= limits.tokens
    assert len(tools.calls) <= 40
    assert {c.skill for c in tools.calls if c.result.status == "success"} <= set(role().skills)
    assert (run.report is None) <= bool(run.reason)
    for request in server.requests:
        check_request(request)
    return result


def check_request(request: Json) -> None:
    """Check that each call has its answer and that each line of a device stands behind the mark."""
    system, *others = request["messages"]
    assert system["role"] == "system"
    assert MARKED.search(system["content"].replace(f"`{NONCE}:dut1:L12| text`", "")) is None
    wanted: list[str] = []
    for message in others:
        if message["role"] == "tool":
            assert message["tool_call_id"] == wanted.pop(0)
            continue
        assert wanted == [], "a call without an answer"
        wanted = [call["id"] for call in message.get("tool_calls") or ()]
    assert wanted == []


def device_lines(request: Json) -> list[str]:
    """Return the lines of a request that are not the model's own words."""
    return [
        line
        for message in request["messages"]
        if message["role"] != "assistant"
        for line in (message.get("content") or "").split("\n")
    ]


def offered(request: Json) -> list[str]:
    """Return what a model may call."""
    return [tool["function"]["name"] for tool in request.get("tools", ())]


async def asked_about(seen: Seen, text: str, script: Script) -> tuple[ModelRun, list[Json]]:
    """Let a scripted model answer a question about the stream's port."""
    rules = Report(0, 1, "rules", "nothing is known", "unknown", "note", "inconclusive", 0.1)

    async def read_goal(_: Tools) -> Goal:
        return Goal("question", text, rules, port="dut1", ports=("dut1",))

    async with (
        ChatServer(script) as server,
        DirectTools("dut1", seen.lines, skills(), knowledge()) as direct,
    ):
        chat = HidingModel(ChatModel(Endpoint(server.base_url, "tiny"), Breaker()), None)
        run, _ = await ask_model(
            read_goal,
            chat=chat,
            open_tools=lambda submit: direct.open("run-1", None, submit),
            skills=skills().skills.values(),
            role=role(),
            state=RunState(nonce=NONCE),
        )
        await chat.close()
    for request in server.requests:
        check_request(request)
    return run, server.requests
