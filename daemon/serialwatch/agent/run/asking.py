"""Ask the configured model: opened in a thread, its run stored step by step, closed at the end."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from serialwatch.agent.ctx.context import Submit
from serialwatch.agent.equipment import Equipment
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.models.tokens import Estimator
from serialwatch.agent.role import Role
from serialwatch.agent.run.diary import Diary
from serialwatch.agent.run.goal import ReadGoal
from serialwatch.agent.run.past_run import PastRun
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.trace import ModelRun, Round, RunRecord
from serialwatch.agent.workers.tools import RunTools, Tools
from serialwatch.wire import Json

MODEL_RUN = "serialwatch.agent.run.model_run"  # imported in a thread, when a model is configured
CHOICE_S = 15.0  # of a model that chooses among a few words


class Asking:
    """Runs of the configured model, for incidents and questions alike."""

    def __init__(self, equipment: Equipment, use: ModelUse, loader: ThreadPoolExecutor) -> None:
        self._equipment = equipment
        self._use = use
        self._loader = loader
        self._estimator = Estimator()

    async def choose(self, session: str, prompt: str, schema: Json, key: str) -> str:
        """Return the cheap model's choice in one call, "" if it has none.

        `schema` is that of an object in which `key` has the choice.

        Raises:
            ModelError: no model can be opened.

        """
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._loader, importlib.import_module, MODEL_RUN)
        models = await loop.run_in_executor(self._loader, found.open_models, self._use, session)
        try:
            until = loop.time() + CHOICE_S
            return str(await found.choose(models, prompt, schema, key, until))
        finally:
            await models.close()

    async def ask(
        self,
        record: RunRecord,
        read_goal: ReadGoal,
        role: Role,
        state: RunState,
        past: PastRun | None = None,
        *,
        may_ask: bool = True,
    ) -> tuple[ModelRun, RunTools, Diary]:
        """Return what the model made of it, the tools it used, and where its run is stored.

        Whoever asked closes the diary once what came of it is published. `past` is the part of
        the run that is over, if it is taken up; `may_ask` lets it wait for a person's answer.

        Raises:
            ModelError: no model can be opened.

        """
        loop, setup = asyncio.get_running_loop(), self._use.setup
        session = record.session
        found = await loop.run_in_executor(self._loader, importlib.import_module, MODEL_RUN)
        models = await loop.run_in_executor(
            self._loader, found.open_models, self._use, session.session_id
        )
        diary = Diary(self._equipment.link, record)

        async def complete(body: Json) -> Json:
            text = await models.cheap.complete(body["prompt"], max_tokens=body["max_tokens"])
            return {"text": text}

        def open_tools(submit: Submit) -> RunTools:
            nonlocal diary
            tools = self._equipment.tools(
                record.id,
                port=session.port,
                incident=session.incident_id,
                session_id=session.session_id,
                submit=submit,
                complete=complete,
                role=role,
                user=session.user_id,
            )
            if past is not None:
                past.hand_over(tools)
                diary = Diary(self._equipment.link, record, tools)
                past.hand_late(tools)
            return tools

        async def keep(state: RunState, rounds: Sequence[Round], tools: Tools) -> None:
            await diary.keep(state, rounds, tools)

        usual = found.NORMAL
        limits = found.Limits(
            rounds=int(role.limit("rounds", usual.rounds)),
            tokens=int(role.limit("tokens", setup.caps.tokens_per_incident or usual.tokens)),
            seconds=role.limit("seconds", usual.seconds),
            context_tokens=setup.context_tokens,
        )
        try:
            run, tools = await found.ask_model(
                read_goal,
                chat=models.chat,
                open_tools=open_tools,
                skills=self._equipment.registry.skills.values(),
                role=role,
                state=state,
                limits=limits,
                estimator=self._estimator,
                keep=keep,
                may_ask=may_ask,
                may_propose=self._equipment.may_propose and session.incident_id is not None,
            )
        finally:
            self._equipment.forget(record.id)
            await models.close()
        return run, tools, diary
