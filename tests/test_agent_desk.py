"""What the core does with the agent's results."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from serialwatch.api.bench import Who
from serialwatch.metrics import Metrics
from serialwatch.records import Conclusion, Evidence, Hit, IncidentChange, Marker, Report
from serialwatch.service.agent_desk import AgentDesk
from serialwatch.service.faults import Faults
from serialwatch.store.database import Database
from serialwatch.store.inquiries import answer_inquiry
from serialwatch.store.late_results import load_late_results
from serialwatch.store.ports import load_port
from serialwatch.store.runs import (
    RoundRow,
    RunRow,
    SessionRow,
    SkillCallRow,
    Trace,
    enqueue,
    load_trace,
    trace_to_json,
)
from serialwatch.store.snapshots import load_snapshot
from serialwatch.store.templates import PortTemplates, load_templates
from serialwatch.triggers.ruleset import NovelDetector, Told
from serialwatch.wire import report_to_json

RULES: dict[str, Told] = {"log.novel": NovelDetector("log.novel", "warning", 300.0, "", "x")}


class Log:
    """A log that is on disk or not, in place of the writer with its threads."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.is_on_disk = True

    async def synced(self, port: str, seq: int) -> bool:
        return self.is_on_disk


class Desk:
    """A desk over a real database, with one incident."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.log = Log()
        self.told: list[Report] = []
        metrics = self.metrics = Metrics("1", list)
        writer: Any = self.log
        views: Any = lambda: [SimpleNamespace(name="dut1")]  # noqa: E731
        self.desk = AgentDesk(db, writer, metrics, self, dict, views, lambda _: {}, RULES.get)
        self.desk.faults = Faults(db, metrics, self, self.desk.wake)
        fault = Hit(
            port="dut1", trigger="linux.oops", severity="critical", tier="specific", title="oops",
            key="", seq=6, block_first=6, boot=0, mono_ns=10**9, utc_ns=10**18,
        )  # fmt: skip
        self.desk.faults.found([fault])
        (self.incident,) = self.desk.faults.incidents.open()

    def on_report(self, port: str, report: Report) -> None:
        self.told.append(report)

    def on_hit(self, hit: Hit) -> None:
        """Hear it."""

    def on_incident(self, change: IncidentChange) -> None:
        """Hear it."""

    async def submits(self) -> Any:
        evidence = Evidence("dut1", 6, "a line that is long enough")
        report = Report(
            incident=self.incident.id, revision=1, made_by="offline analyst", title="oops",
            fault_class="linux.oops", severity="critical", verdict="likely", confidence=0.6,
            conclusions=(Conclusion("c1", "observation", "It did.", (evidence,)),),
        )  # fmt: skip
        return await self.desk._answer("report", {"report": report_to_json(report), "run_id": "r1"})

    async def stored(self) -> int:
        return await self.db.run(lambda d: d.execute("SELECT count(*) FROM reports").fetchone()[0])


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    await db.run(lambda d: load_port(d, "dut1", "/dev/x"))
    yield Desk(db)
    await db.stop()


async def test_a_report_is_stored_when_its_lines_are_on_disk(desk: Desk) -> None:
    answer = await desk.submits()

    assert answer == {"revision": 1, "is_on_disk": True}
    assert await desk.stored() == 1
    assert desk.desk.unstored == {}


async def test_a_report_whose_lines_are_not_on_disk_waits_visibly(desk: Desk) -> None:
    desk.log.is_on_disk = False
    answer = await desk.submits()
    await desk.desk.store_logged()

    assert answer["is_on_disk"] is False
    assert len(desk.told) == 1
    assert list(desk.desk.unstored) == [(desk.incident.id, 1)]
    assert await desk.stored() == 0


async def test_it_is_stored_once_they_are(desk: Desk) -> None:
    desk.log.is_on_disk = False
    await desk.submits()
    desk.log.problems = {"dut1": "No space left on device"}
    await desk.desk.store_logged()
    assert await desk.stored() == 0
    desk.log.is_on_disk, desk.log.problems = True, {}
    await desk.desk.store_logged()

    assert await desk.stored() == 1
    await asyncio.wait_for(_emptied(desk), 5)


async def _emptied(desk: Desk) -> None:
    while desk.desk.unstored:
        await asyncio.sleep(0)


async def test_whether_the_model_is_left_alone_is_in_the_metrics(desk: Desk) -> None:
    def shown() -> float | None:
        return desk.metrics.registry.get_sample_value("serialwatch_breaker_state")

    await desk.desk._answer("breaker", {"is_open": True})
    assert shown() == 1
    desk.desk.link._hello()  # a new agent has asked nothing yet

    assert shown() == 0


NOVEL: dict[str, Any] = {
    "port": "dut1", "seq": 90, "boot": 3, "mono_ns": 90 * 10**9, "at_ns": 10**18,
    "text": "pump: pressure 17 is odd",
}  # fmt: skip


async def test_a_line_that_is_new_to_a_board_becomes_a_hit(desk: Desk) -> None:
    await desk.desk._answer("novel", NOVEL)
    assert desk.desk.faults
    newest = desk.desk.faults.incidents.open()[-1]

    assert (newest.trigger, newest.first_seq) == ("log.novel", 90)
    assert newest.title == "never printed in a good boot: pump: pressure 17 is odd"
    assert newest.key == "pump: pressure NUM is odd"


async def test_a_new_line_of_no_port_is_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="no such port: 'dut9'"):
        await desk.desk._answer("novel", NOVEL | {"port": "dut9"})


async def test_what_a_port_prints_in_good_boots_is_stored(desk: Desk) -> None:
    body = {"port": "dut1", "good_boots": 2, "texts": ["eth0: <*> up"]}
    await desk.desk._answer("templates", body)
    await desk.desk._answer("templates", body | {"good_boots": 3})

    stored = await desk.db.run(lambda db: load_templates(db, "dut1"))
    assert stored == PortTemplates("dut1", 3, ["eth0: <*> up"])
    assert await desk.db.run(lambda db: load_templates(db, "dut2")) is None


async def test_what_a_long_job_gave_is_stored(desk: Desk) -> None:
    body = {"status": "success", "output": {"n": 7}, "metadata": {}}
    sent = {"job_id": "J1", "run_id": "r1", "skill": "a-b", "body": body}
    await desk.desk._answer("late", sent)

    (late,) = await desk.db.run(lambda db: load_late_results(db, "r1"))
    assert (late.job_id, late.skill, late.body) == ("J1", "a-b", body)


async def test_what_makes_no_sense_is_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="erase the flash"):
        await desk.desk._answer("erase the flash", {})


async def test_what_models_cost_can_do_and_answered_is_stored(desk: Desk) -> None:
    spent = {"model": "m", "calls": 1, "prompt_tokens": 7, "completion_tokens": 2, "cost": 0.5}
    await desk.desk._answer("spent", spent)
    await desk.desk._answer("spent", spent)
    await desk.desk._answer("endpoint", {"base_url": "u", "model": "m", "can": {"tools": False}})
    await desk.desk._answer("cached", {"key": "k", "body": {"text": "t"}})

    rows = await desk.db.run(
        lambda d: [
            d.execute(sql).fetchall()
            for sql in (
                "SELECT calls, prompt_tokens, completion_tokens, cost FROM spending",
                "SELECT base_url, model, can_json FROM endpoints",
                "SELECT key, body_json FROM cached_answers",
            )
        ]
    )
    assert rows == [
        [(2, 14, 4, 1.0)],
        [("u", "m", '{"tools": false}')],
        [("k", '{"text": "t"}')],
    ]


@pytest.mark.parametrize("body", [3, {"text": "x" * 300_000}])
async def test_an_answer_that_is_none_or_far_too_long_is_not_kept(desk: Desk, body: Any) -> None:
    with pytest.raises(ValueError, match="no answer that can be kept"):
        await desk.desk._answer("cached", {"key": "k", "body": body})


def run_trace(number: int = 1, ended: int | None = None, status: str = "running") -> Trace:
    state: dict[str, Any] = {}
    if ended:
        state = {
            "offered": ["log-read", "log-stats"],
            "called": ["log-read"],
            "cited": ["log-read"],
            "rounds": 3,
            "answered": 2,
            "refused": [{"draft": 1, "id": "c1", "code": "G2", "why": "", "is_dropped": True}],
        }
    run = RunRow(
        "run1", "incident-1", "model", "settled", 1, "dut1", "log-detective", "tiny", "", 5, ended,
        status, "", state=state,
    )  # fmt: skip
    session = SessionRow("incident-1", "", "log-detective", 1, "dut1", 5, ended, status, "oops")
    call = SkillCallRow(number, 1, "log-read", "1.0.0", "", {}, "success", "", f"R{number}", 7)
    turn = RoundRow(number, "act", "native", [], {}, 100, 20, 9, "success")
    return Trace(session, run, [turn], skill_calls=[call])


async def test_each_step_of_a_run_is_counted_once_and_only_when_it_is_stored(desk: Desk) -> None:
    sample = desk.metrics.registry.get_sample_value

    def count(name: str, **labels: str) -> float:
        return sample(f"serialwatch_{name}_total", labels) or 0.0

    await desk.desk._answer("run", trace_to_json(run_trace(1)))
    bad = trace_to_json(run_trace(2))
    bad["skill_calls"][0]["args"] = {1, 2}  # cannot be stored
    with pytest.raises(TypeError):
        await desk.desk._answer("run", bad)
    await desk.desk._answer("run", trace_to_json(run_trace(2, 9, "done")))

    assert count("skill_calls", skill="log-read", status="success") == 2
    assert count("llm_requests", outcome="ok") == 2
    assert count("llm_tokens", kind="prompt") == 200
    assert count("skill_offered", skill="log-stats") == 1
    assert count("skill_cited", skill="log-read") == 1
    assert count("skill_cited", skill="log-stats") == 0
    assert count("skill_used", skill="log-read") == 1
    assert count("agent_rounds", kind="act") == 2
    assert count("agent_runs", kind="model", status="done") == 1
    assert count("llm_requests", outcome="error") == 1
    assert count("report_refusals", code="G2", result="dropped") == 1
    runs = await desk.db.run(lambda d: load_trace(d, "run1"))
    assert runs is not None
    assert (runs.run.exit_status, len(runs.rounds), len(runs.skill_calls)) == ("done", 2, 2)


async def test_a_step_that_comes_twice_is_counted_once(desk: Desk) -> None:
    for trace in (run_trace(1), run_trace(1), run_trace(2, 9, "done"), run_trace(2, 9, "done")):
        await desk.desk._answer("run", trace_to_json(trace))

    sample = desk.metrics.registry.get_sample_value
    calls = {"skill": "log-read", "status": "success"}
    assert sample("serialwatch_skill_calls_total", calls) == 2
    assert sample("serialwatch_llm_tokens_total", {"kind": "prompt"}) == 200
    assert sample("serialwatch_agent_runs_total", {"kind": "model", "status": "done"}) == 1
    assert sample("serialwatch_skill_offered_total", {"skill": "log-read"}) == 1


async def test_no_name_or_kind_that_a_model_invents_becomes_a_label(desk: Desk) -> None:
    trace = run_trace(1, 9, "gone mad")
    call = replace(trace.skill_calls[0], skill='evil"} 1\nx{y="')
    turn = replace(trace.rounds[0], kind="\x1b[31m")
    state = {**trace.run.state, "offered": [f"s{n}" for n in range(500)] + ["A B"]}
    trace = replace(trace, skill_calls=[call], rounds=[turn], run=replace(trace.run, state=state))
    await desk.desk._answer("run", trace_to_json(trace))

    text = desk.metrics.render().decode()
    assert "evil" not in text
    assert "x1b" not in text
    assert text.count("serialwatch_skill_offered_total{") <= 201
    assert 'serialwatch_agent_runs_total{kind="model",status="other"} 1.0' in text


async def test_a_run_that_waits_is_not_counted_as_one_that_ended(desk: Desk) -> None:
    await desk.desk._answer("run", trace_to_json(run_trace(1, 9, "waiting")))

    sample = desk.metrics.registry.get_sample_value
    assert not sample("serialwatch_skill_offered_total", {"skill": "log-stats"})


async def test_a_question_of_a_run_is_stored_and_its_answer_survives_a_restart(desk: Desk) -> None:
    asked = {"run_id": "run1", "question": "Which board?", "known": "an oops", "missing": "it"}
    answer = await desk.desk._answer("inquiry", asked)
    assert answer == {"id": 1}
    await desk.db.run(lambda d: answer_inquiry(d, 1, "the left one", "ada", 9))
    body = {"run_id": "run1", "inquiry_id": 1}
    await desk.db.run(lambda d: enqueue(d, "incident", id=70, phase="answered", body=body))
    await desk.desk.resume()

    assert desk.desk._greet()[-1] == {
        "kind": "answered", "queue_id": 70, "run_id": "run1", "inquiry_id": 1,
        "text": "the left one", "user": "ada",
    }  # fmt: skip
    await desk.desk._answer("done", {"queue_id": 70, "ok": True})
    assert all(order["kind"] != "answered" for order in desk.desk._greet())


async def test_a_snapshot_of_a_skill_is_stored(desk: Desk) -> None:
    body = {"port": "dut1", "name": "before", "run_id": "r1", "body": {"rx": 5}}

    answer = await desk.desk._answer("snapshot", body)

    found = await desk.db.run(lambda d: load_snapshot(d, answer["id"]))
    assert found is not None
    assert (found.port, found.name, found.run_id, found.body) == ("dut1", "before", "r1", {"rx": 5})


async def test_a_marker_of_the_agent_is_a_note_in_its_name(desk: Desk) -> None:
    marked: list[tuple[str, str, str, str]] = []

    async def mark(port: str, kind: str, text: str, who: Who) -> Marker:
        marked.append((port, kind, text, who.user))
        return Marker(3, port, 90, kind, text, who.user, 0, 0)

    bench: Any = SimpleNamespace(mark=mark)
    desk.desk.bench = bench
    answer = await desk.desk._answer("mark", {"port": "dut1", "text": "second try", "run_id": "r"})

    assert answer == {"id": 3, "port": "dut1", "seq": 90}
    assert marked == [("dut1", "note", "second try", "agent")]
