"""The ring: scrollback, order, and what it drops when the writer stands still."""

from __future__ import annotations

import threading

from log_feed import MS
from serialwatch.capture.ring import (
    DROP_BYTES,
    KEPT_BYTES,
    MAX_UNWRITTEN,
    Ring,
    RingBudget,
)
from serialwatch.store.log_format import Cut, Kind, Place
from serialwatch.store.log_items import Chunk, Gap, Item, NewFile, Note


def chunk(data: bytes, mono_ns: int = 0, seq: int = 1) -> Chunk:
    return Chunk(data, mono_ns, mono_ns, mono_ns, seq, 0)


def ring_of(budget: RingBudget | None = None) -> Ring:
    ring = Ring("dut1", budget or RingBudget())
    ring.unhold()
    return ring


def size_of(items: list[Item]) -> int:
    return sum(len(item.data) for item in items if isinstance(item, Chunk))


def test_the_newest_256_kib_are_kept() -> None:
    ring = ring_of()
    sent = b"".join(i.to_bytes(4, "big") for i in range(200_000))
    for at in range(0, len(sent), 1000):
        ring.remember(sent[at : at + 1000])

    assert ring.recent() == sent[-KEPT_BYTES:]


def test_the_writer_gets_everything_in_order() -> None:
    ring = ring_of()
    items: list[Item] = [
        NewFile(Cut.STOP, 1, 0, "lf", 0, 0),
        chunk(b"one\n"),
        Note(Kind.MARK, 7, 2, 0, 0),
        chunk(b"two\n"),
    ]
    for item in items:
        ring.put(item)

    assert list(ring.take()) == items
    assert not ring.take()


def test_what_is_put_back_comes_first() -> None:
    ring = ring_of()
    ring.put(chunk(b"one"))
    ring.put(chunk(b"two"))
    taken = ring.take()
    ring.put(chunk(b"three"))
    ring.put_back(taken)

    assert [c.data for c in ring.take() if isinstance(c, Chunk)] == [b"one", b"two", b"three"]


def test_nothing_is_taken_before_lines_have_numbers() -> None:
    ring = Ring("dut1", RingBudget())
    ring.put(chunk(b"early"))

    assert not ring.take()
    ring.requeue(ring.unhold())
    assert size_of(list(ring.take())) == 5


def test_the_writer_is_woken() -> None:
    ring = ring_of()
    ring.signal = threading.Event()
    ring.put(chunk(b"x"))

    assert ring.signal.is_set()


def test_with_no_writer_the_oldest_bytes_are_dropped_and_counted_exactly() -> None:
    ring = ring_of()
    sent = 0
    for number in range(MAX_UNWRITTEN // 4000 + 100):
        ring.put(chunk(number.to_bytes(4, "big") * 1000, seq=number + 1))
        sent += 4000
    items = list(ring.take())

    gap = items[0]
    assert isinstance(gap, Gap)
    assert (gap.place, gap.seq) == (Place.LOG, 1)
    assert gap.lost_bytes == ring.lost_bytes >= DROP_BYTES
    assert gap.lost_bytes + size_of(items) == sent
    assert MAX_UNWRITTEN - 2 * DROP_BYTES < size_of(items) <= MAX_UNWRITTEN
    first = items[1]
    assert isinstance(first, Chunk)
    assert first.seq == gap.lost_bytes // 4000 + 1
    assert [type(i) for i in items].count(Gap) == 1


def test_markers_and_new_files_survive_a_drop_in_their_place() -> None:
    ring = ring_of()
    mark, cut = Note(Kind.MARK, 7, 2, 0, 0), NewFile(Cut.EOL, 3, 0, "cr", 0, 0)
    for item in (chunk(b"a" * 50_000), mark, chunk(b"b" * 50_000), cut):
        ring.put(item)
    for _ in range(MAX_UNWRITTEN // 50_000):
        ring.put(chunk(b"c" * 50_000, mono_ns=10**9))
    items = list(ring.take())

    kinds = [Gap, Note, Gap, NewFile, Chunk]
    assert [type(item) for item in items[:5]] == kinds
    assert items[1] is mark
    assert items[3] is cut


def test_what_the_writer_has_in_hand_counts_but_is_not_dropped() -> None:
    ring = ring_of()
    ring.put(chunk(b"a" * 1_000_000))
    hand = ring.take()
    for _ in range(17):
        ring.put(chunk(b"b" * 1_000_000))

    assert ring.unwritten_bytes <= MAX_UNWRITTEN
    ring.settle(written_bytes=1_000_000)
    ring.put_back([])
    assert size_of(list(hand)) == 1_000_000
    assert ring.lost_bytes + 1_000_000 + size_of(list(ring.take())) == 18_000_000


def test_all_ports_together_have_a_limit_and_the_fullest_pays() -> None:
    budget = RingBudget(limit_bytes=1_000_000)
    quiet, loud = ring_of(budget), ring_of(budget)
    quiet.put(chunk(b"q" * 100_000))
    for _ in range(100):
        loud.put(chunk(b"l" * 20_000))
        quiet.put(chunk(b"q"))

    assert budget.unwritten_bytes <= 1_000_000
    assert quiet.lost_bytes == 0
    assert loud.lost_bytes == 100 * 20_000 - loud.unwritten_bytes > 0


def test_a_ring_that_is_closed_leaves_its_share_to_the_others() -> None:
    budget = RingBudget()
    ring = ring_of(budget)
    ring.put(chunk(b"x" * 100))
    ring.close()

    assert budget.unwritten_bytes == 0
    assert not budget.rings


def test_single_bytes_that_wait_are_put_together_but_never_across_a_pause() -> None:
    ring = ring_of()
    for number in range(100_000):
        ring.put(chunk(b"x", mono_ns=number * MS))
    ring.put(chunk(b"y", mono_ns=100_030 * MS))
    items = list(ring.take())

    assert size_of(items) == 100_001
    assert len(items) < 5000
    last, pause = items[-2], items[-1]
    assert isinstance(last, Chunk)
    assert isinstance(pause, Chunk)
    assert (pause.data, pause.mono_ns) == (b"y", 100_030 * MS)
    assert last.last_mono_ns == 99_999 * MS
    assert last.mono_ns == last.last_mono_ns - (len(last.data) - 1) * MS
