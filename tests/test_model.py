from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chat_server import Answer, Broken, ChatServer, Fail, Hang, Json, Raw, Say
from serialwatch.agent.models.abilities import Abilities, abilities_from_json, abilities_to_json
from serialwatch.agent.models.api_key import find_api_key, load_api_key
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.completion import NoCompletionError, read_completion
from serialwatch.agent.models.model import (
    ChatModel,
    Endpoint,
    ModelError,
    ToolsRefusedError,
)
from serialwatch.agent.models.spending import Caps, Spending

TOOL = {
    "type": "function",
    "function": {"name": "log-read", "parameters": {"type": "object", "properties": {}}},
}
HELLO = [{"role": "user", "content": "hello"}]


SCHEMA: Json = {"type": "object", "properties": {"next_action": {"type": "string"}}}


@asynccontextmanager
async def asked(
    base_url: str, key: str = "", can: Abilities | None = None, temperature: float = 0.2
) -> AsyncIterator[ChatModel]:
    endpoint = Endpoint(base_url, "tiny", key, first_wait_s=0.01, temperature=temperature)
    model = ChatModel(endpoint, can=can)
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
    assert server.requests[0]["temperature"] == 0.2
    assert server.keys == ["Bearer sk-1"]


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


async def test_an_error_that_comes_with_status_200_is_told_and_asked_again_if_it_may_pass() -> None:
    error = '{"error": {"message": "sk-1 is overloaded", "code": 502}}'
    async with ChatServer([Raw(error), Say("ok")]) as server:
        model = ChatModel(Endpoint(server.base_url, "tiny", api_key="sk-1", first_wait_s=0.01))
        assert (await model.complete(HELLO, max_tokens=5, until=soon())).text == "ok"
        await model.close()
    async with ChatServer([Raw(error)]) as server:
        model = ChatModel(Endpoint(server.base_url, "tiny", api_key="sk-1", first_wait_s=0.01))
        with pytest.raises(ModelError, match=r"an error: \(the key\) is overloaded"):
            await model.complete(HELLO, max_tokens=5, until=soon())
        await model.close()


@pytest.mark.parametrize("lie", [0, -5, 10**9, 99_000_000, 1.5, True, "12"])
async def test_a_count_that_cannot_be_is_not_believed(lie: object) -> None:
    body = {
        "choices": [{"message": {"content": "abcdef"}}],
        "usage": {"prompt_tokens": lie, "completion_tokens": lie},
    }
    async with ChatServer([Raw(json.dumps(body))]) as server, asked(server.base_url) as model:
        long = [{"role": "user", "content": "a word or two " * 800}]
        got = await model.complete(long, max_tokens=5, until=soon())

        assert not got.is_counted
        assert 3_000 < got.prompt_tokens < 5_000
        assert got.completion_tokens == 2
        assert not model.can.cuts_context


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
        (Raw("<html>hello</html>", "text/html"), r"but a web page \(is base_url right\?\)"),
        (Raw('data: {"choices": []}\n\n', "text/event-stream"), "but a stream, which was not"),
        (Raw('{"error": {"message": "no\\u001bsuch plan"}}'), "but an error: no such plan$"),
        (Raw('{"error": "no credit"}'), "but an error: no credit$"),
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


def test_where_the_key_was_found_is_told_but_never_the_key(tmp_path: Path) -> None:
    (tmp_path / "llm-api-key").write_text("secret-1")
    found = find_api_key({"CREDENTIALS_DIRECTORY": str(tmp_path)})

    assert found.source == "systemd's credential llm-api-key"
    assert "secret-1" not in repr(found)
    assert find_api_key({"OPENAI_API_KEY": "x"}).source == "$OPENAI_API_KEY"
    assert find_api_key({}).source == ""


def refusing(names: dict[str, str]) -> object:
    """Return a script that refuses what is in a request by name, in these words."""

    def answer(body: Json) -> Answer:
        for name, words in names.items():
            if name in body:
                return Fail(400, words)
        return Say("fine")

    return answer


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("Unsupported value: 'temperature' does not support 0.2, only 1.", Abilities(temperature=False)),
        ("Use 'max_completion_tokens' instead of max_tokens.", Abilities(limit_name="max_completion_tokens")),
        ("tool_choice: only auto is supported", Abilities(tool_choice="required")),
        ("response_format type json_schema is not available", Abilities(response_format="json_object")),
        ("registry/tiny does not support tools", Abilities(tools=False)),
        ('"auto" tool choice requires --enable-auto-tool-choice', Abilities(tools=False)),
        ("Extra inputs are not permitted: tools", Abilities(tools=False)),
        ("prompt is too long: 9000 tokens", None),
        ("bad request", None),
    ],
)  # fmt: skip
def test_a_refusal_teaches_what_it_names(words: str, left: Abilities | None) -> None:
    asked = {"temperature": 0, "max_tokens": 1, "tools": [], "tool_choice": 1, "response_format": 1}

    assert Abilities().after_refusal(words, asked) == left


def test_a_refusal_of_what_was_not_asked_for_teaches_nothing() -> None:
    assert Abilities().after_refusal("temperature is not supported", {"tools": []}) is None


def test_abilities_survive_the_store_and_nonsense_in_it() -> None:
    can = Abilities(tools=False, response_format="none", temperature=False, cuts_context=True)

    assert abilities_from_json(abilities_to_json(can)) == can
    assert abilities_from_json({"tools": "maybe", "response_format": "xml", "x": 1}) == Abilities()


async def test_an_endpoint_that_can_little_is_asked_for_little_and_never_again_for_more() -> None:
    told: list[Abilities] = []
    script = refusing(
        {
            "temperature": "temperature is fixed for this model",
            "response_format": "response_format is not supported",
            "max_tokens": "max_tokens is not supported, use max_completion_tokens",
        }
    )
    async with ChatServer(script) as server, asked(server.base_url) as model:
        model._on_learned = told.append
        for _ in range(2):
            got = await model.complete(HELLO, schema=SCHEMA, max_tokens=5, until=soon())

    assert got.text == "fine"
    assert len(server.requests) == 4 + 2
    assert set(server.requests[-1]) == {"model", "messages", "max_completion_tokens"}
    assert told[-1] == model.can
    assert model.can.response_format == "none"
    assert not model._breaker.is_open


async def test_what_was_learned_before_is_not_tried_again() -> None:
    can = Abilities(temperature=False, response_format="json_object")
    async with ChatServer([Say("{}")]) as server, asked(server.base_url, can=can) as model:
        await model.complete(HELLO, schema=SCHEMA, max_tokens=5, until=soon())

    (request,) = server.requests
    assert "temperature" not in request
    assert request["response_format"] == {"type": "json_object"}


async def test_tools_are_not_sent_to_a_model_that_is_known_to_take_none() -> None:
    can = Abilities(tools=False)
    async with ChatServer([Say("x")]) as server, asked(server.base_url, can=can) as model:
        with pytest.raises(ToolsRefusedError, match="takes no tools"):
            await model.complete(HELLO, tools=[TOOL], max_tokens=5, until=soon())

    assert server.requests == []


async def test_a_model_that_ignores_its_tools_is_learned_once() -> None:
    told: list[Abilities] = []
    async with asked("http://127.0.0.1:1/v1") as model:
        model._on_learned = told.append
        model.ignores_tools()
        model.ignores_tools()

    assert told == [Abilities(tools=False)]


async def test_a_function_is_asked_for_by_name_then_as_required_then_not_at_all() -> None:
    script = [Fail(400, "tool_choice is not supported"), Fail(422, "tool_choice: bad"), Say("x")]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        await model.complete(
            HELLO, tools=[TOOL], tool_choice="log-read", max_tokens=5, until=soon()
        )

    named = {"type": "function", "function": {"name": "log-read"}}
    assert [r.get("tool_choice") for r in server.requests] == [named, "required", None]


async def test_an_endpoint_that_always_refuses_is_not_asked_for_ever() -> None:
    def contrary(body: Json) -> Answer:
        name = "max_completion_tokens" if "max_tokens" in body else "max_tokens"
        return Fail(400, f"max_completion_tokens or {name}, who knows")

    async with ChatServer(contrary) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match="who knows"):
            await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) <= 8


async def test_the_list_of_fastapi_names_the_parameter_too() -> None:
    detail = '{"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs"}]}'

    def answer(body: Json) -> Answer:
        return Fail(422, detail) if "response_format" in body else Say("fine")

    async with ChatServer(answer) as server, asked(server.base_url) as model:
        got = await model.complete(HELLO, schema=SCHEMA, max_tokens=5, until=soon())

    assert got.text == "fine"
    assert len(server.requests) == 3


async def test_thoughts_are_no_answer_and_get_room_next_time() -> None:
    script = [
        Say("", more={"reasoning_content": "let me see"}, finish_reason="length"),
        Say("<think>hm {}</think>\n{}"),
    ]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        first = await model.complete(HELLO, max_tokens=50, until=soon())
        second = await model.complete(HELLO, max_tokens=50, until=soon())

    assert (first.text, first.thoughts, first.finish_reason) == ("", "let me see", "length")
    assert (second.text, second.thoughts) == ("{}", "hm {}")
    assert [r["max_tokens"] for r in server.requests] == [50, 2050]


async def test_an_answer_that_a_server_takes_for_a_thought_is_one() -> None:
    script = [Say("", more={"reasoning_content": '{"a": 1}'})]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        got = await model.complete(HELLO, max_tokens=50, until=soon())

    assert got.text == '{"a": 1}'


async def test_text_in_parts_is_put_together() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    async with (
        ChatServer([Say(more={"content": parts})]) as server,
        asked(server.base_url) as model,
    ):
        got = await model.complete(HELLO, max_tokens=50, until=soon())

    assert got.text == "one two"


async def test_a_prompt_that_the_endpoint_cuts_is_noticed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = [{"role": "user", "content": "the board prints its name again " * 400}]
    script = [Say("ok", tokens=(900, 5))]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        for _ in range(2):
            await model.complete(long, max_tokens=5, until=soon())

    assert model.can.cuts_context
    (told,) = [r.message for r in caplog.records if "cuts prompts" in r.message]
    assert "900 tokens of about 3395" in told


async def test_a_short_prompt_or_one_without_a_count_was_not_cut() -> None:
    long = [{"role": "user", "content": "the board prints its name again " * 400}]
    script = [Say("ok", tokens=(3, 5)), Say("ok", is_counted=False)]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        await model.complete(HELLO, max_tokens=5, until=soon())
        got = await model.complete(long, max_tokens=5, until=soon())

    assert not model.can.cuts_context
    assert got.prompt_tokens > 3000


async def test_a_body_that_never_ends_is_left_at_its_limit() -> None:
    async with ChatServer([Broken(is_endless=True)]) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match="its answer has more than 4194304 bytes"):
            await model.complete(HELLO, max_tokens=5, until=soon())

    assert len(server.requests) == 1


async def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    script = [Broken(b'{"choices": ['), Say("whole")]
    async with ChatServer(script) as server, asked(server.base_url) as model:
        got = await model.complete(HELLO, max_tokens=5, until=soon())

    assert got.text == "whole"
    assert model.requests == {"down": 1, "ok": 1}


async def test_a_compressed_answer_is_not_unfolded() -> None:
    raw = Raw("x", headers={"Content-Encoding": "gzip"})
    async with ChatServer([raw]) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match="it compressed its answer"):
            await model.complete(HELLO, max_tokens=5, until=soon())


async def test_a_redirect_is_told_and_the_key_does_not_follow_it() -> None:
    async with ChatServer([Say("caught")]) as other:
        there = {"Location": f"{other.base_url}/chat/completions"}
        script = [Fail(307, headers=there)]
        async with ChatServer(script) as server, asked(server.base_url, "sk-1") as model:
            with pytest.raises(ModelError, match=r"HTTP 307: it redirects to 127\.0\.0\.1:"):
                await model.complete(HELLO, max_tokens=5, until=soon())

    assert other.requests == []


async def test_a_key_that_the_endpoint_repeats_is_not_told() -> None:
    script = [Fail(401, "Incorrect API key provided: sk-secret-1.")]
    async with ChatServer(script) as server, asked(server.base_url, "sk-secret-1") as model:
        with pytest.raises(ModelError) as told:
            await model.complete(HELLO, max_tokens=5, until=soon())

    assert "HTTP 401: Incorrect API key provided: (the key)." in str(told.value)


async def test_a_missing_v1_is_suspected() -> None:
    async with ChatServer([Say("x")]) as server, asked(server.base_url[:-3]) as model:
        with pytest.raises(ModelError, match=r"HTTP 404: .* \(does base_url lack a /v1 at its end"):
            await model.complete(HELLO, max_tokens=5, until=soon())


async def test_every_billed_token_counts_also_of_what_came_back_broken() -> None:
    spending = Spending(Caps(price_in=1.0, price_out=10.0))
    usage = '"usage": {"prompt_tokens": 500, "completion_tokens": 50}'
    script = [Raw("{" + usage + "}"), Say("ok", tokens=(100, 20))]
    async with ChatServer(script) as server:
        endpoint = Endpoint(server.base_url, "tiny", first_wait_s=0.01)
        model = ChatModel(endpoint, Breaker(), account=spending.account("incident-1"))
        with pytest.raises(ModelError, match="no chat completion"):
            await model.complete(HELLO, max_tokens=5, until=soon())
        await model.complete(HELLO, max_tokens=5, until=soon())
        await model.close()

    assert model.account.tokens == 670
    assert model.account.price == pytest.approx(600e-6 + 70e-5)


async def test_nothing_is_asked_when_the_budget_is_spent() -> None:
    spending = Spending(Caps(tokens_per_day=1000))
    async with ChatServer([Say("ok", tokens=(900, 90))]) as server:
        model = ChatModel(Endpoint(server.base_url, "tiny"), account=spending.account("incident-1"))
        await model.complete(HELLO, max_tokens=5, until=soon())
        with pytest.raises(ModelError, match="the budget of 1000 tokens a day is spent"):
            await model.complete(HELLO, max_tokens=5, until=soon())
        await model.close()

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (Raw('{"data": [{"id": "tiny"}, {"id": "big"}]}'), ["tiny", "big"]),
        (Fail(404), None),
        (Raw("<html>"), None),
        (Raw('{"data": 3}'), None),
    ],
)
async def test_models_are_listed_where_the_endpoint_does(
    answer: Answer, names: list[str] | None
) -> None:
    async with ChatServer([], models=answer) as server, asked(server.base_url) as model:
        assert await model.list_models() == names


async def test_a_refused_key_shows_in_the_list_of_models() -> None:
    async with ChatServer([], models=Fail(401, "no")) as server, asked(server.base_url) as model:
        with pytest.raises(ModelError, match="is the key right"):
            await model.list_models()


BODY: Json = {
    "choices": [
        {
            "message": {
                "content": "text",
                "reasoning_content": "hm",
                "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "{}"}}],
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 6},
}


def mangled(value: object, chance: random.Random) -> object:
    """Return JSON with a part of it replaced by what nobody expects."""
    if chance.random() < 0.12:
        return chance.choice([None, [], {}, "x", "\ud800", 10**40, -1, 0.5, True, [[]], [None]])
    if isinstance(value, dict):
        return {key: mangled(item, chance) for key, item in value.items()}
    if isinstance(value, list):
        return [mangled(item, chance) for item in value]
    return value


def test_whatever_a_body_holds_it_is_a_completion_or_none() -> None:
    chance = random.Random(7)
    good = 0
    for _ in range(3000):
        text = json.dumps(mangled(BODY, chance))
        if chance.random() < 0.1:
            text = text[: chance.randrange(len(text))]
        try:
            got = read_completion(text, 300, 1)
        except NoCompletionError:
            continue
        good += 1
        assert 0 <= got.tokens <= 70_000
        (got.text + got.thoughts + "".join(c.name + c.arguments for c in got.calls)).encode()

    assert 500 < good < 2900


def test_halves_of_characters_go_whole_ones_stay() -> None:
    arguments = r'{"a": "\ud83d\ude00 \ud83d \ude00"}'
    call = {"id": "1", "function": {"name": "a", "arguments": arguments}}
    text = json.dumps({"choices": [{"message": {"content": "\ud800!", "tool_calls": [call]}}]})
    got = read_completion(text, 1, 1)

    assert got.text == "?!"
    assert json.loads(got.calls[0].arguments) == {"a": "\U0001f600 \ufffd \ufffd"}
