"""Actions that wait for a person: decided once, begun once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.store.approvals import (
    CUT_OFF,
    ENDED,
    LETTERS,
    ApprovalRow,
    add_approval,
    approval_hash,
    approval_to_json,
    begin,
    count_approvals,
    decide,
    end,
    expire,
    find_same,
    load_approval,
    load_approvals,
    take_up,
)
from serialwatch.store.retention import DAY_NS, prune_rows
from serialwatch.store.sqlite_file import open_file

NOW = 1_782_000_000_123_456_000
LATER = NOW + 900 * 10**9
STEPS = ({"op": "console.send", "hex": "03"},)
ROW = ApprovalRow(
    id="", state="pending", run_id="run-1", role="log-detective", incident_id=17, port="dut1",
    skill="console-send", version="1.0.0", sha="ab", args={"text": "x"}, steps=STEPS,
    hash=approval_hash("console-send", "ab", "dut1", STEPS), effect=("send 1 byte",), why="to see",
    evidence=("dut1:L3",), device="usb 0403:6001 A5", boot=7, any_boot=False, created_utc_ns=NOW,
    expires_utc_ns=LATER,
)  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def decided(db: Database, id: str, state: str = "approved", now: int = NOW + 1) -> bool:
    return decide(
        db, id, state, by="ann", uid=1000, pid=42, note="go", now_utc_ns=now  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_proposal_comes_back_as_it_was_under_an_id_that_can_be_said(db: Database) -> None:
    added = add_approval(db, ROW)

    assert len(added.id) == 4
    assert set(added.id) <= set(LETTERS)
    found = load_approval(db, added.id)
    assert found == replace(
        ROW, id=added.id, steps=list(STEPS), effect=["send 1 byte"], evidence=["dut1:L3"]
    )
    body = approval_to_json(added)
    assert (body["run"], body["incident"], body["expires"]) == (
        "run-1", 17, "2026-06-21T00:15:00.123456Z",
    )  # fmt: skip


def test_an_action_is_decided_once_and_begun_once(db: Database) -> None:
    one = add_approval(db, ROW).id

    assert not begin(db, one, NOW)
    assert decided(db, one)
    assert not decided(db, one, "denied")
    assert begin(db, one, NOW + 2)
    assert not begin(db, one, NOW + 3)
    assert end(db, one, "done", "sent 1 byte", NOW + 4)
    assert not end(db, one, "failed", "", NOW + 5)
    row = load_approval(db, one)
    assert row
    assert (row.state, row.decided_by, row.decided_uid, row.result) == (
        "done", "ann", 1000, "sent 1 byte",
    )  # fmt: skip


def test_time_ends_what_is_pending_and_what_nobody_could_begin(db: Database) -> None:
    waits, approved, late = (add_approval(db, ROW).id for _ in range(3))
    decided(db, approved)

    assert not decided(db, late, now=LATER)
    assert expire(db, LATER - 1000) == []
    assert {row.id for row in expire(db, LATER)} == {waits, approved, late}
    assert not begin(db, approved, LATER)
    assert count_approvals(db)["expired"] == 3


def test_what_was_being_done_at_the_end_of_a_daemon_is_unknown_and_not_begun_again(
    db: Database,
) -> None:
    pending, approved, executing = (add_approval(db, ROW).id for _ in range(3))
    decided(db, approved)
    decided(db, executing)
    begin(db, executing, NOW + 2)

    assert take_up(db, NOW + 3) == (1, 1)
    found = {row.id: (row.state, row.result) for row in load_approvals(db)}
    assert found[pending] == ("pending", "")
    assert found[approved] == ("failed", ENDED)
    assert found[executing] == ("unknown", CUT_OFF)
    assert not begin(db, executing, NOW + 4)
    assert not begin(db, approved, NOW + 4)


def test_the_same_proposal_is_found_while_nothing_has_come_of_it(db: Database) -> None:
    one = add_approval(db, ROW).id
    other = approval_hash("console-send", "ab", "dut1", [{"op": "console.send", "hex": "04"}])

    same = find_same(db, ROW.hash)
    assert same
    assert same.id == one
    assert find_same(db, other) is None
    decided(db, one, "denied")
    assert find_same(db, ROW.hash) is None


def test_actions_are_found_by_state_port_run_and_incident(db: Database) -> None:
    one = add_approval(db, ROW).id
    two = add_approval(
        db, replace(ROW, port="dut2", run_id="run-2", incident_id=None, created_utc_ns=NOW + 1000)
    ).id
    decided(db, one, "denied")

    assert [row.id for row in load_approvals(db)] == [two, one]
    assert [row.id for row in load_approvals(db, states=("pending",))] == [two]
    assert [row.id for row in load_approvals(db, port="dut1")] == [one]
    assert [row.id for row in load_approvals(db, run_id="run-2")] == [two]
    assert [row.id for row in load_approvals(db, incident_id=17)] == [one]


def test_what_has_ended_long_ago_is_deleted_and_what_waits_stays(db: Database) -> None:
    old, new = add_approval(db, ROW).id, add_approval(db, ROW).id
    decided(db, old, "denied")

    prune_rows(db, 30, NOW + 31 * DAY_NS)
    assert [row.id for row in load_approvals(db)] == [new]
