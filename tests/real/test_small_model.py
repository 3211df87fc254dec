"""A real model, far too small for the work: nothing it says may harm, and nothing may hang."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_model import weights

from bench_analysis import Seen, get_ready, watched
from bench_model import investigated
from serialwatch.agent.models.model import ChatModel, Endpoint
from serialwatch.agent.models.model_check import EndpointCheck
from serialwatch.agent.models.model_use import ModelSetup
from serialwatch.agent.run.loop import Limits

HAS_MODEL = importlib.util.find_spec("xllamacpp") is not None and weights() is not None

pytestmark = [
    pytest.mark.real_llm,
    pytest.mark.skipif(not HAS_MODEL, reason="needs a small model: make real-llm"),
]

ABORT = b"""
U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)
DRAM:  128 MiB
=> md.l 0xffffffffff000000 4
"Synchronous Abort" handler, esr 0x96000004
elr: 0000000000081104 lr : 0000000000081054 (reloc)
Resetting CPU ...
resetting ...
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run the server; return its base URL."""
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("small_model.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield next(line.strip() for line in server.stdout if line.startswith("http"))
    finally:
        server.stdin.close()
        server.kill()
        server.wait()
        server.stdout.close()


async def test_the_check_finds_what_it_can_do(url: str) -> None:
    setup = ModelSetup(base_url=url, model="smollm2", context_tokens=4096)
    found = {f.name: f async for f in EndpointCheck(setup).run()}

    assert found["answers"].verdict == "yes"
    assert found["counts tokens"].verdict == "yes"
    assert found["tools"].verdict != "yes", "this model never calls one"
    assert {"json_schema", "json_object", "context"} <= set(found)


async def test_a_schema_makes_its_answer_json(url: str) -> None:
    schema = {
        "type": "object",
        "properties": {"class": {"type": "string", "enum": ["overrun", "silence", "reset"]}},
        "required": ["class"],
        "additionalProperties": False,
    }
    model = ChatModel(Endpoint(url, "smollm2", temperature=0.2))
    try:
        got = await model.complete(
            [{"role": "user", "content": "uart1: rx overrun, 12 bytes lost. Which class?"}],
            schema=schema,
            max_tokens=24,
            until=asyncio.get_running_loop().time() + 60,
        )
    finally:
        await model.close()

    assert json.loads(got.text)["class"] in {"overrun", "silence", "reset"}


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Return the abort as the daemon sees it."""
    get_ready()
    return watched(ABORT)


async def test_an_incident_ends_within_its_limits_with_nothing_unproven(
    url: str, seen: Seen
) -> None:
    began_s = asyncio.get_running_loop().time()
    limits = Limits(rounds=3, seconds=45.0)
    result = await investigated(seen, [], limits, base_url=url)

    assert asyncio.get_running_loop().time() - began_s < 60
    assert result.run.report is not None or result.run.reason
    assert result.published.conclusions
