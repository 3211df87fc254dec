from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from saved_log import START_NS, S, SavedLog
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.ctx.log_query import MAX_CHARS
from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.skills.results import RefusedError
from serialwatch.records import Incident, Marker, SkillResult
from serialwatch.store.boots import save_marker
from serialwatch.store.incidents import save_change
from serialwatch.store.memories import write_memory
from serialwatch.store.memory_gate import NewMemory
from serialwatch.wire import iso
from skill_run import opened_database, opened_run


@pytest.fixture
def log(tmp_path: Path) -> SavedLog:
    return SavedLog(tmp_path / "log")


@pytest.fixture
def ctx(tmp_path: Path, log: SavedLog) -> Iterator[CtxServer]:
    pages = tmp_path / "pages" / "linux"
    pages.mkdir(parents=True)
    (pages / "oops.md").write_text("---\nid: linux/oops\ntitle: An oops\n---\nProse on NULL.\n")
    with opened_run(
        [],
        log_dir=tmp_path / "log",
        db_path=tmp_path / "serialwatch.db",
        knowledge=load_knowledge([tmp_path / "pages"]),
        port="dut1",
        incident=1,
    ) as made:
        yield made


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened_database(tmp_path / "serialwatch.db") as made:
        yield made


async def ask(ctx: CtxServer, op: str, **body: Any) -> dict[str, Any]:
    return (await ctx.answer(op, body)).body


def texts(answer: dict[str, Any]) -> list[str]:
    return [line["text"] for line in answer["lines"]]


async def test_the_newest_lines_come_if_nothing_is_said(ctx: CtxServer, log: SavedLog) -> None:
    log.add(*(f"line {n}" for n in range(1, 21)))

    answer = await ask(ctx, "log.lines", limit=3)

    assert texts(answer) == ["line 18", "line 19", "line 20"]
    assert (answer["first"], answer["last"], answer["log"]) == (18, 20, [1, 20])
    assert answer["next"] == {"last": 17}
    assert answer["lines"][0]["at"] == iso(START_NS + 18 * S // 10)


async def test_a_beginning_reads_forward_and_next_goes_on(ctx: CtxServer, log: SavedLog) -> None:
    log.add(*(f"line {n}" for n in range(1, 21)))

    answer = await ask(ctx, "log.lines", first=5, last=9, limit=3)
    rest = await ask(ctx, "log.lines", last=9, limit=3, **answer["next"])

    assert texts(answer) == ["line 5", "line 6", "line 7"]
    assert texts(rest) == ["line 8", "line 9"]
    assert rest["next"] is None


async def test_every_line_served_is_in_the_ledger(ctx: CtxServer, log: SavedLog) -> None:
    log.add("one", b"two \x1b[31mred\x1b[0m", "three")

    await ask(ctx, "log.lines", first=1, last=2)

    assert {key: line.raw for key, line in ctx.ledger.items()} == {
        ("dut1", 1): b"one",
        ("dut1", 2): b"two \x1b[31mred\x1b[0m",
    }


async def test_repeats_are_folded_and_all_of_them_are_read(ctx: CtxServer, log: SavedLog) -> None:
    log.add("start", *(f"[   {n}.000000] i2c timeout" for n in range(5)), "end")

    answer = await ask(ctx, "log.lines", first=1, limit=3)
    backward = await ask(ctx, "log.lines", limit=3)

    assert texts(answer) == ["start", "[   0.000000] i2c timeout", "end"]
    assert (answer["lines"][1]["times"], answer["lines"][1]["last_seq"]) == (5, 6)
    assert backward["lines"] == answer["lines"]
    assert len(ctx.ledger) == 7


async def test_device_text_is_made_harmless_and_short(ctx: CtxServer, log: SavedLog) -> None:
    log.add(b"a\x1b]0;title\x07b\xff\x00\xe2\x80\xae c\r", "x" * 2000)

    answer = await ask(ctx, "log.lines")

    assert texts(answer)[0] == "ab\\xff\\x202e c"
    assert len(texts(answer)[1]) == MAX_CHARS


async def test_words_are_looked_for_and_never_a_regex(ctx: CtxServer, log: SavedLog) -> None:
    log.add("I2C bus Timeout", "i2c ok", "mmc0: CRC (error)", "other timeout", "a.*b", "axxb")

    both = await ask(ctx, "log.lines", match="i2c TIMEOUT")
    either = await ask(ctx, "log.lines", match="i2c timeout | crc")
    literal = await ask(ctx, "log.lines", match=".*")
    bracket = await ask(ctx, "log.lines", match="(error")
    none = await ask(ctx, "log.lines", match="nothing like it")

    assert texts(both) == ["I2C bus Timeout"]
    assert texts(either) == ["I2C bus Timeout", "mmc0: CRC (error)"]
    assert texts(literal) == ["a.*b"]
    assert texts(bracket) == ["mmc0: CRC (error)"]
    assert (none["lines"], none["no_data"]) == ([], True)


async def test_a_level_keeps_what_looks_so_bad(ctx: CtxServer, log: SavedLog) -> None:
    log.add("hello", "W (123) wifi: weak", "<err> os: bad", "Kernel panic - not syncing", "fine")

    assert len(texts(await ask(ctx, "log.lines", level="warning"))) == 3
    assert texts(await ask(ctx, "log.lines", level="critical")) == ["Kernel panic - not syncing"]


async def test_boots_are_counted_from_both_ends(ctx: CtxServer, log: SavedLog) -> None:
    log.add("before")
    log.boot(6)
    log.add("six", "six more")
    log.boot(7)
    log.add("seven")

    assert texts(await ask(ctx, "log.lines", boot=6)) == ["six", "six more"]
    assert texts(await ask(ctx, "log.lines", boot=-2)) == ["six", "six more"]
    assert texts(await ask(ctx, "log.lines", boot=-1)) == ["seven"]
    assert texts(await ask(ctx, "log.lines", boot=0)) == ["before"]
    assert [line.get("boot") for line in (await ask(ctx, "log.lines"))["lines"]] == [0, 6, None, 7]
    with pytest.raises(RefusedError, match="boots 6 to 7"):
        await ask(ctx, "log.lines", boot=9)


async def test_times_bound_the_range(ctx: CtxServer, log: SavedLog) -> None:
    log.add(*(f"line {n}" for n in range(1, 11)), after_s=1.0)

    answer = await ask(ctx, "log.lines", since=iso(START_NS + 3 * S), until=iso(START_NS + 6 * S))

    assert texts(answer) == ["line 3", "line 4", "line 5"]
    assert texts(await ask(ctx, "log.lines", since="-1s")) == []
    with pytest.raises(RefusedError, match="ISO 8601"):
        await ask(ctx, "log.lines", since="yesterday")


async def test_a_marker_is_a_beginning(ctx: CtxServer, log: SavedLog, db: Database) -> None:
    log.add("one", "two", "three")
    save_marker(db, Marker(4, "dut1", 2, "note", "Before the test", "me", 0, START_NS))
    save_marker(db, Marker(5, "dut1", 3, "flash", "v2", "me", 0, START_NS))

    assert texts(await ask(ctx, "log.lines", marker="the TEST")) == ["two", "three"]
    assert texts(await ask(ctx, "log.lines", marker=5)) == ["three"]
    assert texts(await ask(ctx, "log.lines", marker="flash")) == ["three"]
    with pytest.raises(RefusedError, match="no marker 9"):
        await ask(ctx, "log.lines", marker=9)


async def test_missing_bytes_are_told(ctx: CtxServer, log: SavedLog) -> None:
    log.add("one", "two")
    log.gap(4096)
    log.add("three")

    answer = await ask(ctx, "log.lines")
    before = await ask(ctx, "log.lines", last=2)

    assert answer["gaps"] == [{"seq": 3, "lost_bytes": 4096, "where": "uart"}]
    assert before["gaps"] == []


async def test_a_growing_log_is_seen(ctx: CtxServer, log: SavedLog) -> None:
    log.add("one")
    await ask(ctx, "log.lines")
    log.add("two")

    assert texts(await ask(ctx, "log.lines")) == ["one", "two"]


async def test_an_empty_log_and_an_empty_range_are_no_data(ctx: CtxServer, log: SavedLog) -> None:
    empty = await ask(ctx, "log.lines")
    log.add("one")
    beyond = await ask(ctx, "log.lines", first=7)

    assert (empty["no_data"], empty["log"]) == (True, [])
    assert (beyond["no_data"], beyond["lines"], beyond["log"]) == (True, [], [1, 1])


@pytest.mark.parametrize("port", ["dut9", "../log", "..", "/etc", ""])
async def test_only_ports_with_a_log_are_read(tmp_path: Path, port: str) -> None:
    with opened_run([], log_dir=tmp_path) as ctx, pytest.raises(RefusedError):
        await ctx.answer("log.lines", {"port": port})


@pytest.mark.parametrize(
    "body",
    [
        {"first": "1"},
        {"first": -1},
        {"first": True},
        {"limit": 100_000},
        {"level": "loud"},
        {"match": "x" * 500},
        {"match": ["x"]},
        {"since": 5},
        {"marker": [1]},
        {"port": 7},
        {"lines": 3},
    ],
)
async def test_arguments_of_a_wrong_kind_are_refused(
    ctx: CtxServer, log: SavedLog, body: dict[str, Any]
) -> None:
    log.add("one")

    with pytest.raises(RefusedError) as refused:
        await ctx.answer("log.lines", body)

    assert refused.value.code == "invalid_args"


async def test_numbers_of_a_range(ctx: CtxServer, log: SavedLog) -> None:
    log.boot(3)
    log.add(*(f"[    {n}.5] uart{n % 2}: lost {n} bytes at 0x{n:08x}" for n in range(8)))
    log.add("E (12) wifi: fail", after_s=30.0)
    log.add(*("tick" for _ in range(5)), after_s=0.01)

    answer = await ask(ctx, "log.stats")

    assert (answer["lines"], answer["first"], answer["last"]) == (14, 1, 14)
    assert answer["bytes"] == sum(len(line.raw) + 1 for line in await _all(ctx))
    assert answer["longest_pause"] == {"seconds": 30.0, "after": 8}
    assert answer["peak"] == {"at": iso(START_NS), "lines_in_1_s": 8}
    assert answer["levels"] == {"note": 13, "error": 1}
    assert answer["boots"] == [{"boot": 3, "first": 1}]
    assert answer["shapes"][0] == {
        "shape": "uart<n>: lost <n> bytes at <x>",
        "count": 8,
        "first": 1,
        "last": 8,
        "example": "[    0.5] uart0: lost 0 bytes at 0x00000000",
    }
    assert [s["count"] for s in answer["shapes"]] == [8, 5, 1]
    assert answer["lines_of_other_shapes"] == 0
    assert answer["is_complete"]


async def test_shapes_are_examples_that_count_as_read(ctx: CtxServer, log: SavedLog) -> None:
    log.add("a 1", "a 2", "a 3", "b")

    answer = await ask(ctx, "log.stats", limit=1)

    assert answer["lines_of_other_shapes"] == 1
    assert sorted(ctx.ledger) == [("dut1", 1), ("dut1", 3)]


async def test_the_loop_does_not_read(ctx: CtxServer, log: SavedLog) -> None:
    log.add("one")
    names: list[str] = []
    await ctx._archive.ask(lambda _: names.append(threading.current_thread().name))

    assert names[0].startswith("archive")


async def test_knowledge_is_searched_and_read(ctx: CtxServer) -> None:
    found = await ask(ctx, "knowledge.search", query="null oops")
    page = await ask(ctx, "knowledge.get", id="linux.oops")

    assert [p["id"] for p in found["pages"]] == ["linux/oops"]
    assert page["body"] == "Prose on NULL."
    with pytest.raises(RefusedError, match="near it: linux/oops"):
        await ask(ctx, "knowledge.get", id="linux/oopses_oops")


async def test_incidents_are_found(ctx: CtxServer, db: Database) -> None:
    first, second = incident(1, "linux.oops"), incident(2, "esp.guru", port="esp3")
    for one in (first, second):
        save_change(db, one)

    assert [i["id"] for i in (await ask(ctx, "incidents"))["incidents"]] == [2, 1]
    assert [i["id"] for i in (await ask(ctx, "incidents", port="dut1"))["incidents"]] == [1]
    assert [i["id"] for i in (await ask(ctx, "incidents", id=2))["incidents"]] == [2]
    assert [i["id"] for i in (await ask(ctx, "incidents", trigger="esp.guru"))["incidents"]] == [2]
    assert (await ask(ctx, "incidents", state="resolved"))["no_data"]
    with pytest.raises(RefusedError, match="one of open"):
        await ask(ctx, "incidents", state="gone")


async def test_memories_are_found_by_words_and_by_the_fault(ctx: CtxServer, db: Database) -> None:
    save_change(db, incident(1, "linux.oops"))
    now = time.time_ns()
    write_memory(db, memory("The supply of dut1 is weak", "port", "dut1"), now)
    write_memory(db, memory("The supply of esp3 is weak", "port", "esp3"), now)
    write_memory(
        db, replace(memory("Quite another thing"), fingerprint="fp-linux.oops", priority=3), now
    )

    answer = await ask(ctx, "memory.search", query="weak supply", limit=5)

    titles = [m["title"] for m in answer["memories"]]
    assert set(titles) == {"The supply of dut1 is weak", "Quite another thing"}
    assert {"age", "body", "fingerprint", "source", "priority"} <= answer["memories"][0].keys()


async def test_memories_of_a_board_are_seen_from_each_port_that_it_is_on(
    tmp_path: Path, db: Database
) -> None:
    write_memory(db, memory("The supply of evk-7 is weak", "board", "evk-7"), time.time_ns())
    boards = {"dut1": "evk-7", "dut2": "evk-7", "dut3": "evk-8"}

    async def found(of: str, **named: str) -> list[str]:
        with opened_run([], db_path=tmp_path / "serialwatch.db", port=of, boards=boards) as about:
            told = await ask(about, "memory.search", query="weak supply", **named)
        return [row["scope_name"] for row in told["memories"]]

    assert [await found(port) for port in ("dut1", "dut2")] == [["evk-7"], ["evk-7"]]
    assert await found("dut3") == await found("dut4") == []
    assert await found("dut3", port="dut1") == ["evk-7"]


async def test_without_a_database_nothing_is_remembered(ctx: CtxServer) -> None:
    assert (await ask(ctx, "memory.search", query="anything"))["no_data"]
    assert (await ask(ctx, "incidents"))["no_data"]


async def test_a_result_is_read_again_in_parts(ctx: CtxServer) -> None:
    output = {"rows": [f"row {n}" for n in range(100)]}
    ref = ctx.keep(SkillResult("success", output))

    first = await ask(ctx, "results.read", id=ref, limit=50)
    rest = await ask(ctx, "results.read", id=ref, start=first["next"], limit=10_000)
    some = await ask(ctx, "results.read", id=ref, match="ROW 42")

    assert len(first["text"]) == 50
    assert json.loads(first["text"] + rest["text"]) == output
    assert rest["next"] is None
    assert some["text"].strip() == '"row 42",'
    with pytest.raises(RefusedError, match="there is: R1"):
        await ask(ctx, "results.read", id="R2")


async def test_ports_reports_and_memories_go_to_whom_they_are_for(tmp_path: Path) -> None:
    got: list[Any] = []

    async def ports() -> dict[str, Any]:
        return {"dut1": {"state": "up"}}

    async def take(body: dict[str, Any]) -> dict[str, Any]:
        got.append(body)
        return {"accepted": True}

    with opened_run([], ask_ports=ports, submit_report=take, write_memory=take) as ctx:
        told = (await ask(ctx, "ports"))["ports"]["dut1"]
        assert told["state"] == "up"
        assert told["verdict"]["place"] == "unknown"
        assert await ask(ctx, "report.submit", report={"title": "x"}) == {"accepted": True}
        answer = await ask(ctx, "memory.write", memory={"title": "y"}, skill="memory-write")
        assert answer == {"accepted": True}
    assert got[0] == {"title": "x"}
    assert got[1] == {
        "title": "y",
        "source": "model",
        "session_id": "run-1",
        "links": [{"source_skill": "memory-write", "source_step": "run-1:0"}],
    }


async def test_a_run_that_takes_no_report_says_so(ctx: CtxServer) -> None:
    with pytest.raises(RefusedError, match="takes none"):
        await ask(ctx, "report.submit", report={})
    with pytest.raises(RefusedError, match="an object"):
        await ask(ctx, "report.submit", report=[])


async def test_where_a_text_comes_from_is_told(ctx: CtxServer, log: SavedLog) -> None:
    log.add("one")

    assert (await ctx.answer("log.lines", {})).taint == "dut"
    assert (await ctx.answer("memory.search", {"query": "xx"})).taint == "memory"
    assert (await ctx.answer("knowledge.search", {"query": "xx"})).taint == "host"


async def _all(ctx: CtxServer) -> list[Any]:
    await ask(ctx, "log.lines", first=1, limit=400)
    return list(ctx.ledger.values())


def memory(title: str, scope: Any = "bench", scope_name: str = "") -> NewMemory:
    return NewMemory(
        type="fact",
        title=title,
        body=title + " as seen",
        priority=2,
        source="rule",
        scope=scope,
        scope_name=scope_name,
    )


def incident(id: int, trigger: str, port: str = "dut1") -> Incident:
    return Incident(
        id=id,
        port=port,
        state="open",
        trigger=trigger,
        severity="critical",
        tier="specific",
        title="A fault",
        key="k",
        fingerprint=f"fp-{trigger}",
        ecosystem="linux",
        knowledge="",
        fields={},
        boot=1,
        first_seq=5,
        block_first=5,
        last_seq=9,
        opened_mono_ns=0,
        opened_utc_ns=START_NS + id * S,
        last_mono_ns=0,
        last_utc_ns=START_NS + id * S,
        count=1,
        hits=(),
    )
