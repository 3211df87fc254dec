from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chat_server import Answer, ChatServer, Fail, Hang, Raw, Say
from serialwatch.agent.api_key import load_api_key
from serialwatch.agent.model import (
    ChatModel,
    Endpoint,
    ModelError,
    ToolsRefusedError,
)

TOOL = {
    "type": "function",
    "function": {"name": "log-read", "parameters": {"type": "object", "properties": {}}},
}
HELLO = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def asked(base_url: str, key: str = "") -> AsyncIterator[ChatModel]:
    model = ChatModel(Endpoint(base_url, "tiny", key, first_wait_s=0.01))
    try:
        yield model
    finally:
        await model.close()


def soon(limit_s: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + limit_s


async def test_an_answer_comes_back_with_its_calls_and_its_cost() -> None:
    answer = Say("let me look", [("log-read", {"port": "dut1"})], tokens=(70, 9))
    async with ChatServer([answer]) as server, asked(server.base_url, "sk-1") as model:
        got = await model.complete(HELLO, tools=[TOOL], max_tokens=50, until=soon())

    assert got.text == "let me look"
    assert [(c.id, c.name, c.arguments) for c in got.calls] == [
        ("call_1", "log-read", '{"port": "dut1"}')
    ]
    assert got.tokens == 79
    assert server.requests[0]["max_tokens"] == 50
    assert server.requests[0]["tools"] == [TOOL]


async def test_a_busy_endpoint_is_asked_again() -> None:
    script: list[Answer] = [Fail(429, headers={"Retry-After": "0.02"}), Fail(500), Say("there")]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        got = await model.complete(HELLO, max_tokens=5, until=soon())

    assert got.text == "there"
    assert model.requests == {"status 429": 1, "status 500": 1, "ok": 1}


async def test_three_failures_are_enough() -> None:
    async with ChatServer([Fail(503, "overloaded")]) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match=r"HTTP 503: overloaded"):
            await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 3


async def test_an_endpoint_that_keeps_failing_is_left_alone() -> None:
    async with ChatServer([Fail(503, "overloaded")]) as server, asked(server.base_url) as model:
        for _ in range(3):
            with pytest.raises(ModelError, match=r"HTTP 503: overloaded"):
                await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 5, "three, two, none"


async def test_an_endpoint_that_answers_nonsense_is_left_alone_too() -> None:
    async with ChatServer([Raw("<html>")]) as server, asked(server.base_url) as model:
        for _ in range(6):
            with pytest.raises(ModelError, match="no chat completion"):
                await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 5


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    script = [Fail(429, "slow down", headers={"Retry-After": "15"})]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        async with asyncio.timeout(2):
            with pytest.raises(ModelError, match="slow down"):
                await model.complete(HELLO, max_tokens=5, until=soon(5))

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Fail(401, "bad key"), r"HTTP 401: bad key \(is the key right\?\)"),
        (Fail(404, "no such model"), "HTTP 404: no such model"),
        (Fail(429, "pay", code="insufficient_quota"), r"HTTP 429: pay \(the quota is spent\)"),
        (Raw("<html>hello</html>", "text/html"), "the answer is no chat completion"),
        (Raw('{"choices": []}'), "the answer is no chat completion"),
        (Raw('{"choices": [{"message": {"tool_calls": [{"id": 1}]}}]}'), "no chat completion"),
    ],
)
async def test_what_will_not_get_better_is_not_asked_again(answer: Fail | Raw, told: str) -> None:
    async with ChatServer([answer]) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match=told):
            await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 1


async def test_an_endpoint_that_takes_no_tools_says_so() -> None:
    script = [Fail(400, "registry/tiny does not support tools")]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        with pytest.raises(ToolsRefusedError):
            await model.complete(HELLO, tools=[TOOL], max_tokens=5, until=soon())


async def test_an_endpoint_may_ask_for_the_newer_name_of_the_limit() -> None:
    script: list[Answer] = [
        Fail(400, "Use 'max_completion_tokens' instead."),
        Say("fine"),
        Say("again"),
    ]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        await model.complete(HELLO, max_tokens=5, until=soon())
        await model.complete(HELLO, max_tokens=5, until=soon())

    assert ["max_completion_tokens" in body for body in server.requests] == [False, True, True]


async def test_an_endpoint_that_hangs_is_left_at_the_deadline() -> None:
    async with ChatServer([Hang()]) as server, asked(server.base_url) as model:
        async with asyncio.timeout(2):
            with pytest.raises(ModelError, match="no answer in 0 s"):
                await model.complete(HELLO, max_tokens=5, until=soon(0.2))


async def test_an_endpoint_that_is_down_is_named_without_its_password() -> None:
    with socket.socket() as taken:  # bound, not listening: refuses
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        async with asked(f"http://me:secret@{where}/v1") as model:
            with pytest.raises(ModelError) as told:
                await model.complete(HELLO, max_tokens=5, until=soon())

    assert str(told.value).startswith(f"{where}: not reachable")
    assert model.requests == {"down": 3}


async def test_tokens_are_estimated_where_none_are_told() -> None:
    body = '{"choices": [{"message": {"content": "abcdef"}, "finish_reason": "stop"}]}'
    async with ChatServer([Raw(body)]) as server, asked(server.base_url) as model:
        got = await model.complete(HELLO, max_tokens=5, until=soon())

    assert got.completion_tokens == 2
    assert got.prompt_tokens > 10


def test_the_key_comes_from_systemd_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "llm-api-key").write_text("from-file\n")

    assert load_api_key({"CREDENTIALS_DIRECTORY": str(tmp_path), "OPENAI_API_KEY": "x"}) == (
        "from-file"
    )
    assert load_api_key({"OPENAI_API_KEY": "x", "SERIALWATCH_API_KEY": "y"}) == "y"
    assert load_api_key({"CREDENTIALS_DIRECTORY": "/nonexistent"}) == ""
