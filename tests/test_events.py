"""The events of the bench and those who follow them."""

from __future__ import annotations

import asyncio
import json

from bench_cable import within_s
from serialwatch.api.events import Events

STARTED = "20260622T035812Z"


def filled(count: int, kept: int = 10) -> Events:
    """Return events 1 to `count`."""
    events = Events(STARTED, kept)
    for n in range(1, count + 1):
        events.add("marker", "dut1", 1_750_000_000_000_000_000, {"n": n})
    return events


def test_an_event_says_what_when_and_where() -> None:
    (event,) = filled(1).after(0) or ()

    assert json.loads(event.text) == {
        "v": 1,
        "id": f"{STARTED}-1",
        "at": "2025-06-15T15:06:40.000000Z",
        "kind": "marker",
        "port": "dut1",
        "data": {"n": 1},
    }


def test_a_follower_goes_on_after_the_event_it_has_seen() -> None:
    events = filled(5)

    assert events.position(f"{STARTED}-3") == 3
    assert [e.n for e in events.after(3) or ()] == [4, 5]
    assert events.after(5) == []


def test_an_event_that_is_no_longer_kept_is_no_position() -> None:
    events = filled(25, kept=10)

    assert events.position(f"{STARTED}-15") == 15  # 16, the next one, is still there
    assert events.position(f"{STARTED}-14") is None
    assert events.after(14) is None


def test_ids_of_another_run_from_the_future_or_made_up_are_no_positions() -> None:
    events = filled(5)

    for wrong in ("20250101T000000Z-3", f"{STARTED}-6", f"{STARTED}-x", f"{STARTED}-²", "", "3"):
        assert events.position(wrong) is None


def test_a_reset_carries_the_id_to_go_on_from() -> None:
    events = filled(5)
    reset = json.loads(events.reset_text(0))

    assert reset["kind"] == "reset"
    assert events.position(reset["id"]) == 5


async def test_whoever_waits_is_woken_by_the_next_event() -> None:
    events = filled(1)
    waiting = [asyncio.ensure_future(events.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    events.add("marker", "dut1", 0, {})

    await within_s(5, asyncio.gather(*waiting))


async def test_one_who_stops_waiting_does_not_disturb_the_others() -> None:
    events = filled(1)
    leaving, staying = (asyncio.ensure_future(events.wait()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    events.add("marker", "dut1", 0, {})

    await within_s(5, staying)
