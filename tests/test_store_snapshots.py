from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.store import snapshots as kept
from serialwatch.store.snapshots import (
    SnapshotRefusedError,
    load_snapshot,
    load_snapshots,
    save_snapshot,
    snapshot_names,
)
from skill_run import opened_database

NOW = 1_782_100_692_000_000_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened_database(tmp_path / "serialwatch.db") as made:
        yield made


def test_a_snapshot_comes_back_as_it_was(db: Database) -> None:
    body = {"state": {"rx": 5, "text": "grün", "list": [1, None]}}
    number = save_snapshot(db, "dut1", "before", "run-1", body, NOW)

    found = load_snapshot(db, number)

    assert found is not None
    assert (found.body, found.port, found.name) == (body, "dut1", "before")
    assert (found.run_id, found.created_utc_ns) == ("run-1", NOW)
    assert load_snapshot(db, number + 1) is None


def test_the_newest_come_first_and_ports_are_apart(db: Database) -> None:
    for port, value in (("dut1", 1), ("dut1", 2), ("dut2", 3)):
        save_snapshot(db, port, "n", "r", {"v": value}, NOW)

    assert [s.body["v"] for s in load_snapshots(db, "dut1", "n")] == [2, 1]
    assert [(n.name, n.count) for n in snapshot_names(db, "dut2")] == [("n", 1)]


def test_old_ones_of_a_name_and_old_names_go(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", 2)
    monkeypatch.setattr(kept, "MAX_NAMES", 2)
    for name in ("a", "a", "a", "b", "c"):
        save_snapshot(db, "dut1", name, "r", {}, NOW)
    save_snapshot(db, "dut2", "a", "r", {}, NOW)

    assert [(n.name, n.count) for n in snapshot_names(db, "dut1")] == [("c", 1), ("b", 1)]
    assert len(load_snapshots(db, "dut2", "a")) == 1


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_a_name_is_short_and_one_line(db: Database, name: str) -> None:
    with pytest.raises(SnapshotRefusedError, match="printable"):
        save_snapshot(db, "dut1", name, "r", {}, NOW)


def test_what_is_too_large_is_refused(db: Database) -> None:
    with pytest.raises(SnapshotRefusedError, match="at most 16384"):
        save_snapshot(db, "dut1", "n", "r", {"x": "y" * 20_000}, NOW)
