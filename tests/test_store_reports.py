"""Reports by revision."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.records import (
    Claims,
    Conclusion,
    Cost,
    Evidence,
    Hypothesis,
    NextStep,
    Report,
    TimelineEntry,
)
from serialwatch.store.incidents import save_change
from serialwatch.store.reports import (
    commit_report,
    count_revisions,
    load_report,
    load_revisions,
    next_revision,
)
from serialwatch.store.sqlite_file import open_file
from test_store_incidents import incident

UTC = 1_782_000_000_123_456_000

REPORT = Report(
    incident=1,
    revision=1,
    made_by="offline analyst",
    title="IRQ 33 was disabled",
    fault_class="linux.irq_nobody_cared",
    severity="critical",
    verdict="likely",
    confidence=0.8,
    hypotheses=(Hypothesis("linux.irq_nobody_cared", "spurious", 0.8, "open"),),
    conclusions=(
        Conclusion(
            "c1",
            "observation",
            "IRQ 33 fired 100000 times",
            (Evidence("dut1", 48211, "irq 33: nobody cared"), Evidence("dut2", 7, "“ü”")),
            ("linux/irq_nobody_cared",),
            ("R1",),
        ),
        Conclusion("c2", "cause", "The sensor holds its line", (Evidence("dut1", 5, "drdy"),)),
    ),
    timeline=(TimelineEntry("dut1", 48211, UTC, "irq 33", "first fault line"),),
    unknowns=("who",),
    next_steps=(NextStep("look at /proc/interrupts", "L3"),),
    not_checked=("power",),
    claims=Claims(2, 1),
    cost=Cost(3, 0, 0, 0.25, "", "no model is configured"),
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    save_change(opened, incident(1))
    yield opened
    opened.close()


def test_a_report_comes_back_as_it_was(db: Database) -> None:
    commit_report(db, REPORT, "run-1")

    assert load_report(db, 1) == REPORT
    assert load_report(db, 1, 2) is None
    assert load_report(db, 2) is None


def test_the_newest_revision_is_the_report(db: Database) -> None:
    assert next_revision(db, 1) == 1
    commit_report(db, REPORT, "run-1")
    newer = replace(REPORT, revision=2, made_by="model m", verdict="confirmed")
    commit_report(db, newer, "run-2")

    assert load_report(db, 1) == newer
    assert load_report(db, 1, 1) == REPORT
    assert next_revision(db, 1) == 3
    found = load_revisions(db, 1)
    assert [(r.revision, r.made_by, r.verdict, r.run_id) for r in found] == [
        (1, "offline analyst", "likely", "run-1"),
        (2, "model m", "confirmed", "run-2"),
    ]
    assert found[0].fault_class == "linux.irq_nobody_cared"
    assert count_revisions(db, [1, 2]) == {1: 2}


def test_conclusions_and_evidence_are_rows(db: Database) -> None:
    commit_report(db, REPORT, "run-1")
    rows = db.execute(
        """
        SELECT c.id, c.kind, c.claim, e.port, e.seq, e.quote
        FROM conclusions c JOIN evidence e
            ON (e.incident_id, e.revision, e.conclusion_id) = (c.incident_id, c.revision, c.id)
        WHERE c.incident_id = 1 AND c.revision = 1 ORDER BY c.id, e.rowid
        """
    ).fetchall()

    assert rows == [
        ("c1", "observation", "IRQ 33 fired 100000 times", "dut1", 48211, "irq 33: nobody cared"),
        ("c1", "observation", "IRQ 33 fired 100000 times", "dut2", 7, "“ü”"),
        ("c2", "cause", "The sensor holds its line", "dut1", 5, "drdy"),
    ]


def test_a_revision_is_stored_once(db: Database) -> None:
    commit_report(db, REPORT, "run-1")
    with pytest.raises(sqlite3.IntegrityError):
        commit_report(db, replace(REPORT, title="another"), "run-2")

    assert load_report(db, 1) == REPORT
    assert db.execute("SELECT count(*) FROM evidence").fetchone() == (3,)


def test_a_report_of_no_incident_leaves_nothing(db: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        commit_report(db, replace(REPORT, incident=77), "run-1")

    assert db.execute("SELECT count(*) FROM conclusions").fetchone() == (0,)
