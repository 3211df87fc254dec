from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chat_server import Answer, ChatServer, Fail, Json, Say, Script
from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.models.abilities import Abilities
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.cheap_model import CheapModel
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import ChatModel, Endpoint, ModelError
from serialwatch.agent.models.model_use import ModelSetup, ModelUse
from serialwatch.agent.models.open_models import Models
from serialwatch.agent.models.redaction import Redactor
from serialwatch.service.model_use import take_answer, take_endpoint, take_spent
from serialwatch.store.database import Database
from serialwatch.store.spending import load_spending

HELLO = [{"role": "user", "content": "password=hunter2000 on the console"}]


class Core:
    """The core's database, and the agent's part that speaks with it."""

    def __init__(self, db: Database, path: Path) -> None:
        self.db = db
        self.path = path
        self.is_deaf = False
        self._use: ModelUse | None = None

    async def ask(self, op: str, body: Mapping[str, Any]) -> Any:
        if self.is_deaf:
            raise CoreError(f"{op}: the core is gone")
        take = {"spent": take_spent, "endpoint": take_endpoint, "cached": take_answer}[op]
        await take(self.db, dict(body))

    async def told(self) -> None:
        """Wait until the core was told everything, and has taken it or not."""
        use = self._use
        assert use is not None
        while use._is_news.is_set() or use._outbox or (use._unsent and not self.is_deaf):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def agent(self, **setup: Any) -> AsyncIterator[ModelUse]:
        """Give what a freshly started agent knows of its models."""
        archive = Archive(logs_below(self.path), self.path / "serialwatch.db")
        use = ModelUse(ModelSetup(**setup), archive, Breaker(), self.ask)
        await use.restore()
        self._use = use
        telling = asyncio.create_task(use.run(), name="use of models")
        yield use
        await self.told()
        telling.cancel()
        archive.close()

    async def spent(self) -> list[tuple[str, int, int, int]]:
        day = time.strftime("%Y-%m-%d", time.gmtime())
        rows = await self.db.run(lambda db: load_spending(db, day))
        return [(r.model, r.calls, r.prompt_tokens, r.completion_tokens) for r in rows]


@asynccontextmanager
async def core(path: Path) -> AsyncIterator[Core]:
    db = Database(path / "serialwatch.db")
    db.start()
    await db.run(lambda _: None)  # its tables are there
    yield Core(db, path)
    await db.stop()


@asynccontextmanager
async def opened(use: ModelUse, session: str = "incident-1") -> AsyncIterator[Models]:
    models = Models(use, session)
    yield models
    await models.close()


def soon() -> float:
    return asyncio.get_running_loop().time() + 10


async def test_the_next_agent_knows_what_the_last_one_spent_and_learned(tmp_path: Path) -> None:
    script: list[Answer] = [Fail(400, "temperature is fixed"), Say("hi", tokens=(700, 80))]
    async with ChatServer(script) as server, core(tmp_path) as bench:
        setup = {"base_url": server.base_url, "model": "tiny"}
        async with bench.agent(**setup) as use, opened(use) as models:
            await models.chat.complete(HELLO, max_tokens=5, until=soon())
        async with bench.agent(**setup) as again:
            can, refusal = again.can("tiny"), again._spending._tokens

        assert can == Abilities(temperature=False)
        assert refusal == 780
        assert await bench.spent() == [("tiny", 1, 700, 80)]


async def test_what_an_endpoint_could_not_is_tried_again_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core(tmp_path) as bench, bench.agent(base_url="http://x/v1", model="tiny") as use:
        use.learned("tiny", Abilities(tools=False))
        before = use.can("tiny")
        later_s = time.time() + 24 * 3600 + 1
        monkeypatch.setattr(time, "time", lambda: later_s)

        assert before == Abilities(tools=False)
        assert use.can("tiny") == Abilities()


async def test_what_the_core_did_not_take_is_told_with_the_next(tmp_path: Path) -> None:
    async with ChatServer([Say("hi", tokens=(10, 1))]) as server, core(tmp_path) as bench:
        agent = bench.agent(base_url=server.base_url, model="tiny")
        async with agent as use, opened(use) as models:
            bench.is_deaf = True
            await models.chat.complete(HELLO, max_tokens=5, until=soon())
            await bench.told()
            bench.is_deaf = False
            await models.chat.complete(HELLO, max_tokens=5, until=soon())
            await bench.told()

        assert await bench.spent() == [("tiny", 2, 20, 2)]


async def test_secrets_stay_here_and_come_back_in_answers(tmp_path: Path) -> None:
    def answer(body: Json) -> Answer:
        heard = body["messages"][-1]["content"]
        word = heard.partition("=")[2].split()[0]
        return Say(f"it was {word}", [("log-read", {"match": word})])

    async with ChatServer(answer) as server, core(tmp_path) as bench:
        agent = bench.agent(base_url=server.base_url, model="tiny")
        async with agent as use, opened(use) as models:
            got = await models.chat.complete(HELLO, max_tokens=5, until=soon())
            kept = models.chat.hidden(HELLO)

    assert "hunter2000" not in str(server.requests)
    assert got.text == "it was hunter2000"
    assert got.calls[0].arguments == '{"match": "hunter2000"}'
    assert kept == server.requests[0]["messages"]


async def test_redaction_can_be_switched_off(tmp_path: Path) -> None:
    async with ChatServer([Say("x")]) as server, core(tmp_path) as bench:
        setup = {"base_url": server.base_url, "model": "tiny", "is_redacting": False}
        async with bench.agent(**setup) as use, opened(use) as models:
            await models.chat.complete(HELLO, max_tokens=5, until=soon())

    assert server.requests[0]["messages"] == HELLO


async def test_the_same_request_is_answered_from_the_cache_and_costs_nothing(
    tmp_path: Path,
) -> None:
    script = [Say("first", [("log-read", {"port": "dut1"})]), Say("second")]
    async with ChatServer(script) as server, core(tmp_path) as bench:
        setup = {"base_url": server.base_url, "model": "tiny", "is_caching": True}
        async with bench.agent(**setup) as use:
            async with opened(use) as models:
                first = await models.chat.complete(HELLO, max_tokens=5, until=soon())
            await bench.told()
            async with opened(use, "incident-2") as models:
                again = await models.chat.complete(HELLO, max_tokens=5, until=soon())
                tokens = models.account.tokens
                other = await models.chat.complete(HELLO, max_tokens=6, until=soon())

        stored = await bench.db.run(
            lambda db: [row["body_json"] for row in db.query("SELECT * FROM cached_answers")]
        )

    assert (again.text, again.calls) == (first.text, first.calls)
    assert (again.tokens, tokens) == (0, 0)
    assert other.text == "second"
    assert len(server.requests) == 2
    assert "hunter2000" not in str(stored)


async def test_without_a_cache_every_request_goes_out(tmp_path: Path) -> None:
    async with ChatServer([Say("x")]) as server, core(tmp_path) as bench:
        agent = bench.agent(base_url=server.base_url, model="tiny")
        async with agent as use, opened(use) as models:
            for _ in range(2):
                await models.chat.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 2


async def test_mechanical_steps_go_to_the_cheaper_model_on_the_same_account(
    tmp_path: Path,
) -> None:
    async with ChatServer([Say(" short ", tokens=(30, 3))]) as server, core(tmp_path) as bench:
        setup = {"base_url": server.base_url, "model": "big", "cheap_model": "small"}
        async with bench.agent(**setup) as use, opened(use) as models:
            text = (await models.answer({"prompt": "shorten this", "max_tokens": 20}))["text"]

        assert text == "short"
        assert server.requests[0]["model"] == "small"
        assert models.account.tokens == 33
        assert await bench.spent() == [("small", 1, 30, 3)]


SCHEMA: Json = {
    "type": "object",
    "properties": {"level": {"enum": ["low", "high"]}},
    "required": ["level"],
}


async def cheaply(script: Script, text: str = "how hot?") -> tuple[Any, list[Json]]:
    async with ChatServer(script) as server:
        chat = HidingModel(ChatModel(Endpoint(server.base_url, "small")), Redactor())
        try:
            return await CheapModel(chat, 100).complete_json(text, SCHEMA), server.requests
        finally:
            await chat.close()


async def test_json_of_a_schema_is_found_in_what_the_cheap_model_says() -> None:
    found, requests = await cheaply([Say('Sure:\n```json\n{"level": "low"}\n```')])

    assert found == {"level": "low"}
    assert requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_json_that_does_not_fit_may_be_mended_once() -> None:
    found, requests = await cheaply([Say('{"level": "warm"}'), Say('{"level": "high"}')])

    assert found == {"level": "high"}
    assert "$.level: 'warm' is not one of ['low', 'high']" in requests[1]["messages"][-1]["content"]


async def test_a_cheap_model_that_does_not_get_it_is_left() -> None:
    with pytest.raises(ModelError, match="not what was asked for: it is no JSON"):
        await cheaply([Say("no idea")])


async def test_a_text_that_is_too_long_costs_nothing() -> None:
    with pytest.raises(ModelError, match="101 characters is too long; 100 fit"):
        await cheaply([Say("{}")], "x" * 101)
