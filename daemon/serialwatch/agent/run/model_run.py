"""A model's run from end to end. Importing it takes a second: the client is large."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from serialwatch.agent.ctx.context import Submit
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import ModelError
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.models.open_models import Models
from serialwatch.agent.models.tokens import Estimator
from serialwatch.agent.role import Role
from serialwatch.agent.run.desk import Desk
from serialwatch.agent.run.goal import ReadGoal
from serialwatch.agent.run.loop import NORMAL, Keep, Limits, Loop, keep_nothing
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.trace import ModelRun
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.workers.tools import RunTools
from serialwatch.wire import Json

log = logging.getLogger(__name__)


def open_models(use: ModelUse, session: str) -> Models:
    """Return the models to ask. It blocks; call it in a thread.

    Raises:
        ModelError: the configured endpoint is no URL.

    """
    return Models(use, session)


async def choose(models: Models, prompt: str, schema: Json, key: str, until: float) -> str:
    """Return what the cheap model chose in one call, "" if it did not.

    `schema` is that of an object in which `key` has the choice.
    """
    try:
        told = await models.cheap.complete_json(prompt, schema, max_tokens=60, until=until)
    except ModelError as exc:
        log.info("the model did not choose: %s", exc)
        return ""
    return str(told[key])


async def ask_model(
    read_goal: ReadGoal,
    *,
    chat: HidingModel,
    open_tools: Callable[[Submit], RunTools],
    skills: Iterable[Skill],
    role: Role,
    state: RunState,
    limits: Limits = NORMAL,
    estimator: Estimator | None = None,
    keep: Keep = keep_nothing,
    may_ask: bool = False,
    may_propose: bool = False,
) -> tuple[ModelRun, RunTools]:
    """Return what a model made of it, and the tools it used."""
    desk = Desk(f"model {chat.endpoint.model}")
    tools = open_tools(desk.submit)
    goal = await read_goal(tools)
    loop = Loop(
        goal,
        chat,
        tools,
        desk,
        tuple(skills),
        role,
        state,
        limits=limits,
        estimator=estimator,
        keep=keep,
        may_ask=may_ask,
        may_propose=may_propose,
    )
    return await loop.run(), tools
