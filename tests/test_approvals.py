"""Actions on boards: nothing is sent before a person says so, and then exactly that, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bench_approvals import ANN, SEND, Agent, Desk, desk_of
from serialwatch.api.bench import BenchError, Who
from serialwatch.service.approvals import KEPT_S, MAX_OF_PORT, MAX_OF_RUN
from serialwatch.store import approvals as rows
from serialwatch.wire import Json

BYTES = b"cat /proc/interrupts\r"
RESET: Json = {"op": "port.reset"}


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_of(tmp_path) as made:
        yield made


def send(data: bytes) -> Json:
    return {"op": "console.send", "hex": data.hex()}


async def test_what_is_proposed_is_told_and_counted_and_sends_nothing(desk: Desk) -> None:
    told = await desk.proposed()
    await desk.approvals.turn()

    assert told["state"] == "pending"
    assert told["effect"] == ["send exactly 21 bytes to dut1"]
    assert desk.told == [told]
    assert desk.counted["pending"] == 1
    assert desk.received() == b""
    assert (await desk.acts(told["id"]))["refused"] == "there is no approval for it"
    assert desk.received() == b""


async def test_what_is_approved_is_sent_exactly_and_once(desk: Desk) -> None:
    action = await desk.approved()
    assert desk.agent.sent[0]["kind"] == "execute"
    assert desk.received() == b""  # the skill does it

    told = await desk.acts(action)
    assert told == {"port": "dut1", "bytes": 21, "before_seq": 1, "before_text": ""}
    assert (await desk.acts(action))["refused"] == "all that was approved is done"
    told = await desk.approvals.executed({"grant": action, "said": "the prompt came back"})
    assert (await desk.acts(action))["refused"] == "there is no approval for it"

    assert desk.received() == BYTES
    assert (told["state"], told["result"]) == (
        "done", "sent exactly 21 bytes; the prompt came back",
    )  # fmt: skip
    with pytest.raises(BenchError, match="is done already by ann"):
        await desk.approvals.decide(action, "approve", "", ANN)
    await desk.approvals.turn()
    assert desk.received() == b""


async def test_who_approved_is_in_the_audit_and_in_the_log_of_the_port(desk: Desk) -> None:
    action = await desk.approved()
    await desk.acts(action)

    assert [(e.action, e.who, e.bytes, e.result) for e in desk.bench.audits] == [
        ("approve", ANN, 0, "ok"), ("send", ANN, 21, "ok"),
    ]  # fmt: skip
    assert desk.bench.audits[1].detail["approval"] == action
    assert desk.bench.audits[1].detail["hex"] == BYTES.hex()
    (marker,) = desk.bench.markers
    assert (marker.kind, marker.text) == (
        "note", f"console-send {action}, approved by ann: sends 21 bytes",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"step": send(b"rm -rf /\r")}, "step 1 is not the approved one"),
        ({"step": RESET}, "step 1 is not the approved one"),
        ({"step": {"op": "power.off"}}, "no step at all"),
        ({"step": None}, "no step at all"),
        ({"sha": "another"}, "another sha than the approved one"),
        ({"skill": "port-reset"}, "another skill than the approved one"),
        ({"run_id": "run-2"}, "another run than the approved one"),
        ({"port": "dut2"}, "another port than the approved one"),
        ({"grant": "ZZZZ"}, "there is no approval for it"),
    ],
)
async def test_what_was_not_approved_is_not_done_and_ends_it(
    desk: Desk, wanted: dict[str, Any], why: str
) -> None:
    action = await desk.approved()
    body = {"grant": action, "run_id": "run-1", "skill": "console-send", "sha": "ab", "port": "dut1",
            "step": SEND}  # fmt: skip

    assert (await desk.approvals.act(body | wanted))["refused"] == why
    if "grant" not in wanted:
        assert (await desk.acts(action))["refused"] == why  # nor anything else any more
        told = await desk.approvals.executed({"grant": action})
        assert (told["state"], told["result"]) == ("failed", f"nothing was sent: {why}")
    assert desk.received() + desk.received("dut2") == b""


async def test_what_is_denied_or_too_late_is_never_sent_and_the_run_is_told(desk: Desk) -> None:
    denied = (await desk.proposed())["id"]
    await desk.approvals.decide(denied, "deny", "not on a Friday", ANN)
    late = (await desk.proposed(send(b"x")))["id"]
    desk.now += KEPT_S * 10**9
    with pytest.raises(BenchError, match=f"{late} is expired already"):
        await desk.approvals.decide(late, "approve", "", ANN)
    await desk.approvals.turn()

    assert await desk.stands(denied) == ("denied", "")
    assert await desk.stands(late) == ("expired", "nothing was sent")
    told = [(m["approval"]["id"], m["approval"]["state"]) for m in desk.agent.sent]
    assert told == [(denied, "denied"), (late, "expired")]
    assert desk.agent.sent[0]["approval"]["note"] == "not on a Friday"
    for action in (denied, late):
        assert "refused" in await desk.acts(action)
    assert desk.received() == b""
    assert (desk.counted["denied"], desk.counted["expired"]) == (1, 1)


async def test_another_device_another_boot_or_configuration_is_refused(desk: Desk) -> None:
    action = (await desk.proposed())["id"]
    desk.devices["dut1"] = "usb 0403:6001 B7"
    with pytest.raises(BenchError, match="another device is on dut1"):
        await desk.approvals.decide(action, "approve", "", ANN)
    desk.devices["dut1"] = "usb 0403:6001 A5"
    desk.bench.change("dut1", boot=8)
    with pytest.raises(BenchError, match=r"has restarted since it was proposed \(boot #7, now #8"):
        await desk.approvals.decide(action, "approve", "", ANN)
    desk.bench.change("dut1", boot=7, may_write=False)
    with pytest.raises(BenchError, match="write = false"):
        await desk.approvals.decide(action, "approve", "", ANN)
    desk.bench.change("dut1", may_write=True, state="absent")
    with pytest.raises(BenchError, match="port dut1 is absent"):
        await desk.approvals.decide(action, "approve", "", ANN)

    assert (await desk.stands(action))[0] == "pending"
    desk.bench.change("dut1", state="up")
    reset = (await desk.proposed(RESET))["id"]
    desk.resets["dut1"] = "runs power cycle 3"
    with pytest.raises(BenchError, match="the configuration of dut1 has changed"):
        await desk.approvals.decide(reset, "approve", "", ANN)
    assert desk.received() == b""
    assert desk.bench.resets == []


async def test_what_changes_between_yes_and_doing_is_refused_too(desk: Desk) -> None:
    early, late = (await desk.proposed())["id"], (await desk.proposed(send(b"x")))["id"]
    await desk.approvals.decide(early, "approve", "", ANN)
    desk.bench.change("dut1", boot=8)
    await desk.approvals.turn()
    assert await desk.stands(early) == (
        "failed",
        "nothing was sent: dut1 has restarted since it was proposed (boot #7, now #8)",
    )
    desk.bench.change("dut1", boot=7)
    await desk.approvals.decide(late, "approve", "", ANN)
    await desk.approvals.turn()
    desk.devices["dut1"] = "usb 0403:6001 B7"

    assert "another device" in (await desk.acts(late, send(b"x")))["refused"]
    assert desk.received() == b""


async def test_a_skill_may_say_that_another_boot_does_not_matter(desk: Desk) -> None:
    action = (await desk.proposed(any_boot=True))["id"]
    desk.bench.change("dut1", boot=8)
    await desk.approvals.decide(action, "approve", "", ANN)
    await desk.approvals.turn()

    assert (await desk.acts(action))["bytes"] == 21


async def test_whoever_types_goes_first_even_who_approves(desk: Desk) -> None:
    action = (await desk.proposed())["id"]
    assert desk.bench.server
    consoles = desk.bench.server.consoles
    with (
        consoles.held("dut1", ANN),
        pytest.raises(BenchError, match=r"ann \(pid 4242\) is typing on dut1"),
    ):
        await desk.approvals.decide(action, "approve", "", ANN)
    await desk.approvals.decide(action, "approve", "", ANN)
    await desk.approvals.turn()
    with consoles.held("dut1", Who(7, "bob", 9)):
        assert (await desk.acts(action))["refused"] == "bob (pid 9) is typing on dut1"

    assert consoles.writer("dut1") is None
    assert desk.received() == b""


async def test_a_text_never_goes_on_with_what_somebody_has_left_on_the_line(desk: Desk) -> None:
    action = (await desk.proposed())["id"]
    desk.bench.change("dut1", unended="rm -rf /data ")
    with pytest.raises(BenchError, match="`rm -rf /data ` was sent to dut1 without Enter"):
        await desk.approvals.decide(action, "approve", "", ANN)
    drops = await desk.approved({"op": "console.send", "hex": "1564660d"})
    assert "did" not in await desk.acts(drops, {"op": "console.send", "hex": "1564660d"})
    desk.bench.change("dut1", unended=" ")  # stopped a boot loader

    assert desk.received() == b"\x15df\r"
    assert (await desk.approvals.decide(action, "approve", "", ANN))["state"] == "approved"


async def test_nobody_sends_between_the_bytes_of_an_action_not_even_who_approved_it(
    desk: Desk,
) -> None:
    assert desk.bench.server
    consoles = desk.bench.server.consoles
    with consoles.held("dut1", ANN):
        refusal = consoles.refusal_to_send("dut1", ANN)
        assert refusal is not None
        assert refusal.message == "an approved action is done on dut1"

    assert consoles.refusal_to_send("dut1", ANN) is None


async def test_several_steps_are_done_in_order_each_once(desk: Desk) -> None:
    lines: Json = {"op": "port.set_lines", "dtr": True, "rts": None}
    steps = (send(b"a"), RESET, lines, {"op": "port.send_break", "ms": 250}, send(b"a"))
    action = await desk.approved(*steps)
    assert "refused" not in await desk.acts(action, steps[0])
    desk.bench.change("dut1", boot=8)  # its own doing
    for step in steps[1:]:
        assert "refused" not in await desk.acts(action, step)

    told = await desk.approvals.executed({"grant": action, "said": ""})
    assert told["state"] == "done"
    assert told["effect"] == [
        "send exactly 1 byte to dut1", "reset dut1: RTS on for 100 ms, RTS off",
        "set DTR on of dut1", "send a break of 250 ms to dut1", "send exactly 1 byte to dut1",
    ]  # fmt: skip
    assert desk.received() == b"aa"
    assert (desk.bench.resets, desk.bench.lines) == (["dut1"], [("dut1", True, None)])
    assert desk.bench.breaks == [("dut1", 0.25)]
    assert [m.kind for m in desk.bench.markers] == ["note", "reset", "reset", "note"]


async def test_an_action_that_stops_half_way_says_how_far_it_came(desk: Desk) -> None:
    action = await desk.approved(send(b"a"), send(b"b"))
    await desk.acts(action, send(b"a"))
    told = await desk.approvals.executed({"grant": action, "said": "it gave up"})

    assert told["state"] == "failed"
    assert told["result"] == "sent exactly 1 byte; 1 of 2 steps were done: it gave up"
    assert desk.received() == b"a"


async def test_the_same_proposal_is_the_same_action(desk: Desk) -> None:
    first = await desk.proposed()
    again = await desk.proposed(run_id="run-2", incident=18, why="another reason")
    other = await desk.proposed(send(b"y"))

    assert again["id"] == first["id"]
    assert other["id"] != first["id"]
    assert len(desk.told) == 2


async def test_no_run_and_no_port_has_people_wade_through_many(desk: Desk) -> None:
    for n in range(MAX_OF_RUN):
        assert "id" in await desk.proposed(send(b"%d" % n))
    words = f"{MAX_OF_RUN} actions of this run wait for a person already"
    assert (await desk.proposed(send(b"x")))["refused"] == words
    for n in range(MAX_OF_PORT - MAX_OF_RUN):
        assert "id" in await desk.proposed(send(b"r%d" % n), run_id="run-2")
    words = f"{MAX_OF_PORT} actions for dut1 wait for a person already"
    assert (await desk.proposed(send(b"x"), run_id="run-3"))["refused"] == words
    assert "id" in await desk.proposed(send(b"x"), run_id="run-3", port="dut2")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"may_write": False}, "port dut1: its configuration says write = false"),
        ({"state": "absent"}, "port dut1 is absent"),
        ({"bit_rate": None}, "port dut1 has no DTR, RTS or break"),
    ],
)
async def test_what_cannot_be_done_is_not_proposed(
    desk: Desk, change: dict[str, Any], why: str
) -> None:
    desk.bench.change("dut1", **change)
    told = await desk.proposed({"op": "port.send_break", "ms": 1})

    assert told == {"refused": why}
    assert desk.told == []


async def test_what_makes_no_sense_is_not_proposed(desk: Desk) -> None:
    desk.resets.clear()
    assert "does not say how to reset" in (await desk.proposed(RESET))["refused"]
    assert "9 steps" in (await desk.proposed(*[send(b"%d" % n) for n in range(9)]))["refused"]
    assert (await desk.proposed(port="dut9"))["refused"] == "there is no port dut9"
    assert "no step" in (await desk.proposed(steps=[{"op": "power.off"}]))["refused"]
    assert "2000 bytes" in (await desk.proposed(steps=[send(b"x" * 2000)]))["refused"]
    desk.is_on = False
    assert "switched off" in (await desk.proposed())["refused"]
    assert desk.told == []


async def test_words_of_a_model_cannot_steer_a_terminal_and_lines_are_lines(desk: Desk) -> None:
    told = await desk.proposed(why="\x1b[2Jso\x07", evidence=["dut1:L3", "\x1b[31m", "L4"])

    assert told["why"] == "\\x1b[2Jso\\x07"
    assert told["evidence"] == ["dut1:L3"]


async def test_after_a_crash_nothing_is_done_again(desk: Desk) -> None:
    begun = await desk.approved()
    await desk.acts(begun)
    waits = (await desk.proposed(send(b"x")))["id"]
    approved = (await desk.proposed(send(b"y")))["id"]
    await desk.approvals.decide(approved, "approve", "", ANN)
    assert desk.received() == BYTES

    again = desk.started()  # the daemon was killed; this is the next one
    await again.turn()
    state, words = await desk.stands(begun)
    assert (state, "is not known" in words) == ("unknown", True)
    assert (await desk.stands(approved))[0] == "failed"
    assert (await desk.stands(waits))[0] == "pending"
    for action in (begun, approved):
        assert "refused" in await desk.acts(action)
        with pytest.raises(BenchError):
            await again.decide(action, "approve", "", ANN)
    await again.turn()
    assert desk.received() == b""


async def test_a_row_that_somebody_else_has_changed_begins_nothing(desk: Desk) -> None:
    action, other = (await desk.proposed())["id"], (await desk.proposed(send(b"x")))["id"]
    await desk.approvals.decide(other, "approve", "", ANN)
    for sql in (
        "UPDATE approvals SET state = 'approved', decided_by = 'ann'",
        'UPDATE approvals SET steps_json = \'[{"op": "console.send", "hex": "79"}]\'',
    ):
        await desk.db.run(lambda db, sql=sql: db.execute(sql))  # type: ignore[misc]
    await desk.approvals.turn()

    assert [m["kind"] for m in desk.agent.sent] == ["decided", "decided"]
    for each in (action, other):
        assert await desk.stands(each) == (
            "failed", "nothing was sent: nobody has approved it here",
        )  # fmt: skip
        assert "refused" in await desk.acts(each)
    assert desk.received() == b""


async def test_an_agent_that_dies_in_between_ends_it(desk: Desk) -> None:
    action = await desk.approved()
    desk.agent.pid = 78
    await desk.approvals.turn()

    assert await desk.stands(action) == ("failed", "nothing was sent: the agent did not end it")
    assert "refused" in await desk.acts(action)
    assert desk.received() == b""


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_was_approved_can_be_taken_back_while_nothing_is_done(
    desk: Desk, is_there: bool
) -> None:
    if not is_there:
        desk.agent.pid = None
    action = await desk.approved()
    told = await desk.approvals.decide(action, "deny", "oh no", ANN)
    desk.agent.pid = 77
    await desk.approvals.turn()

    assert (told["state"], told["result"]) == (
        "failed", "nothing was sent: ann has taken it back",
    )  # fmt: skip
    assert "refused" in await desk.acts(action)
    assert desk.received() == b""
    assert [m["kind"] for m in desk.agent.sent] == ["execute", "decided"] * is_there


async def test_what_is_taken_back_while_it_is_begun_is_not_done(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = rows.begin

    def at_once(db: Any, id: str, now_utc_ns: int) -> bool:
        assert desk.approvals._approved.pop(id)  # what a person does just then
        return begin(db, id, now_utc_ns)

    monkeypatch.setattr(rows, "begin", at_once)
    await desk.approved()

    assert [m["kind"] for m in desk.agent.sent] == []


async def test_what_is_done_cannot_be_taken_back(desk: Desk) -> None:
    action = await desk.approved()
    await desk.acts(action)

    with pytest.raises(BenchError, match="is executing already by ann"):
        await desk.approvals.decide(action, "deny", "", ANN)
    assert desk.received() == BYTES


async def test_without_an_agent_what_is_approved_waits_for_the_next(desk: Desk) -> None:
    desk.agent.pid = None
    action = await desk.approved()
    assert (await desk.stands(action))[0] == "approved"
    desk.agent.pid = 78
    await desk.approvals.turn()

    assert (await desk.acts(action))["bytes"] == 21


async def test_two_people_at_once_approve_it_once(desk: Desk) -> None:
    action = (await desk.proposed())["id"]
    both = await asyncio.gather(
        *(desk.approvals.decide(action, "approve", "", who) for who in (ANN, Who(7, "bob", 9))),
        return_exceptions=True,
    )
    await asyncio.gather(*(desk.approvals.turn() for _ in range(3)))

    assert sum(isinstance(told, BenchError) for told in both) == 1
    assert [m["kind"] for m in desk.agent.sent] == ["execute"]
    results = await asyncio.gather(*(desk.acts(action) for _ in range(5)))
    assert sum("refused" not in told for told in results) == 1
    assert desk.received() == BYTES


def test_the_agent_of_these_tests_is_one() -> None:
    assert Agent(None).send({}) is False
