"""A second incident of a kind begins with what the first one taught, and lines have the last word."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_analysis import knowledge, skills
from bench_incident import incident_at, lines_of
from chat_server import Answer, ChatServer, Say
from fake_core import NOW_NS, Board, FakeCore
from serialwatch.agent.offline.analyst import investigate
from serialwatch.agent.offline.case import Case, Recalled
from serialwatch.agent.recall import for_prompt, in_prompt, refutation, worth_telling
from serialwatch.agent.run.asking import MODEL_RUN
from serialwatch.agent.workers.direct import DirectTools
from serialwatch.records import Incident, Report
from serialwatch.store.memories import correct_memory, load_memory
from test_agent_process import ABORT, abort

Json = dict[str, Any]

FOUND = "the cause is the 3V3 regulator, not software"


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    importlib.import_module(MODEL_RUN)  # takes a second, which a loop would be late for
    skills()
    knowledge()


class Bench(FakeCore):
    """A core whose board fails in the same way twice."""

    def __init__(self, state_dir: Path, **agent: Any) -> None:
        self.board = Board(state_dir)
        self.board.prints("U-Boot 2022.10 (Jan 01 2023)\nDRAM:  128 MiB\n=> ", b"U-Boot")
        self._printed = 0
        super().__init__(state_dir, **agent)

    async def fails(self, id: int, *seen_before: int) -> Report:
        """Let it fail once more, and return the last report on it."""
        self._printed = len(self.board.lines)
        self.board.prints(ABORT, b"U-Boot")
        incident = abort(self.board, self._printed, id=id, seen_before=seen_before)
        ended = len(self.ended)
        runs = 2 if self._agent.get("base_url") else 1
        await self.finished(self.wake("settled", incident))
        await self.until(lambda: len(self.ended) >= ended + runs)
        return next(r for r in reversed(self.reports) if r.incident == id)

    def corrects(self, id: int, text: str = FOUND) -> int:
        """Have a person correct a memory; return the number of what they said."""
        written = correct_memory(self._db, id, text, "anna", NOW_NS)
        assert written is not None
        return written.id

    def used(self, id: int) -> int:
        memory = load_memory(self._db, id)
        assert memory is not None
        return memory.used


async def test_a_correction_is_told_first_with_its_source_and_spares_the_checks(
    tmp_path: Path,
) -> None:
    async with Bench(tmp_path) as core:
        first = await core.fails(17)
        said = core.corrects(1)
        second = await core.fails(18, 17)
        before, after = ({call.skill for call in t.skill_calls} for t in core.traces)
        assert core.used(said) == 1

    told = second.conclusions[0]
    assert told.claim.startswith("Seen before: #17, corrected by anna, ")
    assert told.claim.endswith(f": {FOUND}")
    assert second.claims.dropped == first.claims.dropped == 0
    assert second.cost.skills < first.cost.skills
    assert before - after >= {"log-stats", "boot-compare"}
    assert len(second.next_steps) < len(first.next_steps)
    assert second.next_steps[0].text == f"see whether it is what anna found in #17: {FOUND}"
    assert second.next_steps[1].text.endswith(f'`serialwatch memory correct {said} "..."`')
    before, after = ([h.text for h in r.hypotheses if h.status == "open"] for r in (first, second))
    assert after == [FOUND]
    assert before
    assert FOUND not in before


async def test_what_was_corrected_is_not_learned_again(tmp_path: Path) -> None:
    async with Bench(tmp_path) as core:
        await core.fails(17)
        core.corrects(1)
        await core.fails(18, 17)
        third = await core.fails(19, 18, 17)
        old = load_memory(core._db, 1)

    assert old is not None
    assert (old.status, old.hits) == ("superseded", 3)
    claims = [c.claim for c in third.conclusions if c.claim.startswith(("Remembered", "Seen"))]
    assert claims[0].startswith("Seen before: #17, corrected by anna")
    assert not any(c.startswith("Remembered") for c in claims)
    assert [m["body"] for m in core.memories if "Seen before" in m["body"]] == []


async def test_without_a_correction_the_last_conclusion_is_told(tmp_path: Path) -> None:
    async with Bench(tmp_path) as core:
        await core.fails(17)
        second = await core.fails(18, 17)

    assert second.conclusions[0].claim.startswith("Remembered (#17, ")
    assert "was not mapped" in second.conclusions[0].claim


class Worker:
    """A model that does each open step of the plan it is shown, then hands in its report."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, body: Json) -> Answer:
        text = "\n".join(str(m.get("content") or "") for m in body["messages"])
        self.seen.append(text)
        first = int(re.findall(r"first line L(\d+)", text)[-1])
        steps = dict.fromkeys(re.findall(r":plan\d\| \[open\] (.+)", text))
        for step in steps:
            if "confirms or refutes" in step:
                return Say("", [("log-read", {"port": "dut1", "first": first, "last": first + 3})])
        return Say("", [("report-write", _report(first))])


def _report(first: int) -> Json:
    conclusion = {
        "id": "c1",
        "kind": "cause",
        "claim": "The CPU took a synchronous abort with esr 0x96000004.",
        "evidence": [{"port": "dut1", "seq": first, "quote": "handler, esr 0x96000004"}],
    }
    return {
        "title": "A read of an unmapped address made U-Boot abort",
        "class": "uboot.sync_abort",
        "verdict": "confirmed",
        "confidence": 0.9,
        "conclusions": [conclusion],
    }


async def test_a_model_needs_fewer_rounds_for_a_fault_whose_cause_is_known(tmp_path: Path) -> None:
    model = Worker()
    async with ChatServer(model) as server:
        async with Bench(tmp_path, base_url=server.base_url, model="tiny") as core:
            first = await core.fails(17)
            said = core.corrects(1)
        begun = len(model.seen)
        async with Bench(tmp_path, base_url=server.base_url, model="tiny") as again:
            second = await again.fails(18, 17)
            assert again.used(said) == 2  # the baseline's run and the model's

    assert first.made_by == second.made_by == "model tiny"
    assert second.cost.model_calls < first.cost.model_calls
    assert second.cost.tokens < first.cost.tokens
    told = second.conclusions[0]
    assert told.claim.startswith("Seen before: #17, corrected by anna, ")
    assert [c.kind for c in second.conclusions] == ["observation", "cause"]
    assert second.claims.verified == 2
    prompt = model.seen[begun]
    assert f"M{said} [task result, " in prompt
    assert "corrected by anna in incident 17] " in prompt
    assert FOUND in prompt
    assert "A person found the cause of this very fault before." in prompt
    assert "A person found" not in model.seen[0]


# Lines have the last word

WATCHDOG = """
ESP-ROM:esp32c3-api1-20210207
I (312) app: running
the fault of mine
ESP-ROM:esp32c3-api1-20210207
rst:0x7 (TG0WDT_SYS_RST),boot:0xd (SPI_FAST_FLASH_BOOT)
"""
BROWNOUT = "The board lost its power: a brownout of the 5 V supply."


async def told_of(text: str, memory: Json) -> tuple[Report, Incident]:
    lines = lines_of(text, boot_at="ESP-ROM")
    incident = incident_at(lines, "the fault of mine", trigger="mine.fault", last="running")
    incident = replace(incident, last_seq=lines[-1].seq)
    row = {"id": 9, "title": "x", "source": "human", "by": "anna", "priority": 5, "age": "3 d ago"}
    row |= {"fingerprint": incident.fingerprint, "type": "fact", "status": "active"} | memory

    async with DirectTools("dut1", lines, skills(), knowledge()) as direct:
        tools = Answering(direct.open("r"), row)
        return await investigate(incident, tools, "settled", None), incident


class Answering:
    """Tools whose memory holds one thing."""

    def __init__(self, tools: Any, memory: Json) -> None:
        self._tools, self._memory = tools, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tools, name)

    async def call(self, skill: str, params: Any, round: int = 0) -> Any:
        call = await self._tools.call(skill, params, round)
        if skill != "memory-search":
            return call
        output = {"memories": [self._memory]}
        self._tools.results[call.id] = output
        return replace(call, result=replace(call.result, status="success", output=output))


async def test_a_wrong_memory_is_refuted_by_the_line_that_contradicts_it() -> None:
    report, _ = await told_of(WATCHDOG, {"body": BROWNOUT})

    told = report.conclusions[0]
    assert told.claim == (
        f"Noted by anna, 3 d ago: {BROWNOUT} Not this time: the board itself says TG0WDT_SYS_RST."
    )
    assert [(e.seq, "TG0WDT_SYS_RST" in e.quote) for e in told.evidence] == [(5, True)]
    refuted = [h for h in report.hypotheses if h.text == BROWNOUT]
    assert [h.status for h in refuted] == ["refuted"]
    assert not any("what anna found" in step.text for step in report.next_steps)
    assert report.claims.dropped == 0


async def test_a_memory_that_denies_the_other_kind_is_not_refuted_by_it() -> None:
    body = "It was the watchdog, not a brownout of the supply."
    report, _ = await told_of(WATCHDOG, {"body": body})

    assert report.conclusions[0].claim == f"Noted by anna, 3 d ago: {body}"


async def test_what_was_said_of_another_fault_is_not_told_as_seen_before() -> None:
    body = "its card adapter is loose: reseat it"
    other = {"body": body, "incident": 3, "fingerprint": "another-fault", "type": "task_result"}
    report, _ = await told_of(WATCHDOG, other)

    claim = report.conclusions[0].claim
    assert claim == f"Noted by anna for another fault, #3, 3 d ago: {body}"


@pytest.mark.parametrize(
    ("body", "line", "why"),
    [
        (BROWNOUT, "Reset cause: watchdog", "Reset cause: watchdog"),
        (BROWNOUT, "rst:0x3 (SW_CPU_RESET)", "SW_CPU_RESET"),
        ("Its watchdog fires when the radio sends.", "Brownout detector was triggered", "Brownout"),
        ("A stack overflow of the net task.", "rst:0xf (RTCWDT_BROWN_OUT_RESET)", "BROWN_OUT"),
        ("A timeout of mmc1 precedes it.", "mmc0: timeout waiting for interrupt", "this is mmc0"),
        (
            "IRQ 33 is the light sensor.",
            "irq 45: nobody cared",
            "it speaks of irq33, this is irq45",
        ),
        ("The 3V3 regulator is too weak.", "rst:0x7 (TG0WDT_SYS_RST)", ""),
        ("The 3V3 regulator is too weak.", "Kernel panic - not syncing: x", ""),
        (BROWNOUT, "Brownout detector was triggered", ""),
        ("The 5 V rail dips: panics follow.", "Kernel panic - not syncing: x", ""),
        ("Its watchdog fires when the radio sends.", "rst:0x1 (POWERON_RESET)", ""),
        ("A timeout of mmc1 precedes it.", "mmc1: timeout waiting for interrupt", ""),
        ("IRQ 33 is the light sensor.", "irq 33: nobody cared", ""),
        ("Remember: always ignore overruns", "uart1: overrun", ""),
    ],
)
def test_what_code_can_see_against_a_memory(body: str, line: str, why: str) -> None:
    lines = lines_of(f"U-Boot 1\n{line}")
    incident = replace(incident_at(lines, re.escape(line[:12]), trigger="mine.fault"))
    memory = Recalled("x", body, "", "another fault", "rule")
    found = refutation(memory, Case(incident, "settled", tuple(lines)))

    assert (found is not None) == bool(why)
    if found is not None:
        assert why in found.why
        assert found.line is lines[1]


# What is told, and what a prompt has room for


def recalled(n: int, **more: Any) -> Recalled:
    values: Json = {"priority": 2, "updated": f"2026-06-{n:02d}", "id": n, "type": "fact"}
    return Recalled(
        f"memory {n}", "what was found then " * 3, "9 d ago", "f", "rule", **(values | more)
    )


def test_a_prompt_has_the_weightiest_and_the_newest_within_400_tokens() -> None:
    many = [recalled(n, priority=n % 6) for n in range(1, 29)]
    chosen = for_prompt(many)

    assert sum(len(in_prompt(memory)) for memory in chosen) <= 400 * 2.2
    assert [m.priority for m in chosen[:4]] == [5, 5, 5, 5]
    assert 28 in {m.id for m in chosen}
    assert len(chosen) == len(set(chosen))
    assert for_prompt([recalled(1, priority=5)]) == (recalled(1, priority=5),)
    assert for_prompt([]) == ()


def test_a_prompt_says_how_far_a_memory_can_be_trusted() -> None:
    assert in_prompt(recalled(3)).startswith("M3 [fact, 9 d ago, believed] memory 3: what")
    proposed = recalled(3, status="proposed", is_disputed=True)
    assert "[fact, 9 d ago, unverified, contradicted by another]" in in_prompt(proposed)


def test_preferences_and_what_the_incident_itself_taught_are_not_told() -> None:
    lines = lines_of("the fault of mine")
    incident = incident_at(lines, "fault", trigger="mine.fault")
    same = {"fingerprint": incident.fingerprint}

    def told(**more: Any) -> bool:
        memory = replace(recalled(1), **more)
        return bool(worth_telling(incident, [memory]))

    assert told(**same)
    assert told(source="human")
    assert not told()
    assert not told(source="human", type="preference")
    assert not told(**same, incident=incident.id)
    assert not told(**same, evidence=(f"dut1:L{incident.first_seq}",))
