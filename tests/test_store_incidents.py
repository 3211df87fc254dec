"""Incidents in SQLite: as they were, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from serialwatch.incidents.incidents import Incidents
from serialwatch.records import Hit, HitCount, Incident
from serialwatch.store import incidents as store
from serialwatch.store.incidents import (
    delete_mute,
    load_history,
    load_incident,
    load_incidents,
    load_left,
    load_mutes,
    load_unresolved,
    next_incident_id,
    save_change,
    save_mute,
)
from serialwatch.store.ports import load_port
from serialwatch.store.runs import load_queue
from serialwatch.store.sqlite_file import open_file

S = 1_000_000_000
UTC = 1_782_000_000_123_456_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def count(trigger: str, **other: Any) -> HitCount:
    fields: dict[str, Any] = {
        "severity": "critical", "tier": "specific", "title": f"{trigger} – é", "first_seq": 5,
        "last_seq": 9, "first_utc_ns": UTC, "last_utc_ns": UTC + S, "count": 3,
        "samples": (5, 7, 9), "fields": {"irq": "33"},
    }  # fmt: skip
    return HitCount(trigger=trigger, **(fields | other))


def incident(id: int = 1, **other: Any) -> Incident:
    fields: dict[str, Any] = {
        "id": id, "port": "dut1", "state": "open", "trigger": "linux.oops",
        "severity": "critical", "tier": "specific", "title": "oops in foo", "key": "foo",
        "fingerprint": "0123456789abcdef", "ecosystem": "linux", "knowledge": "linux/oops",
        "fields": {"pc": "foo+0x1/0x2"}, "boot": 7, "first_seq": 5, "block_first": 3,
        "last_seq": 40, "opened_mono_ns": 10, "opened_utc_ns": UTC + id * S,
        "last_mono_ns": 20, "last_utc_ns": UTC + id * S + 5, "count": 3,
        "hits": (count("linux.oops"), count("a.earlier", first_seq=2), count("link.silence", first_seq=0)),
        "is_settled": True, "outcome": "rebooted", "outcome_cause": "watchdog",
        "outcome_seq": 44, "linked": (8, 9), "seen_before": (3, 2), "firmware": "6.1.0",
        "muted_until_utc_ns": None, "resolved_by": "",
    }  # fmt: skip
    return Incident(**(fields | other))


def as_stored(incident: Incident) -> Incident:
    """Times lose what is below a microsecond."""
    return replace(
        incident,
        opened_utc_ns=incident.opened_utc_ns // 1000 * 1000,
        last_utc_ns=incident.last_utc_ns // 1000 * 1000,
    )


@pytest.mark.parametrize("muted", [None, 0, UTC + 99 * S])
def test_an_incident_comes_back_as_it_was(db: Database, muted: int | None) -> None:
    saved = incident(muted_until_utc_ns=muted)
    save_change(db, saved)

    assert load_incident(db, 1) == as_stored(saved)
    assert load_incident(db, 2) is None


def test_a_change_brings_the_rows_up_to_date(db: Database) -> None:
    save_change(db, incident())
    changed = incident(
        state="reported", title="panic", hits=(count("linux.oops", count=9, last_seq=80),),
        outcome=None, resolved_by="ann",
    )  # fmt: skip
    save_change(db, changed)
    found = load_incident(db, 1)

    assert found is not None
    assert (found.state, found.title, found.outcome) == ("reported", "panic", None)
    assert (found.hits[0].count, found.hits[0].last_seq) == (9, 80)
    assert len(found.hits) == 3
    assert len(load_incidents(db)) == 1


@pytest.mark.parametrize("other", [{"port": "dut2"}, {"opened_utc_ns": UTC}])
def test_another_incident_of_the_same_number_is_never_overwritten(
    db: Database, other: dict[str, Any]
) -> None:
    save_change(db, incident())
    with pytest.raises(ValueError, match="there is another incident 1"):
        save_change(db, incident(title="other", hits=(count("x.y"),), **other))

    assert load_incident(db, 1) == as_stored(incident())


def test_the_primary_hit_is_first_then_by_line(db: Database) -> None:
    save_change(db, incident())
    found = load_incident(db, 1)

    assert found is not None
    assert [h.trigger for h in found.hits] == ["linux.oops", "a.earlier", "link.silence"]


def test_a_phase_for_the_agent_is_queued_with_it(db: Database) -> None:
    assert save_change(db, incident()) is None
    assert save_change(db, incident(), queue_phase="opened", queue_id=12) == 12
    assert save_change(db, incident(), queue_phase="settled") == 13
    queued = load_queue(db)

    assert [(q.id, q.kind, q.phase, q.incident_id, q.port) for q in queued] == [
        (12, "incident", "opened", 1, "dut1"),
        (13, "incident", "settled", 1, "dut1"),
    ]


def test_incident_position_and_queue_are_stored_together_or_not_at_all(db: Database) -> None:
    load_port(db, "dut1", "d")
    save_change(db, incident(), queue_phase="opened", queue_id=12, matched={"dut1": 40})
    assert load_port(db, "dut1", "d").matched_seq == 40

    with pytest.raises(sqlite3.IntegrityError):  # the id is taken
        save_change(
            db, incident(2), queue_phase="opened", queue_id=12, matched={"dut1": 90, "dut2": 1}
        )
    assert load_incident(db, 2) is None
    assert load_port(db, "dut1", "d").matched_seq == 40
    assert db.execute("SELECT count(*) FROM hits WHERE incident_id = 2").fetchone() == (0,)


def test_incidents_are_found_by_what_they_are(db: Database) -> None:
    save_change(db, incident(1))
    save_change(db, incident(2, port="dut2", severity="warning"))
    save_change(db, incident(3, state="resolved", trigger="esp.panic", fingerprint="f" * 16))

    def ids(**wanted: Any) -> list[int]:
        return [i.id for i in load_incidents(db, **wanted)]

    assert ids() == [3, 2, 1]
    assert ids(limit=2) == [3, 2]
    assert ids(port="dut2") == [2]
    assert ids(states={"open", "reported"}) == [2, 1]
    assert ids(severity="error") == [3, 1]
    assert ids(trigger="esp.panic") == [3]
    assert ids(fingerprint="f" * 16) == [3]
    assert ids(since_utc_ns=UTC + 2 * S) == [3, 2]
    assert [i.id for i in load_unresolved(db)] == [1, 2]


def test_text_of_a_board_is_stored_as_text(db: Database) -> None:
    evil = '\'); DROP TABLE incidents; -- \\x1b[2J "quoted" %s ☃ \udc80'.encode(
        "utf-8", errors="backslashreplace"
    ).decode()
    save_change(db, incident(title=evil, key=evil, fields={evil: evil}))
    found = load_incident(db, 1)

    assert found is not None
    assert (found.title, found.key, found.fields) == (evil, evil, {evil: evil})
    assert load_incidents(db, port="' OR 1=1 --") == ()


def test_history_has_the_newest_of_each_fingerprint(db: Database) -> None:
    for number in range(1, store.HISTORY + 6):
        save_change(db, incident(number, hits=()))
    save_change(db, incident(99, fingerprint="f" * 16, hits=()))

    assert load_history(db) == {
        "0123456789abcdef": tuple(range(store.HISTORY + 5, 5, -1)),
        "f" * 16: (99,),
    }
    assert next_incident_id(db) == 100


def test_mutes_come_back(db: Database) -> None:
    save_mute(db, "aa", 0, "ann")
    save_mute(db, "bb", UTC, "bob")
    save_mute(db, "bb", UTC + S, "bob")
    assert load_mutes(db) == {"aa": 0, "bb": UTC + S}

    delete_mute(db, "aa")
    assert load_mutes(db) == {"bb": UTC + S}


def test_a_new_database_has_nothing_left(db: Database) -> None:
    left = load_left(db)

    assert (left.next_id, left.next_queue_id, left.unresolved) == (1, 1, ())
    assert (left.mutes, left.history) == ({}, {})


def test_a_restart_goes_on_with_what_was_left(db: Database) -> None:
    def fault(at_s: int, seq: int) -> Hit:
        return Hit("dut1", "linux.oops", "critical", "specific", "oops", "k", seq, seq, 1,
                   at_s * S, UTC + at_s * S)  # fmt: skip

    incidents = Incidents(1)
    for change in incidents.found(fault(0, 5)):
        save_change(db, change.incident, queue_phase="opened")
    left = load_left(db)
    incidents = Incidents(left.next_id)
    settled = incidents.restore(
        left.unresolved, left.mutes, left.history, mono_ns=0, utc_ns=UTC + 60 * S
    )
    assert [c.what for c in settled] == ["settled"]
    assert incidents.found(fault(1, 5)) == []

    (again,) = incidents.found(fault(2, 6))
    assert (again.incident.id, again.incident.count) == (1, 2)
    (other,) = incidents.found(fault(4000, 60))[-1:]
    assert (other.incident.id, other.incident.seen_before) == (2, (1,))
    assert left.next_queue_id == 2
