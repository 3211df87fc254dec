from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chat_server import Answer, ChatServer, Fail, Json, Raw, Say, Script
from serialwatch.agent.models.model_check import CODE_WORD, EndpointCheck, Finding
from serialwatch.agent.models.model_use import ModelSetup
from serialwatch.cli.main import run_cli

LISTED = Raw('{"data": [{"id": "tiny"}]}')


def able(body: Json) -> Answer:
    """Answer as a model does that can everything."""
    text = body["messages"][-1]["content"]
    if "response_format" in body:
        return Say('{"answer": "yes"}')
    if "tools" in body:
        calls = [("look", {"port": "dut1"}), ("look", {"port": "dut2"})]
        return Say("", calls if "twice" in text else calls[:1])
    if "code word" in text:
        return Say(CODE_WORD, tokens=(len(text) // 4, 5))
    return Say("ready")


def simple(body: Json) -> Answer:
    """Answer as a small local model behind a plain endpoint does."""
    for name in ("tools", "response_format", "temperature"):
        if name in body:
            return Fail(400, f"unsupported param: {name}")
    return Say("ready", is_counted=False)


async def checked(
    script: Script, models: Answer | None = LISTED, **setup: Any
) -> dict[str, Finding]:
    async with ChatServer(script, models) as server:
        wanted = {"base_url": server.base_url, "model": "tiny", **setup}
        return {f.name: f async for f in EndpointCheck(ModelSetup(**wanted)).run()}


def verdicts(found: Mapping[str, Finding]) -> dict[str, str]:
    return {name: finding.verdict for name, finding in found.items()}


async def test_an_endpoint_that_can_everything_is_found_so() -> None:
    found = await checked(able)

    assert set(verdicts(found).values()) == {"yes"}
    assert list(found) == [
        "reachable", "model", "answers", "temperature", "counts tokens", "tools",
        "parallel calls", "forced calls", "json_schema", "json_object", "context",
    ]  # fmt: skip
    assert found["parallel calls"].words == "2 in one answer"
    assert found["tools"].follows == "native tool calls will be used"


async def test_an_endpoint_that_can_little_is_still_usable_and_what_follows_is_told() -> None:
    found = await checked(simple, models=None)

    assert verdicts(found) == {
        "reachable": "yes", "model": "unknown", "answers": "yes", "temperature": "no",
        "counts tokens": "no", "tools": "no", "json_schema": "no", "json_object": "no",
        "context": "partly",
    }  # fmt: skip
    assert found["tools"].follows == "JSON actions will be used instead"
    assert not any(finding.is_fatal for finding in found.values())


async def test_tools_that_are_taken_and_ignored_are_no_tools() -> None:
    found = await checked(lambda body: Say("I would look at dut1."))

    assert found["tools"] == Finding(
        "tools", "no", "it takes them, but answered in words", "JSON actions will be used instead"
    )


async def test_a_context_that_is_cut_is_found() -> None:
    def cutting(body: Json) -> Answer:
        long = len(str(body["messages"])) > 8000
        return Say("what word?", tokens=(2048, 5)) if long else able(body)

    found = await checked(cutting, context_tokens=8192)

    assert found["context"].verdict == "no"
    assert found["context"].words == "it cut a prompt to 2048 tokens without a word"
    assert "lower [agent] context_tokens" in found["context"].follows


async def test_a_model_that_is_not_there_is_fatal_and_others_are_named() -> None:
    models = Raw('{"data": [{"id": "big"}, {"id": "bigger"}]}')
    found = await checked([Fail(404, "model 'tiny' not found")], models)

    assert found["model"].words == "tiny is not listed; 2 are: big, bigger"
    assert list(found)[-1] == "answers"
    assert found["answers"].is_fatal


async def test_a_refused_key_ends_the_check_at_once() -> None:
    found = await checked(able, Fail(401, "bad key"))

    assert list(found) == ["reachable"]
    assert found["reachable"].is_fatal
    assert "is the key right" in found["reachable"].words


async def test_an_endpoint_that_is_not_there_ends_the_check_at_once() -> None:
    with socket.socket() as taken:  # bound, not listening: refuses
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        found = [f async for f in EndpointCheck(ModelSetup(base_url=url, model="tiny")).run()]

    assert [f.name for f in found] == ["reachable"]
    assert "not reachable" in found[0].words


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a key into the environment, the only one."""
    for name in ("CREDENTIALS_DIRECTORY", "SERIALWATCH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    return "sk-very-secret"


async def run_check(path: Path, script: Script, *args: str, models: Answer = LISTED) -> int:
    """Run the command against a server; return its code."""
    async with ChatServer(script, models) as server:
        config = path / "serialwatch.toml"
        config.write_text(
            f'[daemon]\nstate_dir = "{path}"\n'
            f'[agent]\nbase_url = "{server.base_url}"\nmodel = "tiny"\n'
        )
        return await asyncio.to_thread(run_cli, ["agent", "check", "-c", str(config), *args])


async def test_the_command_prints_a_table_and_what_follows_but_no_key(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await run_check(tmp_path, able)
    out, err = capsys.readouterr()

    assert (code, err) == (0, "")
    assert key not in out
    assert "key: from $OPENAI_API_KEY" in out
    assert re.search(r"^  tools +yes$", out, re.MULTILINE)
    assert "tools: yes → native tool calls will be used" in out
    assert re.search(r"this check took \d+", out)


async def test_the_command_answers_in_json_and_fails_where_the_agent_would(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await run_check(tmp_path, able, "--json", models=Fail(403, "no"))
    out, _ = capsys.readouterr()
    body = json.loads(out)

    assert code == 1
    assert (body["ok"], body["model"], body["key"]) == (False, "tiny", "$OPENAI_API_KEY")
    assert [f["name"] for f in body["findings"]] == ["reachable"]
    assert key not in out


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no model is configured; write"), ("[agent]\nmodle = 1\n", ":2: agent.modle: unknown")],
)
def test_without_a_model_the_command_says_what_to_write(
    tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "serialwatch.toml"
    config.write_text(text)

    assert run_cli(["agent", "check", "-c", str(config)]) == 2
    assert told in capsys.readouterr().err
