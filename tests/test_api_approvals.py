"""Approvals over the API and on the command line: who may, what is seen, what is refused."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bench_api import NOT_A_DAEMON, client
from bench_approvals import SEND, Desk, desk_of
from serialwatch.api.rights import Policy
from serialwatch.cli.show_approval import approval_lines, escaped
from serialwatch.cli.times import local_now
from serialwatch.wire import Json
from test_api import error_of, groups

GROUPS = [(groups(view=True, write=False), 200, 403), (groups(view=False, write=True), 200, 200)]


async def shown(desk: Desk, folder: Path, action: str) -> Json:
    async with client(folder) as http, http.get(f"/v1/approvals/{action}") as answer:
        assert answer.status == 200
        return dict(await answer.json())


def screen(body: Json, width: int | None = 80) -> str:
    return "\n".join(line.plain for line in approval_lines(body, local_now(), width))


async def test_what_waits_is_listed_shown_and_decided(tmp_path: Path) -> None:
    async with desk_of(tmp_path) as desk, client(tmp_path) as http:
        action = (await desk.proposed())["id"]
        other = (await desk.proposed(port="dut2"))["id"]

        async def listed(query: str = "") -> list[str]:
            async with http.get(f"/v1/approvals{query}") as answer:
                return [row["id"] for row in (await answer.json())["approvals"]]

        assert set(await listed()) == {action, other}
        assert await listed("?port=dut2") == [other]
        body = {"decision": "deny", "note": " not\x1b today "}
        async with http.post(f"/v1/approvals/{action.lower()}", json=body) as answer:
            told = await answer.json()
        assert (told["state"], told["note"]) == ("denied", "not\\x1b today")
        assert await listed() == [other]
        assert await listed("?state=denied") == [action]
        assert set(await listed("?state=all&incident=17")) == {action, other}
        async with http.post(f"/v1/approvals/{action}", json={"decision": "approve"}) as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (409, "not_now")


@pytest.mark.parametrize(
    ("address", "body", "status"),
    [
        ("ZZZZ", {"decision": "approve"}, 404),
        ("{}", {"decision": "perhaps"}, 400),
        ("{}", {}, 400),
        ("{}", {"decision": "deny", "note": "x" * 501}, 400),
        ("{}", {"decision": "approve", "steps": []}, 400),
    ],
)
async def test_a_wrong_decision_changes_nothing(
    tmp_path: Path, address: str, body: dict[str, Any], status: int
) -> None:
    async with desk_of(tmp_path) as desk, client(tmp_path) as http:
        action = (await desk.proposed())["id"]
        async with http.post(f"/v1/approvals/{address.format(action)}", json=body) as answer:
            assert answer.status == status
            await error_of(answer)

        assert (await desk.stands(action))[0] == "pending"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("policy", "may_view", "may_decide"), GROUPS)
async def test_only_operators_decide(policy: Policy, may_view: int, may_decide: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with desk_of(folder, policy=policy) as desk:
            action = (await desk.proposed())["id"]
            (folder / "sw").chmod(0o666)
            os.seteuid(12345)  # SO_PEERCRED tells the effective uid at connect
            try:
                async with client(folder) as http:
                    async with http.get(f"/v1/approvals/{action}") as answer:
                        assert answer.status == may_view
                    body = {"decision": "deny"}
                    async with http.post(f"/v1/approvals/{action}", json=body) as answer:
                        assert answer.status == may_decide
            finally:
                os.seteuid(0)

            assert (await desk.stands(action))[0] == ("denied" if may_decide == 200 else "pending")


async def test_what_the_daemon_has_started_decides_nothing(tmp_path: Path) -> None:
    own = Policy(is_system=False, uid=os.geteuid(), pid=os.getppid())
    async with desk_of(tmp_path, policy=own) as desk, client(tmp_path) as http:
        action = (await desk.proposed())["id"]
        async with http.post(f"/v1/approvals/{action}", json={"decision": "approve"}) as answer:
            assert answer.status == 403

        assert (await desk.stands(action))[0] == "pending"


async def test_a_token_over_tcp_may_look_and_no_more(tmp_path: Path) -> None:
    async with desk_of(tmp_path, listen="127.0.0.1:0", token="secret") as desk:
        action = (await desk.proposed())["id"]
        assert desk.bench.server
        url = f"http://127.0.0.1:{desk.bench.server.tcp_port}/v1/approvals/{action}"
        bearer = {"Authorization": "Bearer secret"}
        async with client(tmp_path) as _, _tcp() as http:
            async with http.get(url, headers=bearer) as answer:
                assert answer.status == 200
            async with http.post(url, headers=bearer, json={"decision": "approve"}) as answer:
                assert answer.status == 403

        assert (await desk.stands(action))[0] == "pending"


def _tcp() -> Any:
    import aiohttp

    return aiohttp.ClientSession()


async def test_a_person_sees_the_exact_bytes_and_what_is_going_on(tmp_path: Path) -> None:
    async with desk_of(tmp_path) as desk:
        desk.bench.by_name["dut1"].cable.prints(b"boot done\r\n# \x1b[31m")
        while not desk.bench.recent("dut1").endswith(b"m"):
            await desk.bench.render(lambda: None)
        action = (await desk.proposed())["id"]
        text = screen(await shown(desk, tmp_path, action))

    assert f"{action}  pending, expires in " in text
    assert "asked by log-detective in run run-1" in text
    assert "Would send exactly 21 bytes to dut1 (usb-Test_dut1, boot #7, nobody attached):" in (
        text.replace("\n", " ")
    )
    assert "    cat /proc/interrupts\\r\n        63 61 74 20 2f 70 72 6f" in text
    assert "The board's last line is `# \\x1b[31m` (L2). It is done once." in text
    assert 'The agent\'s reason (its words): "to see which line storms"' in text
    assert "Evidence it gave: dut1:L3" in text
    assert f"approve: serialwatch approvals approve {action}" in text
    assert all(len(line) <= 80 for line in text.split("\n"))


@pytest.mark.parametrize("end", [b"\n", b"\r"])
async def test_the_last_line_has_its_own_number_also_when_it_is_complete(
    tmp_path: Path, end: bytes
) -> None:
    async with desk_of(tmp_path) as desk:
        desk.bench.by_name["dut1"].cable.prints(b"one" + end + b"two" + end)
        while not desk.bench.recent("dut1").endswith(b"two" + end):
            await desk.bench.render(lambda: None)
        desk.bench.change("dut1", next_seq=3)
        text = screen(await shown(desk, tmp_path, (await desk.proposed())["id"]))

    assert "The board's last line is `two` (L2)." in text


async def test_no_byte_is_hidden_however_many_there_are(tmp_path: Path) -> None:
    data = b"ls\r\x1b[2J\x07" + "ü\u202e".encode() + b"\\r" + b"x" * 900 + b"; reboot\n"
    async with desk_of(tmp_path) as desk:
        step = {"op": "console.send", "hex": data.hex()}
        action = (await desk.proposed(step))["id"]
        text = screen(await shown(desk, tmp_path, action), 60)

    told = "".join(
        line[4:] for line in text.split("\n") if line.startswith("    ") and line[4] != " "
    )
    assert told == escaped(data)
    assert escaped(data).startswith("ls\\r\\x1b[2J\\x07\\xc3\\xbc\\xe2\\x80\\xae\\\\rxxx")
    hexes = "".join(line for line in text.split("\n") if line.startswith("        "))
    assert bytes.fromhex(hexes) == data


async def test_an_event_tells_that_a_person_is_wanted(tmp_path: Path) -> None:
    async with desk_of(tmp_path) as desk, client(tmp_path) as http:
        assert desk.bench.server
        async with http.ws_connect("/v1/events") as ws:
            desk.bench.server.on_approval(await desk.proposed())
            event = json.loads(await ws.receive_str())

    assert (event["kind"], event["port"]) == ("approval.pending", "dut1")
    assert event["data"]["steps"] == [SEND]


def test_nobody_lives_at_the_pid_of_no_daemon() -> None:
    assert not Path(f"/proc/{NOT_A_DAEMON}").exists()
