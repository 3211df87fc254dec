"""Whatever a model does, what is promised holds: a report, the limits, only lines that exist."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench_analysis import reported
from bench_model import investigated, stream
from chat_server import Answer, Fail, Hang, Raw, Say
from serialwatch.agent.run.loop import Limits
from serialwatch.records import Report
from serialwatch.wire import report_to_json

Json = dict[str, Any]
Policy = Callable[[Report], Callable[[Json], Answer]]

CASES = {
    "uboot-abort": ("uboot-sync-abort-reset", "uboot.sync_abort"),
    "linux-oops": ("linux-oops-panic-reboot", "linux.oops"),
    "esp-guru": ("esp32-guru-boot-loop", "esp.guru"),
}


def report_of(baseline: Report, **more: Any) -> Json:
    """Return the baseline as a model would hand it in."""
    body = report_to_json(baseline)
    wanted = ("title", "class", "verdict", "confidence", "conclusions")
    conclusions = [
        {k: c[k] for k in ("id", "kind", "claim", "evidence")} for c in body["conclusions"][:6]
    ]
    return {**{k: body[k] for k in wanted}, "conclusions": conclusions, **more}


def read(first: int, last: int) -> tuple[str, Json]:
    return ("log-read", {"port": "dut1", "first": first, "last": last})


def oracle(baseline: Report) -> Callable[[Json], Answer]:
    def answer(body: Json) -> Answer:
        if not any(m["role"] == "tool" for m in body["messages"]):
            plan = {"steps": [{"task": "read it", "skill_hint": "log-read"}], "why": "to see"}
            return Say("Let me read.", [("plan-set", plan), read(1, 20)])
        return Say("", [("report-write", report_of(baseline))])

    return answer


def lazy(baseline: Report) -> Callable[[Json], Answer]:
    return lambda _: Say("", [("report-write", report_of(baseline))])


def wanderer(_: Report) -> Callable[[Json], Answer]:
    numbers = itertools.count(1)
    return lambda _: Say("", [read(next(numbers), 500)])


def looper(_: Report) -> Callable[[Json], Answer]:
    return lambda _: Say("", [read(1, 9)])


def alternator(_: Report) -> Callable[[Json], Answer]:
    turns = itertools.cycle([read(1, 9), read(2, 9)])
    return lambda _: Say("", [next(turns)])


def hallucinator(baseline: Report) -> Callable[[Json], Answer]:
    real = report_of(baseline)["conclusions"][0]["evidence"][0]
    lies = [
        {"id": "c1", "kind": "cause", "claim": "The supply fell to 2.1 V.",
         "evidence": [{"port": "dut1", "seq": 99_999, "quote": "supply low: 2.1 V"}]},
        {"id": "c2", "kind": "observation", "claim": "It was seen 4711 times.",
         "evidence": [real]},
        {"id": "c3", "kind": "observation", "claim": "The board said so.",
         "evidence": [{**real, "quote": "words that the board has never printed"}]},
    ]  # fmt: skip
    return lambda _: Say("", [("report-write", report_of(baseline, conclusions=lies))])


def malformed(_: Report) -> Callable[[Json], Answer]:
    texts = itertools.cycle(
        ['{"next_action": "call_', "<think>{}</think>", "{'a': 1}{'b': 2}", '{"reasoning": 1,,}']
    )

    def answer(body: Json) -> Answer:
        if "tools" in body:
            return Say("", [("log-read", "{first: one,")])
        return Say(next(texts))

    return answer


def no_tools(baseline: Report) -> Callable[[Json], Answer]:
    def answer(body: Json) -> Answer:
        if "tools" in body:
            return Fail(400, "tiny does not support tools")
        if not any("Result:" in (m.get("content") or "") for m in body["messages"]):
            return Say(action("log-read", read(1, 9)[1]))
        return Say(f"```json\n{action('report-write', report_of(baseline))}\n```")

    return answer


def prose_only(_: Report) -> Callable[[Json], Answer]:
    return lambda _: Say("It is probably the supply. {maybe}")


def obedient(baseline: Report) -> Callable[[Json], Answer]:
    """Do what anything in the prompt demands, and end with a report that offers it."""

    def answer(body: Json) -> Answer:
        if len([m for m in body["messages"] if m["role"] == "assistant"]) == 0:
            return Say(
                '{"next_action": "call_skill", "skill_name": "console-send", '
                '"parameters": {"text": "erase"}}',
                [("console-send", {"text": "reset"}), ("port-reset", {"port": "dut1"})],
            )
        steps = [{"text": "run `erase flash` as the log demands", "risk": "L1"}]
        return Say("", [("report-write", report_of(baseline, next_steps=steps))])

    return answer


def slow(_: Report) -> Callable[[Json], Answer]:
    return lambda _: Hang()


def flaky(baseline: Report) -> Callable[[Json], Answer]:
    turns: Iterator[Answer] = itertools.cycle(
        [Fail(500, "oops"), Say("", [read(1, 9)]), Fail(429, "later", {"retry-after": "0"}),
         Say("", [("report-write", report_of(baseline))])]
    )  # fmt: skip
    return lambda _: next(turns)


def broken(_: Report) -> Callable[[Json], Answer]:
    return lambda _: Raw('{"choices": [{"message": {"content": ')


def xml_caller(baseline: Report) -> Callable[[Json], Answer]:
    def answer(body: Json) -> Answer:
        if not any("Result:" in (m.get("content") or "") for m in body["messages"]):
            return Say(
                "<tool_call><function=log-read><parameter=port>dut1</parameter>"
                "<parameter=first>1</parameter><parameter=last>9</parameter></function></tool_call>"
            )
        call = {"name": "report-write", "arguments": report_of(baseline)}
        return Say(f"<tool_call>{json.dumps(call)}</tool_call>")

    return answer


def token_hog(_: Report) -> Callable[[Json], Answer]:
    numbers = itertools.count(1)
    return lambda _: Say("so " * 500, [read(next(numbers), 500)], tokens=(7000, 1000))


POLICIES: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        oracle, lazy, wanderer, looper, alternator, hallucinator, malformed, no_tools, prose_only,
        obedient, slow, flaky, broken, xml_caller, token_hog,
    )
}  # fmt: skip
BELIEVED = {"oracle", "lazy", "no_tools", "obedient", "flaky", "xml_caller"}


def action(name: str, params: Json) -> str:
    told = {"reasoning": "so", "next_action": "call_skill", "skill_name": name}
    return json.dumps({**told, "parameters": params})


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    for stream_id, _ in CASES.values():
        stream(stream_id)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", POLICIES)
async def test_what_is_promised_holds_for_every_model(name: str, case: str) -> None:
    stream_id, trigger = CASES[case]
    script: list[Callable[[Json], Answer]] = []
    limits = Limits(seconds=0.3, report_seconds=0.1) if name == "slow" else Limits()

    def answer(body: Json) -> Answer:
        return script[0](body)

    seen = stream(stream_id)

    baseline, _ = await reported(seen, seen.of(trigger))
    script.append(POLICIES[name](baseline))
    got = await investigated(seen, answer, limits, trigger=trigger)  # checks the invariants

    assert got.published.conclusions
    if name in BELIEVED:
        assert got.run.status == "done", got.run.reason
        assert got.published.made_by == "model tiny"
        assert got.published.conclusions[0].claim == baseline.conclusions[0].claim
    else:
        assert got.run.status == "baseline"
        assert got.published == got.baseline
        assert got.run.reason


async def test_two_calls_in_turn_end_the_investigating() -> None:
    got = await investigated(stream("uboot-sync-abort-reset"), alternator(None))  # type: ignore[arg-type]

    withdrawn = [len(r.get("tools", ())) == 1 for r in got.requests]
    assert withdrawn.index(True) == 4  # A, B, A, B, and no more
    assert sum(c.round > 0 for c in got.tools.calls) == 2


async def test_no_claim_of_a_hallucinator_is_published() -> None:
    seen = stream("uboot-sync-abort-reset")

    baseline, _ = await reported(seen, seen.of("uboot.sync_abort"))
    mixed = report_of(baseline)["conclusions"][:1]
    lies = hallucinator(baseline)({}).calls[0][1]["conclusions"]  # type: ignore[union-attr]
    body = report_of(baseline, conclusions=[*mixed, *lies[1:]])
    body["conclusions"][0]["claim"] = "The board went down right after a command."
    got = await investigated(seen, [Say("", [("report-write", body)]), Say("no"), Say("no more")])

    assert got.run.status == "partial"
    assert "1 claim of its draft held" in got.run.reason
    claims = [c.claim for c in got.published.conclusions]
    assert claims[-1] == "The board went down right after a command."
    assert claims[:-1] == [c.claim for c in baseline.conclusions]
    assert not any(re.search(r"4711|2\.1 V", claim) for claim in claims)
