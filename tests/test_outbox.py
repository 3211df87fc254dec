"""What is typed while attached waits for the board; nothing of it is dropped on the way."""

from __future__ import annotations

import asyncio

from bench_cable import within_s
from serialwatch.cli.outbox import MAX_UNDERWAY, MAX_WAITING, Outbox


async def taken(outbox: Outbox) -> list[bytes | str]:
    """Take all that may go now."""
    found: list[bytes | str] = []
    while outbox.waiting_bytes and not outbox.is_held_up:
        found.append(await within_s(5, outbox.take()))
    return found


def as_bytes(items: list[bytes | str]) -> bytes:
    """Return the keys among items."""
    return b"".join(item for item in items if isinstance(item, bytes))


async def test_a_paste_goes_in_parts_as_the_board_takes_it_and_is_whole() -> None:
    outbox, text = Outbox(), bytes(range(256)) * 100
    outbox.put(text)
    sent = b""
    while outbox.waiting_bytes:
        part = as_bytes(await taken(outbox))
        assert 0 < len(part) <= MAX_UNDERWAY
        sent += part
        outbox.arrived(outbox.sent_bytes)

    assert sent == text


async def test_keys_that_arrive_nowhere_hold_the_others_up_but_no_command() -> None:
    outbox = Outbox()
    outbox.put(b"x" * (MAX_UNDERWAY + 1))
    outbox.put('{"marker":1}')
    first = await taken(outbox)
    outbox.put('{"break":0.25}')

    assert len(as_bytes(first)) == MAX_UNDERWAY
    assert await within_s(5, outbox.take()) == '{"break":0.25}'
    assert outbox.waiting_bytes == 1
    outbox.arrived(1)
    assert (await within_s(5, outbox.take()), await within_s(5, outbox.take())) == (
        b"x",
        '{"marker":1}',
    )


async def test_keys_behind_a_refusal_wait_until_the_daemon_asks_for_it() -> None:
    outbox = Outbox()
    outbox.put(b"rest of a paste")

    assert outbox.drop_keys(until=2) == 15
    outbox.put(b"new")
    outbox.put('{"break":0.25}')
    assert await within_s(5, outbox.take()) == '{"break":0.25}'
    outbox.asked(1)
    assert outbox.is_held_up
    outbox.asked(2)
    assert await within_s(5, outbox.take()) == b"new"


async def test_two_commands_that_go_ahead_keep_their_order() -> None:
    outbox = Outbox()
    outbox.put(b"x" * (MAX_UNDERWAY + 1))
    await taken(outbox)
    for command in ("steal", "break"):
        outbox.put(command)

    assert [await within_s(5, outbox.take()) for _ in range(2)] == ["steal", "break"]


async def test_a_command_among_a_few_keys_stays_in_its_place() -> None:
    outbox = Outbox()
    for item in (b"a", "break", b"b"):
        outbox.put(item)

    assert [await within_s(5, outbox.take()) for _ in range(3)] == [b"a", "break", b"b"]


async def test_it_is_full_until_some_of_it_is_sent() -> None:
    outbox = Outbox()
    outbox.put(b"x" * MAX_WAITING)
    waiting = asyncio.ensure_future(outbox.has_room())
    await asyncio.sleep(0)
    assert outbox.is_full
    assert not waiting.done()
    await outbox.take()

    await within_s(5, waiting)
    assert not outbox.is_full


async def test_dropped_keys_are_counted_and_commands_stay() -> None:
    outbox = Outbox()
    for item in (b"abc", "break", b"de"):
        outbox.put(item)

    assert outbox.drop_keys() == 5
    assert await within_s(5, outbox.take()) == "break"
    await within_s(5, outbox.is_empty())


async def test_it_is_empty_when_all_keys_are_with_the_board() -> None:
    outbox = Outbox()
    outbox.put(b"abc")
    await taken(outbox)
    empty = asyncio.create_task(outbox.is_empty())
    await asyncio.sleep(0)
    assert (empty.done(), outbox.underway_bytes) == (False, 3)

    outbox.arrived(3)
    await within_s(5, empty)


async def test_it_is_stuck_when_keys_wait_and_none_arrives() -> None:
    outbox = Outbox()
    outbox.put(b"x" * (MAX_UNDERWAY + 1))
    await taken(outbox)
    await within_s(5, outbox.is_stuck(0.001))
    flows = asyncio.ensure_future(outbox.flows())
    outbox.arrived(1024)

    await within_s(5, flows)
    assert not outbox.is_held_up
