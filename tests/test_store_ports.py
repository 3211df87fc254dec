"""Line numbers that are never used twice, over real SQLite files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.store.ports import (
    SEQ_BLOCK,
    PortEnd,
    close_clean,
    load_port,
    reserve,
    store_positions,
)
from serialwatch.store.sqlite_file import open_file


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def test_a_new_port_begins_at_1_with_a_block(db: Database) -> None:
    port = load_port(db, "dut1", "/dev/ttyUSB0")

    assert (port.next_seq, port.reserved_seq) == (1, 1 + SEQ_BLOCK)
    assert (port.matched_seq, port.boot, port.is_clean) == (0, 0, True)


def test_a_new_port_with_an_old_log_goes_on_above_it(db: Database) -> None:
    assert load_port(db, "dut1", "d", logged_seq=48_210).next_seq == 48_211


def test_after_a_clean_end_numbers_go_on_without_a_hole(db: Database) -> None:
    load_port(db, "dut1", "d")
    close_clean(db, {"dut1": PortEnd(next_seq=123, matched_seq=122, boot=7)})
    port = load_port(db, "dut1", "/dev/other", logged_seq=122)

    assert (port.next_seq, port.reserved_seq) == (123, 123 + SEQ_BLOCK)
    assert (port.matched_seq, port.boot, port.is_clean) == (122, 7, True)
    assert port.device == "/dev/other"


def test_after_a_crash_numbers_go_on_above_what_was_reserved(db: Database) -> None:
    load_port(db, "dut1", "d")
    port = load_port(db, "dut1", "d", logged_seq=500)

    assert (port.next_seq, port.is_clean) == (1 + SEQ_BLOCK, False)


def test_after_a_crash_numbers_go_on_above_the_log_if_that_is_higher(db: Database) -> None:
    load_port(db, "dut1", "d")
    port = load_port(db, "dut1", "d", logged_seq=1_000_000)  # the database could not be written

    assert port.next_seq == 1_000_001


def test_a_block_reserved_later_counts_after_a_crash(db: Database) -> None:
    load_port(db, "dut1", "d")
    reserve(db, "dut1", 200_000)
    reserve(db, "dut1", 150_000)

    assert load_port(db, "dut1", "d").next_seq == 200_000


def test_a_clean_end_beyond_what_was_reserved_is_kept(db: Database) -> None:
    load_port(db, "dut1", "d")
    close_clean(db, {"dut1": PortEnd(300_000, 0, 0)})
    load_port(db, "dut1", "d")  # and crashes

    assert load_port(db, "dut1", "d").next_seq == 300_000 + SEQ_BLOCK


def test_a_block_can_be_reserved_in_a_database_begun_anew(db: Database) -> None:
    reserve(db, "dut1", 200_000)

    assert load_port(db, "dut1", "d").next_seq == 200_000


def test_a_position_never_goes_back(db: Database) -> None:
    load_port(db, "dut1", "d")
    load_port(db, "dut2", "d")
    store_positions(db, {"dut1": 80, "dut2": 5})
    store_positions(db, {"dut1": 70, "nobody": 1})

    assert load_port(db, "dut1", "d").matched_seq == 80
    assert load_port(db, "dut2", "d").matched_seq == 5


def test_no_number_is_ever_given_twice(db: Database) -> None:
    used: set[int] = set()
    logged = 0
    for run in range(12):
        port = load_port(db, "dut1", "d", logged_seq=logged)
        fresh = {port.next_seq, port.next_seq + 10, port.reserved_seq - 1}
        assert not used & fresh
        assert port.next_seq > max(used, default=0)
        used |= fresh
        logged = port.next_seq + 10 if run % 4 == 1 else logged
        if run % 3 == 0:
            close_clean(db, {"dut1": PortEnd(max(used) + 1, 0, 0)})
