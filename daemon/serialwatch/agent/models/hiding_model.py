"""A model that never sees a secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from serialwatch.agent.models.completion import Completion
from serialwatch.agent.models.model import Endpoint
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.models.spending import Account
from serialwatch.wire import Json

T = TypeVar("T")


class Chat(Protocol):
    """A model as a run asks it: a real one, or one that plays recorded answers."""

    @property
    def endpoint(self) -> Endpoint:
        """Return where it asks."""

    @property
    def account(self) -> Account:
        """Return what its requests have cost."""

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        tool_choice: str = "",
        schema: Json | None = None,
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Return the answer to messages; see `ChatModel`."""

    def ignores_tools(self) -> None:
        """Note that it takes tools and does not use them."""

    async def close(self) -> None:
        """Close its connections."""


class HidingModel:
    """A model that never sees a secret: what `ChatModel` is asked goes through a `Redactor`."""

    def __init__(self, model: Chat, redactor: Redactor | None) -> None:
        self.model = model
        self._redactor = redactor

    @property
    def endpoint(self) -> Endpoint:
        """Return where it asks."""
        return self.model.endpoint

    @property
    def account(self) -> Account:
        """Return what its requests have cost."""
        return self.model.account

    def hidden(self, value: T) -> T:
        """Return messages or an answer as they may be stored: the way they were sent."""
        return self._redactor.hide_all(value) if self._redactor else value

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        tool_choice: str = "",
        schema: Json | None = None,
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Return the answer to messages, as `ChatModel.complete`, with the secrets in it again.

        Raises:
            ModelError: as there; also `ToolsRefusedError`.

        """
        done = await self.model.complete(
            self.hidden(list(messages)),
            tools=tools,
            tool_choice=tool_choice,
            schema=schema,
            max_tokens=max_tokens,
            until=until,
        )
        return _restored(done, self._redactor) if self._redactor else done

    def ignores_tools(self) -> None:
        """Note that it takes tools and does not use them: the next run does without."""
        self.model.ignores_tools()

    async def close(self) -> None:
        """Close its connections."""
        await self.model.close()


def _restored(done: Completion, redactor: Redactor) -> Completion:
    calls = tuple(replace(c, arguments=redactor.restore_json(c.arguments)) for c in done.calls)
    is_json = done.text.lstrip()[:1] in {"{", "["} or "```" in done.text
    text = redactor.restore_json(done.text) if is_json else redactor.restore(done.text)
    return replace(done, text=text, calls=calls, thoughts=redactor.restore(done.thoughts))
