"""Boots and markers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.records import Boot, Marker, Ready
from serialwatch.store.boots import (
    load_boot,
    load_boots,
    load_markers,
    next_marker_id,
    save_boot,
    save_marker,
    save_ready,
)
from serialwatch.store.ports import load_port
from serialwatch.store.sqlite_file import open_file

UTC = 1_782_000_000_123_456_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def boot(number: int, **other: object) -> Boot:
    fields = {
        "port": "dut1", "number": number, "seq": number * 100, "ecosystem": "uboot",
        "cause": "watchdog", "marker": "U-Boot SPL", "mono_ns": 5, "utc_ns": UTC + number,
        "is_expected": True,
    }  # fmt: skip
    return Boot(**(fields | other))  # type: ignore[arg-type]


def test_a_boot_comes_back_as_it_was(db: Database) -> None:
    save_boot(db, boot(3))
    save_boot(db, boot(3, seq=999))  # found again after a restart
    found = load_boot(db, "dut1", 3)

    assert found is not None
    assert (found.seq, found.cause, found.is_expected, found.marker) == (
        300,
        "watchdog",
        True,
        "U-Boot SPL",
    )
    assert found.utc_ns == UTC
    assert (found.ready_utc_ns, found.ready_seq) == (None, None)


def test_the_port_knows_its_newest_boot(db: Database) -> None:
    load_port(db, "dut1", "d")
    for number in (1, 3, 2):
        save_boot(db, boot(number))

    assert load_port(db, "dut1", "d").boot == 3
    assert [b.number for b in load_boots(db, "dut1", limit=2)] == [3, 2]
    assert load_boots(db, "dut2") == []
    assert load_boot(db, "dut1", 9) is None


def test_the_first_ready_marker_of_a_boot_counts(db: Database) -> None:
    save_boot(db, boot(1))
    save_ready(db, Ready("dut1", 150, 1, 6, UTC + 5_000))
    save_ready(db, Ready("dut1", 190, 1, 7, UTC + 9_000))
    (found,) = load_boots(db, "dut1")

    assert (found.ready_seq, found.ready_utc_ns) == (150, UTC + 5_000)


def test_markers_come_back_newest_first(db: Database) -> None:
    assert next_marker_id(db) == 1
    markers = [
        Marker(n, "dut1", n * 10, "flash", f"v{n}", "ann", n, UTC + n * 1_000_000) for n in (1, 2)
    ]
    for marker in markers:
        save_marker(db, marker)
        save_marker(db, marker)

    assert load_markers(db, "dut1") == markers[::-1]
    assert load_markers(db, "dut1", since_utc_ns=UTC + 2_000_000) == markers[1:]
    assert load_markers(db, "dut2") == []
    assert next_marker_id(db) == 3
