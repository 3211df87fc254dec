"""The models of one run, opened. Importing it takes a second: the client is large."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import partial

from serialwatch.agent.models.cheap_model import CheapModel
from serialwatch.agent.models.completion import Completion, ToolCall
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import Answers, ChatModel, Endpoint, ModelError
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.models.spending import Account
from serialwatch.agent.skills.results import RefusedError
from serialwatch.wire import Json


class Models:
    """The model of a run and the cheaper one beside it; close them when done.

    Both share the run's account, and what hides its secrets. Making them blocks.
    """

    def __init__(self, use: ModelUse, session: str) -> None:
        """Open them for a session such as `incident-7`.

        Raises:
            ModelError: the configured `base_url` is no URL.

        """
        setup = use.setup
        self.account: Account = use.account(session)
        self._use = use
        self._redactor = use.redactor()
        self.chat = self._open(setup.model)
        cheap = setup.cheap_model and setup.cheap_model != setup.model
        self._cheap_chat = self._open(setup.cheap_model) if cheap else self.chat
        self.cheap = CheapModel(self._cheap_chat, max_chars=setup.context_tokens * 2)

    async def answer(self, body: Json) -> Json:
        """Answer what a skill asks the cheaper model.

        Raises:
            RefusedError: it has no answer.

        """
        try:
            text = await self.cheap.complete(body["prompt"], max_tokens=body["max_tokens"])
        except ModelError as exc:
            raise RefusedError("precondition", str(exc)) from exc
        return {"text": text}

    async def close(self) -> None:
        """Close their connections."""
        await self.chat.close()
        if self._cheap_chat is not self.chat:
            await self._cheap_chat.close()

    def _open(self, model: str) -> HidingModel:
        use, setup = self._use, self._use.setup
        endpoint = Endpoint(setup.base_url, model, setup.api_key, temperature=setup.temperature)
        chat = ChatModel(
            endpoint,
            use.breaker,
            can=use.can(model),
            on_learned=partial(use.learned, model),
            account=self.account,
            answers=cached_answers(use) if setup.is_caching else None,
        )
        return HidingModel(chat, self._redactor)


def cached_answers(use: ModelUse) -> Answers:
    """Return the cache of answers: exactly the same request to the same endpoint hits it."""

    async def find(asked: Json) -> Completion | None:
        body = await use.cached(_key(use, asked))
        return None if body is None else _completion(body)

    def keep(asked: Json, completion: Completion) -> None:
        use.keep(_key(use, asked), asdict(completion))

    return Answers(find, keep)


def _key(use: ModelUse, asked: Json) -> str:
    whole = json.dumps([use.setup.base_url, asked], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode("utf-8", errors="backslashreplace")).hexdigest()


def _completion(body: Json) -> Completion:
    return Completion(**{**body, "calls": tuple(ToolCall(**call) for call in body["calls"])})
