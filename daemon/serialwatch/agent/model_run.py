"""A model's investigation from end to end. Importing it takes a second: the client is large."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from serialwatch.agent.breaker import Breaker
from serialwatch.agent.case import Surroundings
from serialwatch.agent.context import Submit
from serialwatch.agent.loop import NORMAL, Desk, Limits, Loop
from serialwatch.agent.model import ChatModel, Endpoint
from serialwatch.agent.queue import Phase
from serialwatch.agent.reading import read_case
from serialwatch.agent.role import Role
from serialwatch.agent.skill import Skill
from serialwatch.agent.tools import RunTools
from serialwatch.agent.trace import ModelRun
from serialwatch.records import Incident, Report


def open_model(base_url: str, model: str, api_key: str, breaker: Breaker) -> ChatModel:
    """Return the model to ask. It blocks; call it in a thread."""
    return ChatModel(Endpoint(base_url, model, api_key), breaker)


async def ask_model(
    incident: Incident,
    phase: Phase,
    baseline: Report,
    around: Surroundings,
    *,
    chat: ChatModel,
    open_tools: Callable[[Submit], RunTools],
    skills: Iterable[Skill],
    role: Role,
    limits: Limits = NORMAL,
) -> tuple[ModelRun, RunTools]:
    """Return what a model made of the incident, and the tools it used; `chat` is closed."""
    desk = Desk(incident, baseline, f"model {chat.endpoint.model}")
    tools = open_tools(desk.submit)
    try:
        case = await read_case(incident, tools, phase, around)
        run = await Loop(case, baseline, chat, tools, desk, tuple(skills), role, limits).run()
    finally:
        await chat.close()
    return run, tools
