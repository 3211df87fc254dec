"""Skills about the bench: ports, history, memories, snapshots, people, lines around lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from saved_log import START_NS, S, SavedLog
from serialwatch.agent.ctx import log_query
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.results import RefusedError, error_code
from serialwatch.agent.workers.worker import Workers
from serialwatch.bundled import bundled_dir
from serialwatch.records import Conclusion, Evidence, Incident, Report, SkillResult
from serialwatch.store.incidents import save_change
from serialwatch.store.reports import commit_report
from serialwatch.store.snapshots import save_snapshot
from serialwatch.wire import iso
from skill_run import opened_database, opened_run, run_skill
from test_context import incident

PORT: dict[str, Any] = {
    "name": "dut1",
    "device": "/dev/serial/by-id/usb-FTDI",
    "state": "up",
    "since": iso(START_NS),
    "bit_rate": 115200,
    "boot": 3,
    "boots": 2,
    "next_seq": 100,
    "open_incidents": 0,
    "reconnects": 0,
    "rx_bytes": 10_000,
    "rx_lines": 99,
    "lost_bytes": {},
    "uart_errors": {"overrun": 0, "framing": 0, "parity": 0, "breaks": 0},
    "writer": "",
}


class Bench:
    """A run over one port; what it hands to the core is in `written`."""

    def __init__(self, folder: Path, db: Database, ctx: CtxServer) -> None:
        self.log = SavedLog(folder / "log")
        self.db = db
        self.ctx = ctx
        self.port = {**PORT, "last_rx_at": iso(time.time_ns())}
        self.written: list[dict[str, Any]] = []

    async def run(self, skill: str, /, **params: Any) -> SkillResult:
        return await run_skill(self.ctx, skill, **params)

    async def output(self, skill: str, /, **params: Any) -> dict[str, Any]:
        result = await self.run(skill, **params)
        assert result.status == "success", result
        return dict(result.output)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "serialwatch.db"

    async def ports() -> dict[str, Any]:
        return {"dut1": made.port, "dut2": {**PORT, "state": "absent"}}

    async def take(body: dict[str, Any]) -> dict[str, Any]:
        made.written.append(body)
        return {"id": len(made.written), "is_new": True, "near": [7]}

    async def keep(body: dict[str, Any]) -> dict[str, Any]:
        with made.db.atomic():
            number = save_snapshot(
                made.db, body["port"], body["name"], body["run_id"], body["body"], time.time_ns()
            )
        return {"id": number}

    with (
        opened_database(path) as db,
        opened_run(
            [bundled_dir("skills")],
            log_dir=tmp_path / "log",
            db_path=path,
            port="dut1",
            incident=1,
            ask_ports=ports,
            write_memory=take,
            write_snapshot=keep,
            set_mark=take,
        ) as ctx,
    ):
        made = Bench(tmp_path, db, ctx)
        yield made


# log-expand


def shown(window: dict[str, Any]) -> list[int]:
    return [line["seq"] for line in window["lines"]]


async def test_log_expand_shows_many_lines_with_their_surroundings(bench: Bench) -> None:
    bench.log.add(*(f"line {'ab'[n % 2]} {n}" for n in range(1, 101)))

    found = await bench.output("log-expand", lines=[50, 10, 52, 900], before=2, after=1)

    first, second = found["windows"]
    assert (first["asked"], shown(first)) == ([10], [8, 9, 10, 11])
    assert (second["asked"], shown(second)) == ([50, 52], [48, 49, 50, 51, 52, 53])
    assert found["not_in_log"] == [900]
    assert ("dut1", 53) in bench.ctx.ledger


async def test_log_expand_goes_on_to_given_words(bench: Bench) -> None:
    bench.log.add("boot", "Oops: 17", "r0 1", "r1 2", "--- end trace 5 ---", "on")

    (window,) = (await bench.output("log-expand", lines=[2], before=0, until="END trace"))[
        "windows"
    ]

    assert shown(window) == [2, 3, 4, 5]


async def test_log_expand_says_that_the_words_do_not_come(bench: Bench) -> None:
    bench.log.add("boot", "Oops: 17", "r0 1", "r1 2")

    (window,) = (await bench.output("log-expand", lines=[2], after=1, until="end trace"))["windows"]

    assert shown(window) == [1, 2, 3]
    assert window["how"].startswith("no line with these words")


async def test_log_expand_finds_what_was_printed_in_one_go(bench: Bench) -> None:
    bench.log.add("idle one", "idle two", after_s=5.0)
    bench.log.add("Oops", after_s=5.0)
    bench.log.add("dump a", "dump b", after_s=0.01)
    bench.log.add("idle three", after_s=5.0)

    (window,) = (await bench.output("log-expand", lines=[4], block=True))["windows"]

    assert shown(window) == [3, 4, 5]
    assert "one go" in window["how"]


async def test_log_expand_takes_the_block_of_an_incident(bench: Bench) -> None:
    bench.log.add(*(f"line {'abc'[n % 3]}" for n in range(20)))
    save_change(bench.db, replace(incident(1, "linux.oops"), block_first=5, last_seq=9))

    (window,) = (await bench.output("log-expand", lines=[7], block=True))["windows"]

    assert (shown(window), window["how"]) == ([5, 6, 7, 8, 9], "block of incident 1")


async def test_log_expand_keeps_what_is_nearest_if_it_must_choose(bench: Bench) -> None:
    bench.log.add(*(f"line {'ab'[n % 2]} {'x' * 400}" for n in range(1, 101)))

    (window,) = (await bench.output("log-expand", lines=[50], before=40, after=40))["windows"]

    assert 50 in shown(window)
    assert window["cut_before"] > 0 < window["cut_after"]
    assert window["first"] < 50 < window["last"]
    assert len(shown(window)) == window["last"] - window["first"] + 1


# port-status


async def verdict(bench: Bench, **state: Any) -> dict[str, Any]:
    bench.port |= state
    found: dict[str, Any] = (await bench.output("port-status"))["verdict"]
    return found


async def test_port_status_shows_a_port_in_full(bench: Bench) -> None:
    bench.log.add("hello", "board ready")
    save_change(bench.db, incident(1, "linux.oops"))

    found = await bench.output("port-status")

    assert (found["state"], found["bit_rate"], found["boots"]) == ("up", 115200, 2)
    assert found["last_line"]["text"] == "board ready"
    assert found["last_rx_age_s"] < 60
    assert [i["trigger"] for i in found["incidents"]] == ["linux.oops"]
    assert found["verdict"]["place"] == "nothing"
    assert found["verdict"]["not_counted"] == ["buffer_overrun"]


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"uart_errors": {"overrun": 3}}, "PC"),
        ({"uart_errors": {"buffer_overrun": 3}}, "PC"),
        ({"lost_bytes": {"log": 4096}}, "PC"),
        ({"log_problem": "No space left"}, "PC"),
        ({"state": "busy", "holder": "minicom"}, "PC"),
        ({"uart_errors": {"framing": 4000}}, "settings"),
        ({"uart_errors": {"framing": 30, "parity": 10}}, "cable"),
        ({"state": "absent"}, "cable"),
        ({"state": "flapping", "reconnects": 9}, "cable"),
        ({"uart_errors": {"breaks": 2}}, "board"),
        ({"last_rx_at": "2026-06-22T00:00:00Z"}, "board"),
        ({"last_rx_at": None}, "unknown"),
    ],
)
async def test_port_status_says_where_the_fault_lies(
    bench: Bench, state: dict[str, Any], place: str
) -> None:
    found = await verdict(bench, **state)

    assert found["place"] == place
    assert found["signs"][0]["text"] == found["text"]


async def test_port_status_never_takes_an_uncounted_error_for_none(bench: Bench) -> None:
    found = await verdict(bench, uart_errors={})

    assert len(found["not_counted"]) == 5


async def test_port_status_shows_all_ports_and_knows_no_others(bench: Bench) -> None:
    every = await bench.output("port-status", all=True)
    none = await bench.output("port-status", port="dut9")

    assert [(p["port"], p["place"]) for p in every["ports"]] == [
        ("dut1", "nothing"),
        ("dut2", "cable"),
    ]
    assert (none["no_data"], none["ports"]) == (True, ["dut1", "dut2"])


# incident-history


def past(id: int, hours: float, fingerprint: str = "fp", **more: Any) -> Incident:
    at = START_NS + int(hours * 3600 * S)
    one = incident(id, more.pop("trigger", "linux.oops"))
    return replace(one, fingerprint=fingerprint, opened_utc_ns=at, last_utc_ns=at, **more)


async def test_incident_history_tells_conclusions_and_recurrence(bench: Bench) -> None:
    for number, hours in ((3, 0), (4, 2), (5, 6)):
        save_change(bench.db, past(number, hours, linked=(40 + number,)))
    save_change(bench.db, past(6, 7, "other", trigger="esp.guru"))
    save_change(bench.db, past(1, 8))
    save_report(bench.db, 4)

    found = await bench.output("incident-history")

    assert [i["id"] for i in found["incidents"]] == [6, 5, 4, 3]
    (report,) = [i["report"] for i in found["incidents"] if "report" in i]
    assert (report["verdict"], report["causes"]) == ("likely", ["The supply dipped."])
    (same,) = found["recurrence"]
    assert (same["times"], same["ids"], same["linked"]) == (4, [5, 4, 3, 1], [43, 44, 45])
    assert same["interval_s"] == {"shortest": 7200.0, "median": 7200.0, "longest": 14400.0}
    assert same["verdicts"] == {"likely": 1}


async def test_incident_history_of_the_same_fault_only(bench: Bench) -> None:
    save_change(bench.db, past(3, 0, port="esp3"))
    save_change(bench.db, past(4, 1, "other"))
    save_change(bench.db, past(1, 2))

    found = await bench.output("incident-history", same_as_this=True)

    assert [i["id"] for i in found["incidents"]] == [3]


async def test_incident_history_is_narrowed_by_port_class_and_time(bench: Bench) -> None:
    save_change(bench.db, past(3, 0, port="esp3", trigger="esp.guru"))
    save_change(bench.db, past(4, 1))

    async def ids(**params: Any) -> list[int]:
        found = await bench.output("incident-history", **params)
        return [one["id"] for one in found["incidents"]]

    assert await ids(port="esp3") == [3]
    assert await ids(**{"class": "linux.oops"}) == [4]
    assert await ids(since=iso(START_NS + 1800 * S)) == [4]
    assert await ids(until=iso(START_NS + 1800 * S)) == [3]
    assert await ids(fingerprint="fp") == [4, 3]
    assert await ids(fingerprint="none") == []
    assert await ids(since="-1s") == []
    assert error_code(await bench.run("incident-history", since="yesterday")) == "invalid_args"


def save_report(db: Database, id: int) -> None:
    cause = Conclusion("c1", "cause", "The supply dipped.", (Evidence("dut1", 3, "brownout"),))
    report = Report(
        id, 1, "offline analyst", "A brownout", "linux.oops", "error", "likely", 0.7,
        conclusions=(cause,),
    )  # fmt: skip
    with db.atomic():
        commit_report(db, report, "run-0")


# memory-write


MEMORY: dict[str, Any] = {
    "type": "fact",
    "title": "Weak supply on dut1",
    "body": "The 5 V rail dips when the radio starts.",
    "evidence": ["dut1:L2"],
}


async def test_memory_write_confirms_what_was_stored(bench: Bench) -> None:
    bench.log.add("one", "brownout")
    await bench.output("log-read", first=1)

    result = await bench.run("memory-write", **MEMORY)

    assert result.output == {"id": 1, "is_new": True, "near": [7]}
    assert result.metadata["summary"] == "remembered as M1 (new); near it: M7"
    (written,) = bench.written
    assert written["source"] == "model"
    assert written["session_id"] == "incident-1"
    assert (written["scope"], written["scope_name"]) == ("port", "dut1")
    assert written["links"] == [{"source_skill": "memory-write", "source_step": "run-1:0"}]


async def test_memory_write_takes_only_lines_that_were_read(bench: Bench) -> None:
    bench.log.add("one", "brownout")

    result = await bench.run("memory-write", **MEMORY)

    assert error_code(result) == "invalid_args"
    assert "dut1:L2 was not read" in result.metadata["error"]["detail"]
    assert bench.written == []


async def test_a_skill_does_not_say_whose_memory_it_is(bench: Bench) -> None:
    with pytest.raises(RefusedError, match="source: filled in"):
        await bench.ctx.answer("memory.write", {"memory": {**MEMORY, "source": "human"}})


# snapshots


async def test_a_snapshot_is_read_again_and_compared(bench: Bench) -> None:
    await bench.output("snapshot-write", name="before", what="counters")
    bench.port |= {"rx_bytes": 10_500, "state": "flapping", "uart_errors": {"overrun": 4}}
    await bench.output("snapshot-write", name="before", what="counters")

    whole = await bench.output("snapshot-read", name="before")
    found = await bench.output("snapshot-read", name="before", against=0)

    assert whole["snapshot"]["body"]["state"]["rx_bytes"] == 10_500
    changes = {c["what"]: c for c in found["changes"]}
    assert changes["state.rx_bytes"] == {
        "what": "state.rx_bytes", "old": 10_000, "new": 10_500, "grew_by": 500,
    }  # fmt: skip
    assert changes["state.state"]["new"] == "flapping"
    assert changes["state.uart_errors.overrun"]["grew_by"] == 4
    assert (found["old"]["id"], found["new"]["id"]) == (1, 2)


async def test_a_snapshot_of_shapes_and_one_of_facts(bench: Bench) -> None:
    bench.log.boot(1)
    bench.log.add("irq 1 ok", "irq 2 ok", "end")
    await bench.output("snapshot-write", name="shapes", what="shapes")
    await bench.output("snapshot-write", name="versions", what="facts", facts={"kernel": "6.1"})

    shapes = await bench.output("snapshot-read", name="shapes")
    names = await bench.output("snapshot-read")

    assert shapes["snapshot"]["body"]["state"]["shapes"] == {"irq <n> ok": 2, "end": 1}
    assert [n["name"] for n in names["names"]] == ["versions", "shapes"]


async def test_snapshots_that_are_not_there(bench: Bench) -> None:
    await bench.output("snapshot-write", name="one", what="facts", facts={"a": 1})

    none = await bench.output("snapshot-read", name="none")
    earlier = await bench.output("snapshot-read", name="one", against=0)
    gone = await bench.run("snapshot-read", id=99)
    no_facts = await bench.run("snapshot-write", name="two", what="facts")

    assert (none["no_data"], none["names"]) == (True, ["one"])
    assert earlier["no_data"] is True
    assert error_code(gone) == "precondition"
    assert no_facts.status == "require_more"


async def test_two_snapshots_can_be_named_by_their_ids(bench: Bench) -> None:
    for value in (1, 2, 3):
        await bench.output("snapshot-write", name="n", what="facts", facts={"a": value})

    found = await bench.output("snapshot-read", id=3, against=1)

    assert found["changes"] == [{"what": "state.a", "old": 1, "new": 3, "grew_by": 2}]


# people, markers, the cheap model

QUESTION: dict[str, Any] = {
    "question": "Was the supply changed on Monday?",
    "known": "Brownouts since Monday.",
    "missing": "Which part is the cause.",
    "options": ["yes", "no"],
}


async def test_human_ask_ends_with_the_question(bench: Bench) -> None:
    async with Workers() as workers:
        result = await workers.run("human-ask", QUESTION, bench.ctx)

    assert result.status == "require_more"
    assert result.metadata["need"] == {"kind": "answer", **QUESTION}
    assert result.output["question"] == QUESTION["question"]


async def test_a_marker_is_a_note_of_this_run(bench: Bench) -> None:
    await bench.ctx.answer("mark", {"text": "before the second try", "port": ""})

    assert bench.written == [{"port": "dut1", "text": "before the second try", "run_id": "run-1"}]
    for text in ("", "two\nlines", "x" * 200):
        with pytest.raises(RefusedError, match="text"):
            await bench.ctx.answer("mark", {"text": text})


async def test_the_cheap_model_is_asked_within_limits() -> None:
    asked: list[dict[str, Any]] = []

    async def complete(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        return {"text": "three resets"}

    with opened_run([], complete=complete) as ctx:
        answer = await ctx.answer("model.complete", {"prompt": "Sum it up.", "max_tokens": 50})
        with pytest.raises(RefusedError, match="max_tokens"):
            await ctx.answer("model.complete", {"prompt": "x", "max_tokens": 100_000})
        with pytest.raises(RefusedError, match="prompt"):
            await ctx.answer("model.complete", {"prompt": " "})
    with opened_run([]) as ctx, pytest.raises(RefusedError, match="no model is configured"):
        await ctx.answer("model.complete", {"prompt": "Sum it up."})

    assert (answer.body, answer.taint) == ({"text": "three resets"}, "dut")
    assert asked == [{"prompt": "Sum it up.", "max_tokens": 50}]


# log-read


async def test_log_read_goes_through_a_long_range_in_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_query, "MAX_SCANNED", 100)
    lines = [f"task {n} {'fails: error' if n in (7, 350, 990) else 'ok'}" for n in range(1, 1001)]
    bench.log.add("\n".join(lines))

    forward = await bench.output("log-read", first=1, level="error")
    newest = await bench.output("log-read", level="error")

    assert [line["seq"] for line in forward["lines"]] == [7, 350, 990]
    assert newest["lines"] == forward["lines"]
    assert (forward["next"], forward["searched"]) == (None, [1, 1000])
    assert sorted(bench.ctx.ledger) == [("dut1", 7), ("dut1", 350), ("dut1", 990)]


async def test_log_read_that_runs_out_of_time_does_not_say_that_there_is_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_query, "MAX_SCANNED", 100)
    bench.log.add("\n".join("ok" for _ in range(1000)))

    found = await run_skill(bench.ctx, "log-read", left_s=0.0, first=1, level="error")

    assert found.output["lines"] == []
    assert found.output["no_data"] is False
    assert found.output["next"] == {"first": 101}
    assert "go on with `next`" in found.output["why"]


async def test_log_read_says_why_there_is_nothing(bench: Bench) -> None:
    empty = await bench.output("log-read")
    bench.log.add("one", "two")
    beyond = await bench.output("log-read", first=5)
    no_match = await bench.output("log-read", match="three")

    assert (empty["no_data"], beyond["no_data"], no_match["no_data"]) == (True, True, True)
    assert "nothing was recorded" in empty["why"]
    assert "the log has L1 to L2" in beyond["why"]
    assert iso(START_NS + S // 10) in beyond["why"]
    assert no_match["why"] == "no such line among L1 to L2"
