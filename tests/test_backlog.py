"""What waits for one client."""

from __future__ import annotations

from serialwatch.api.backlog import Backlog


def drained(backlog: Backlog) -> list[bytes | str | int]:
    """Take everything."""
    found = []
    while (item := backlog.take()) is not None:
        found.append(item)
    return found


def test_what_fits_comes_out_in_order_and_small_chunks_are_joined() -> None:
    backlog = Backlog(100)
    backlog.put(b"ab")
    backlog.put(b"cd")
    backlog.put_text("state")
    backlog.put(b"ef")

    assert drained(backlog) == [b"abcd", "state", b"ef"]
    assert backlog.size == 0


def test_the_oldest_bytes_go_and_their_number_stands_in_their_place() -> None:
    backlog = Backlog(10)
    backlog.put(b"0123456789")

    assert backlog.put(b"abc") == 3
    assert drained(backlog) == [3, b"3456789abc"]


def test_control_messages_survive_and_stay_where_they_were() -> None:
    backlog = Backlog(10)
    backlog.put(b"01234")
    backlog.put_text("first")
    backlog.put(b"56789")
    backlog.put_text("second")
    backlog.put(b"abcdefgh")

    assert drained(backlog) == ["first", 8, b"89", "second", b"abcdefgh"]


def test_no_byte_is_lost_without_being_counted() -> None:
    backlog = Backlog(1000)
    sent = got = lost = 0
    for step in range(2000):
        backlog.put(bytes(step % 97 + 1))
        sent += step % 97 + 1
        if step % 40 == 0 and (item := backlog.take()) is not None:
            got += len(item) if isinstance(item, bytes) else 0
            lost += item if isinstance(item, int) else 0
        assert backlog.size <= 1000
    for item in drained(backlog):
        got += len(item) if isinstance(item, bytes) else 0
        lost += item if isinstance(item, int) else 0

    assert got + lost == sent
    assert lost


def test_a_client_with_a_thousand_unread_messages_is_full() -> None:
    backlog = Backlog(10)
    for _ in range(1001):
        backlog.put_text("{}")

    assert backlog.is_full
