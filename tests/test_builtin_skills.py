"""The skills that ship with serialwatch, each run as the agent runs it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlite_utils import Database

from saved_log import SavedLog
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.skills.registry import load_skills
from serialwatch.agent.skills.results import MAX_OUTPUT, error_code
from serialwatch.agent.workers.worker import Workers
from serialwatch.bundled import bundled_dir
from serialwatch.records import SkillResult
from serialwatch.store.memories import write_memory
from serialwatch.store.memory_gate import NewMemory
from skill_run import bundled_registry, opened_database, opened_run

NAMES = {
    "backtrace-decode",
    "boot-compare",
    "console-send",
    "human-ask",
    "incident-history",
    "knowledge-query",
    "log-expand",
    "log-read",
    "log-stats",
    "memory-search",
    "memory-write",
    "port-reset",
    "port-status",
    "register-decode",
    "report-write",
    "snapshot-read",
    "snapshot-write",
}
DRAFT = {
    "title": "The CPU took a data abort",
    "class": "uboot.sync_abort",
    "verdict": "likely",
    "confidence": 0.6,
    "conclusions": [
        {
            "id": "c1",
            "kind": "observation",
            "claim": "It took a data abort.",
            "evidence": [{"port": "dut1", "seq": 2, "quote": "Synchronous Abort"}],
        }
    ],
}


class Bench:
    """A run with the bundled skills over one port's log."""

    def __init__(self, workers: Workers, ctx: CtxServer, log: SavedLog) -> None:
        self.ctx = ctx
        self.log = log
        self.submitted: list[dict[str, Any]] = []
        self._workers = workers

    async def run(self, skill: str, **params: Any) -> SkillResult:
        result = await self._workers.run(skill, params, self.ctx)
        assert len(json.dumps(result.output)) <= MAX_OUTPUT
        return result


@pytest.fixture(scope="module")
def pages() -> Knowledge:
    bundled_registry()  # here, for it takes too long for a loop
    return load_knowledge([bundled_dir("config/knowledge")])


@pytest_asyncio.fixture
async def bench(tmp_path: Path, pages: Knowledge) -> AsyncIterator[Bench]:
    log = SavedLog(tmp_path / "log")

    async def submit(report: dict[str, Any]) -> dict[str, Any]:
        made.submitted.append(report)
        if report["verdict"] == "confirmed":
            return {"accepted": False, "problems": ["c1 G3: the quote is not in the line"]}
        return {"accepted": True, "verified": 1, "dropped": 0}

    async with Workers() as workers:
        with opened_run(
            [bundled_dir("skills")],
            log_dir=tmp_path / "log",
            db_path=tmp_path / "serialwatch.db",
            knowledge=pages,
            port="dut1",
            submit_report=submit,
        ) as ctx:
            made = Bench(workers, ctx, log)
            yield made


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened_database(tmp_path / "serialwatch.db") as made:
        yield made


def test_all_of_them_load() -> None:
    registry = load_skills([bundled_dir("skills")])

    assert set(registry.skills) == NAMES
    assert registry.broken == ()
    assert {s.name for s in registry.skills.values() if s.risk != "L1"} == {
        "memory-write",
        "report-write",
        "snapshot-write",
        "console-send",
        "port-reset",
    }
    assert {s.name for s in registry.skills.values() if s.risk == "L3"} == {
        "console-send",
        "port-reset",
    }


@pytest.mark.parametrize("text", ["reboot\n", "\n", "a\nb", "a\r", ""])
def test_a_line_to_type_is_one_line(text: str) -> None:
    skill = load_skills([bundled_dir("skills")]).skills["console-send"]

    assert [p.pointer for p in skill.problems({"text": text, "why": "to see it"})] == ["/text"]
    assert not skill.problems({"text": "echo $ [$]", "why": "to see it"})


def test_every_example_fits_its_schema() -> None:
    for skill in load_skills([bundled_dir("skills")]).skills.values():
        assert skill.params["examples"], skill.name
        for example in skill.params["examples"]:
            assert not skill.problems(example), skill.name


async def test_log_read_shows_a_line_with_its_neighbours(bench: Bench) -> None:
    bench.log.add(*(f"line {n}" for n in range(1, 101)))

    result = await bench.run("log-read", around=50, limit=5)

    assert [line["seq"] for line in result.output["lines"]] == [48, 49, 50, 51, 52]
    assert result.metadata["summary"] == "dut1:L48-L52, 5 lines"
    assert result.metadata["taint"] == "dut"
    one = await bench.run("log-read", around=50, limit=1)
    assert one.metadata["summary"] == "dut1:L50-L50, 1 line"


async def test_log_read_cuts_between_lines_and_goes_on(bench: Bench) -> None:
    bench.log.add(*(f"line {n} {'x' * 200}{n}" for n in range(1, 101)))
    seen: list[int] = []
    more: dict[str, int] | None = {"first": 1}
    while more:
        output = (await bench.run("log-read", limit=100, **more)).output
        seen += [line["seq"] for line in output["lines"]]
        more = output["next"]

    assert seen == list(range(1, 101))


async def test_log_read_keeps_the_newest_lines_if_it_must_choose(bench: Bench) -> None:
    bench.log.add(*(f"line {n} {'x' * 400}{n}" for n in range(1, 101)))

    output = (await bench.run("log-read", limit=100)).output

    assert output["lines"][-1]["seq"] == output["last"] == 100
    assert output["next"] == {"last": output["first"] - 1}
    assert len(bench.ctx.ledger) == 100


async def test_log_read_says_that_nothing_is_there(bench: Bench) -> None:
    result = await bench.run("log-read", match="nothing")

    assert result.status == "success"
    assert result.metadata["no_data"] is True


async def test_log_read_of_another_port_is_a_failure_that_explains(bench: Bench) -> None:
    result = await bench.run("log-read", port="dut9")

    assert error_code(result) == "precondition"
    assert "dut9" in result.metadata["error"]["detail"]


async def test_log_stats_counts(bench: Bench) -> None:
    bench.log.add(*(f"irq {n}: nobody cared" for n in range(500)), after_s=0.001)

    result = await bench.run("log-stats")

    assert result.output["lines"] == 500
    assert result.output["shapes"][0]["shape"] == "irq <n>: nobody cared"
    assert result.metadata["summary"].startswith("dut1: 500 lines in 0.")


async def test_log_stats_stays_short(bench: Bench) -> None:
    words = ("ab"[n % 2] * (n + 1) for n in range(400))
    bench.log.add(*(f"{word} {'z' * 300}" for word in words))

    output = (await bench.run("log-stats", limit=60)).output

    assert 0 < len(output["shapes"]) < 60
    assert sum(s["count"] for s in output["shapes"]) + output["lines_of_other_shapes"] == 400


async def test_knowledge_query_finds_and_reads_a_page(bench: Bench) -> None:
    found = await bench.run("knowledge-query", query="interrupt nobody cared handler", limit=2)
    wanted = found.output["pages"][0]["id"]
    page = await bench.run("knowledge-query", id=wanted)

    assert page.output["page"]["title"] in found.metadata["summary"]
    assert page.output["page"]["body"]
    assert {"causes", "do", "never"} <= page.output["page"].keys()


async def test_knowledge_query_of_a_missing_page_fails(bench: Bench) -> None:
    assert error_code(await bench.run("knowledge-query", id="linux/none")) == "precondition"


async def test_knowledge_query_takes_an_id_or_words(bench: Bench) -> None:
    assert error_code(await bench.run("knowledge-query")) == "invalid_args"
    assert error_code(await bench.run("knowledge-query", id="a/b", query="x y")) == "invalid_args"


async def test_memory_search_finds_what_was_written(bench: Bench, db: Database) -> None:
    memory = NewMemory("fact", "Weak supply", "The supply of dut1 is weak", 2, "rule")
    write_memory(db, memory, time.time_ns())

    result = await bench.run("memory-search", query="supply weak")
    nothing = await bench.run("memory-search", query="unheard")

    assert [m["title"] for m in result.output["memories"]] == ["Weak supply"]
    assert result.output["memories"][0]["age"] == "just now"
    assert result.metadata["summary"] == "M1 [fact, just now] Weak supply"
    assert nothing.metadata["no_data"] is True


async def test_register_decode_takes_a_value_or_a_line(bench: Bench) -> None:
    value = await bench.run("register-decode", register="esr_el1", value="0x96000004")
    line = await bench.run("register-decode", text="handler, esr 0x96000004, far 0x0")

    (decoded,) = value.output["registers"]
    assert line.output == value.output
    assert (decoded["register"], decoded["value"]) == ("esr", "0x96000004")
    assert decoded["fields"]["DFSC"] == "0x04: translation fault, level 0"
    assert decoded["source"].startswith("Arm ARM")


@pytest.mark.parametrize(
    "params",
    [
        {"register": "esr"},
        {"register": "no such", "value": "0x1"},
        {"register": "esr", "value": "96000004h"},
        {"register": "esr", "value": "0x1", "text": "esr 0x1"},
        {"text": 5},
    ],
)
async def test_register_decode_refuses_what_it_cannot_mean(
    bench: Bench, params: dict[str, Any]
) -> None:
    assert error_code(await bench.run("register-decode", **params)) == "invalid_args"


async def test_register_decode_of_an_address_says_what_makes_it_valid(bench: Bench) -> None:
    result = await bench.run("register-decode", register="bfar", value="0xe000ed38")

    assert "BFARVALID" in result.output["registers"][0]["meaning"]


async def test_register_decode_never_guesses_without_a_table(bench: Bench) -> None:
    result = await bench.run("register-decode", register="CR0", value="0x80050033")

    assert result.output["no_table"] == "cr0"
    assert result.output["registers"] == []
    assert {"esr", "cfsr", "mcause", "cr2"} <= set(result.output["tables"])
    assert result.metadata["no_data"] is True


@pytest.mark.parametrize("name", ["cr2", "MTVAL", "far_el1", "excvaddr", "sfar"])
async def test_register_decode_of_an_address_decodes_no_bits(bench: Bench, name: str) -> None:
    result = await bench.run("register-decode", register=name, value="0x10")

    (decoded,) = result.output["registers"]
    assert decoded["meaning"].startswith("An address, ")
    assert decoded["fields"] == {}


async def test_register_decode_finds_nothing_in_an_ordinary_line(bench: Bench) -> None:
    result = await bench.run("register-decode", text="all is well")

    assert (result.status, result.output) == ("success", {"registers": [], "no_data": True})


async def test_report_write_hands_in_a_draft(bench: Bench) -> None:
    result = await bench.run("report-write", **DRAFT)

    assert (result.status, result.output["accepted"]) == ("success", True)
    assert bench.submitted == [DRAFT]


async def test_report_write_brings_back_what_is_rejected(bench: Bench) -> None:
    result = await bench.run("report-write", **(DRAFT | {"verdict": "confirmed"}))

    assert result.status == "require_more"
    assert result.output["problems"] == ["c1 G3: the quote is not in the line"]
    assert result.metadata["need"]["kind"] == "param"


async def test_report_write_checks_the_shape_before_anything_runs(bench: Bench) -> None:
    result = await bench.run("report-write", **(DRAFT | {"verdict": "certain", "x": 1}))

    pointers = {p["pointer"]: p["allowed"] for p in result.output["problems"]}
    assert error_code(result) == "invalid_args"
    assert pointers["/verdict"] == ["confirmed", "likely", "inconclusive"]
    assert "title" in pointers[""]
    assert bench.submitted == []
