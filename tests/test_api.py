"""The API: what it answers, and whom it refuses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench_api import NOT_A_DAEMON, STARTED_UTC_NS, client, incident, serving
from bench_cable import within_s
from serialwatch.api import server as server_module
from serialwatch.api.bench import IncidentView, port_from_json, port_to_json
from serialwatch.api.listen import ApiBindError, bind_socket, loopback
from serialwatch.api.rights import Policy
from serialwatch.records import Hit, IncidentChange, Report
from serialwatch.wire import incident_from_json, report_from_json

OWN_GID = os.getegid()
STRANGER = Policy(is_system=False, uid=os.geteuid() + 1, pid=NOT_A_DAEMON)
REPORT = Report(
    17, 2, "offline analyst", "It broke", "uboot.sync_abort", "critical", "confirmed", 0.9
)


async def error_of(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """Return the error of an answer, which must have its three parts."""
    body = await answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "hint"}
    error: dict[str, Any] = body["error"]
    return error


async def test_ports_are_listed_with_their_state(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        async with http.get("/v1/ports") as answer:
            ports = (await answer.json())["ports"]

        assert [port["name"] for port in ports] == ["dut1", "dut2"]
        assert ports[0]["since"] == "2026-06-22T03:58:12.000000Z"
        assert ports[0]["last_rx_at"] is None
        assert ports[0]["attached"] == []
        assert port_from_json(ports[0]) == bench.port("dut1")


def test_a_port_survives_the_way_through_json(tmp_path: Path) -> None:
    view = port_from_json(
        {
            "name": "dut1",
            "device": "/dev/x",
            "state": "busy",
            "since": None,
            "bit_rate": None,
            "may_write": False,
            "boot": 0,
            "next_seq": 0,
            "open_incidents": 2,
            "holder": "picocom (pid 4121)",
            "uart_errors": {"overrun": 3},
            "from_the_future": 1,
        }
    )

    assert view.uart_errors == {"overrun": 3}
    assert port_from_json(json.loads(json.dumps(port_to_json(view)))) == view


async def test_incidents_are_filtered_and_carry_what_the_service_knows(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        bench.kept = {
            16: IncidentView(incident(16, port="dut2", severity="warning")),
            17: IncidentView(incident(17), STARTED_UTC_NS, revisions=2, is_on_disk=False),
            18: IncidentView(incident(18, state="resolved")),
        }

        async def ids(query: str = "") -> Sequence[int]:
            async with http.get(f"/v1/incidents{query}") as answer:
                return [found["id"] for found in (await answer.json())["incidents"]]

        assert await ids() == [17, 16]
        assert await ids("?state=all") == [18, 17, 16]
        assert await ids("?state=resolved") == [18]
        assert await ids("?port=dut2") == [16]
        assert await ids("?severity=error") == [17]
        assert await ids("?since=2026-06-22T03:58:13Z") == []
        assert await ids("?limit=1") == [17]
        async with http.get("/v1/incidents/17") as answer:
            body = await answer.json()
        assert incident_from_json(body) == incident(17)
        assert body["boot_started_at"] == "2026-06-22T03:58:12.000000Z"
        assert (body["revisions"], body["on_disk"]) == (2, False)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?severity=bad", "severity must be one of note, warning, error, critical"),
        ("?state=bad", "state must be one of"),
        ("?since=yesterday", "since must be a time such as"),
        ("?limit=0", "limit must be a whole number from 1 to "),
        ("?limt=5", "unknown parameter 'limt'"),
    ],
)
async def test_a_wrong_query_is_told_what_is_right(tmp_path: Path, query: str, words: str) -> None:
    async with serving(tmp_path), client(tmp_path) as http:
        async with http.get(f"/v1/incidents{query}") as answer:
            error = await error_of(answer)

        assert answer.status == 400
        assert words in error["message"]


async def test_a_report_comes_in_its_newest_revision_unless_one_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        bench.kept = {17: IncidentView(incident(17), revisions=2), 18: IncidentView(incident(18))}
        bench.reports = {(17, 2): REPORT}

        async with http.get("/v1/reports/17") as answer:
            assert report_from_json(await answer.json()) == REPORT
        async with http.get("/v1/reports/17?revision=3") as answer:
            assert "has no report revision 3" in (await error_of(answer))["message"]
            assert answer.status == 404
        async with http.get("/v1/reports/18") as answer:
            assert (await error_of(answer))["message"] == "no report of incident 18 yet"
        for nothing in ("99", "x", "1" * 30):
            async with http.get(f"/v1/reports/{nothing}") as answer:
                assert answer.status == 404


@pytest.mark.parametrize(
    ("body", "sent"),
    [({"text": "md\r"}, b"md\r"), ({"hex": "03 0d"}, b"\x03\r"), ({"text": "ü"}, b"\xc3\xbc")],
)
async def test_send_sends_exactly_what_is_said_and_is_audited(
    tmp_path: Path, body: dict[str, str], sent: bytes
) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        async with http.post("/v1/ports/dut1/send", json=body) as answer:
            told = await answer.json()

        assert told == {"port": "dut1", "bytes": len(sent), "before_seq": 1}
        assert bench.by_name["dut1"].cable.received() == sent
        (entry,) = bench.audits
        assert (entry.who.uid, entry.who.pid) == (os.geteuid(), os.getpid())
        assert (entry.action, entry.port, entry.bytes) == ("send", "dut1", len(sent))
        assert (entry.detail, entry.result) == ({"hex": sent.hex()}, "ok")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        b'{"text": ""}',
        b'{"text": 5}',
        b'{"hex": "0"}',
        b'{"text": "a", "hex": "00"}',
        b'{"text": "a", "eol": "cr"}',
        b'{"text": "\\ud800"}',
    ],
)
async def test_what_is_nothing_to_send_is_refused_and_nothing_is_sent(
    tmp_path: Path, body: bytes
) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        async with http.post("/v1/ports/dut1/send", data=body) as answer:
            assert (await error_of(answer))["code"] == "bad_request"

        assert answer.status == 400
        assert bench.by_name["dut1"].cable.received() == b""


async def test_a_port_that_may_not_be_written_or_is_away_gets_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        bench.change("dut1", may_write=False)
        bench.change("dut2", state="absent")

        async with http.post("/v1/ports/dut1/send", json={"text": "x"}) as answer:
            assert answer.status == 403
        async with http.post("/v1/ports/dut2/send", json={"text": "x"}) as answer:
            assert answer.status == 409
        async with http.post("/v1/ports/dut3/send", json={"text": "x"}) as answer:
            error = await error_of(answer)
            assert (answer.status, error["hint"]) == (404, "there are dut1, dut2")
        (entry,) = bench.audits
        assert (entry.bytes, entry.result) == (0, "dut2 is absent")


async def test_reset_mark_resolve_and_mute_do_it_and_are_audited(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        bench.kept = {17: IncidentView(incident(17))}

        async def post(address: str, body: dict[str, Any]) -> Any:
            async with http.post(address, json=body) as answer:
                return await answer.json()

        assert (await post("/v1/ports/dut1/reset", {}))["how"] == "RTS for 100 ms"
        assert "no reset" in (await post("/v1/ports/dut2/reset", {}))["error"]["message"]
        marker = await post("/v1/ports/dut1/mark", {"text": " new \x1b[31mboard ", "kind": "flash"})
        assert (marker["text"], marker["kind"]) == ("new \\x1b[31mboard", "flash")
        assert (await post("/v1/incidents/17/mute", {"for_s": 60}))["state"] == "muted"
        assert (await post("/v1/incidents/17/unmute", {}))["state"] == "open"
        assert (await post("/v1/incidents/17/resolve", {}))["state"] == "resolved"
        assert [(e.action, e.result) for e in bench.audits] == [
            ("reset", "ok"),
            ("reset", "dut2 has no reset"),
            ("mark", "ok"),
            ("mute", "ok"),
            ("unmute", "ok"),
            ("resolve", "ok"),
        ]
        assert "error" in await post("/v1/incidents/17/mute", {"for_s": -1})
        assert "error" in await post("/v1/ports/dut1/mark", {"text": " "})
        assert "error" in await post("/v1/ports/dut1/mark", {"text": "x", "kind": "bad"})


def groups(view: bool, write: bool) -> Policy:
    """Return a system daemon's policy for which this process is in these groups."""
    return Policy(
        is_system=True,
        uid=os.geteuid() + 1,
        pid=NOT_A_DAEMON,
        view_gid=OWN_GID if view else None,
        write_gid=OWN_GID if write else None,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(
    ("policy", "may_view", "may_annotate", "may_write"),
    [
        (groups(view=False, write=False), 403, 403, 403),
        (groups(view=True, write=False), 200, 200, 403),
        (groups(view=False, write=True), 200, 200, 200),
        (STRANGER, 403, 403, 403),
    ],
)
async def test_the_peer_decides_what_is_allowed(
    policy: Policy, may_view: int, may_annotate: int, may_write: int
) -> None:
    asked: list[tuple[str, str, dict[str, str] | None, int]] = [
        ("GET", "/v1/ports", None, may_view),
        ("GET", "/v1/incidents/17", None, may_view),
        ("POST", "/v1/ports/dut1/mark", {"text": "x"}, may_annotate),
        ("POST", "/v1/incidents/17/mute", {}, may_annotate),
        ("POST", "/v1/ports/dut1/send", {"text": "x"}, may_write),
        ("POST", "/v1/ports/dut1/reset", {}, may_write),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with serving(folder, policy=policy) as bench:
            bench.kept = {17: IncidentView(incident(17))}
            (folder / "sw").chmod(0o666)
            os.seteuid(12345)  # SO_PEERCRED tells the effective uid at connect
            try:
                async with client(folder) as http:
                    for method, address, body, status in asked:
                        async with http.request(method, address, json=body) as answer:
                            assert answer.status == status, address
                            if status == 403:
                                assert (await error_of(answer))["code"] == "not_allowed"
            finally:
                os.seteuid(0)

            sent = b"x" if may_write == 200 else b""
            assert bench.by_name["dut1"].cable.received() == sent


async def test_what_the_daemon_has_started_may_only_view(tmp_path: Path) -> None:
    own = Policy(is_system=False, uid=os.geteuid(), pid=os.getppid())
    async with serving(tmp_path, policy=own) as bench, client(tmp_path) as http:
        async with http.get("/v1/ports") as answer:
            assert answer.status == 200
        async with http.post("/v1/ports/dut1/send", json={"text": "x"}) as answer:
            error = await error_of(answer)

        assert answer.status == 403
        assert error["message"] == "a process that serialwatch itself started may only view"
        assert bench.by_name["dut1"].cable.received() == b""


async def test_the_socket_is_made_for_owner_and_group_and_goes_away(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert (tmp_path / "sw").stat().st_mode & 0o777 == 0o660

    assert not (tmp_path / "sw").exists()


async def test_a_socket_that_nobody_serves_is_replaced_and_one_in_use_is_not(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "sw"))
    async with serving(tmp_path), client(tmp_path) as http:
        with pytest.raises(ApiBindError, match="another daemon answers there"):
            bind_socket(tmp_path / "sw", None)
        async with http.get("/healthz") as answer:
            assert answer.status == 200


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sw").write_text("precious")

    with pytest.raises(ApiBindError, match="is no socket"):
        bind_socket(tmp_path / "sw", None)
    with pytest.raises(ApiBindError, match="cannot listen: No such file"):
        bind_socket(tmp_path / "nowhere" / "sw", None)
    with pytest.raises(ApiBindError, match="too long"):
        bind_socket(tmp_path / ("x" * 200), None)
    assert (tmp_path / "sw").read_text() == "precious"


@pytest.mark.parametrize(
    ("listen", "place"),
    [
        ("127.0.0.1:9808", ("127.0.0.1", 9808)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:9808", ("::1", 9808)),
        ("127.8.8.8:1", ("127.8.8.8", 1)),
    ],
)
def test_loopback_addresses_are_taken(listen: str, place: tuple[str, int]) -> None:
    assert loopback(listen) == place


@pytest.mark.parametrize(
    "listen",
    ["0.0.0.0:9808", "[::]:9808", "192.168.1.5:9808", "bench.example:9808", ":9808"],
)
def test_an_address_that_others_can_reach_is_refused(listen: str) -> None:
    with pytest.raises(ApiBindError, match="open to the network"):
        loopback(listen)


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "::1:70000"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ApiBindError):
        loopback(listen)


async def test_over_tcp_metrics_and_health_are_free_and_the_rest_needs_the_token(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, listen="127.0.0.1:0", token="s3cret") as bench:
        assert bench.server is not None
        base = f"http://127.0.0.1:{bench.server.tcp_port}"
        right = {"Authorization": "Bearer s3cret"}
        async with aiohttp.ClientSession(base) as http:

            async def status(address: str, headers: dict[str, str] | None = None) -> int:
                async with http.get(address, headers=headers) as answer:
                    return answer.status

            assert await status("/metrics") == 200
            assert await status("/healthz") == 200
            assert await status("/v1/ports") == 401
            for wrong in ("Bearer s3cre", "Bearer ", "Basic s3cret", "s3cret", "Bearer s3cret\xff"):
                assert await status("/v1/ports", {"Authorization": wrong}) == 401
            assert await status("/v1/ports", right) == 200
            async with http.post(
                "/v1/ports/dut1/send", json={"text": "x"}, headers=right
            ) as answer:
                assert answer.status == 403
            async with http.ws_connect("/v1/attach/dut1", headers=right) as ws:
                hello = (await ws.receive_json())["hello"]
                await ws.send_bytes(b"x")
                refusal = (await ws.receive_json())["error"]
            assert (hello["rights"], hello["may_write"]) == ("view", False)
            assert refusal["code"] == "not_allowed"
            bench.wrong.append("the log cannot be written")
            async with http.get("/healthz") as answer:
                assert (answer.status, (await answer.json())["ok"]) == (503, False)
        assert bench.by_name["dut1"].cable.received() == b""


async def test_a_token_that_was_replaced_is_worth_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, listen="127.0.0.1:0", token="s3cret") as bench:
        assert bench.server is not None
        url = f"http://127.0.0.1:{bench.server.tcp_port}/v1/ports"
        answers = []
        async with aiohttp.ClientSession() as http:
            for token in ("s3cret", "another", ""):
                bench.server.take_token(token)
                headers = {"Authorization": "Bearer s3cret"}
                async with http.get(url, headers=headers) as answer:
                    answers.append(answer.status)

    assert answers == [200, 401, 401]


async def test_clients_that_leave_before_their_answer_are_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = (
        b"GET /v1/attach/dut1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with serving(tmp_path), client(tmp_path) as http:
        for _ in range(60):
            _, writer = await asyncio.open_unix_connection(tmp_path / "sw")
            writer.write(asked)
            writer.close()
            await writer.wait_closed()
        async with http.get("/v1/ports") as answer:
            assert answer.status == 200

    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == []


async def test_without_a_token_nobody_gets_in_over_tcp(tmp_path: Path) -> None:
    async with serving(tmp_path, listen="127.0.0.1:0") as bench:
        assert bench.server is not None
        base = f"http://127.0.0.1:{bench.server.tcp_port}"
        empty = {"Authorization": "Bearer "}
        async with aiohttp.ClientSession(base) as http, http.get("/v1/ports", headers=empty) as no:
            assert (no.status, (await error_of(no))["code"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9808", 200),
        ("localhost:9808", 200),
        ("LOCALHOST", 200),
        ("[::1]:9808", 200),
        ("evil.example", 403),
        ("evil.example:9808", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:9808", 403),
        ("", 403),
    ],
)
async def test_a_web_page_cannot_rebind_its_name_to_us(
    tmp_path: Path, host: str, status: int
) -> None:
    async with serving(tmp_path, listen="127.0.0.1:0") as bench:
        assert bench.server is not None
        base = f"http://127.0.0.1:{bench.server.tcp_port}"
        given = {"Host": host}
        async with aiohttp.ClientSession(base) as http, http.get("/metrics", headers=given) as got:
            assert got.status == status


async def test_a_taken_tcp_port_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        async with serving(tmp_path, listen=place) as bench, client(tmp_path) as http:
            async with http.get("/healthz") as answer:
                assert answer.status == 200
            assert bench.server is not None
            assert bench.server.tcp_problem.startswith(f"{place}: Address already in use")
    assert [r.levelname for r in caplog.records] == ["WARNING"]


async def test_a_fault_of_ours_is_logged_and_ends_that_request_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        bench.fault = ZeroDivisionError("planted")
        async with http.get("/v1/incidents") as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (500, "internal")
        async with http.get("/v1/ports") as answer:
            assert answer.status == 200

    assert "planted" in caplog.text
    assert "GET /v1/incidents failed" in caplog.text


async def test_an_unknown_address_and_method_have_errors_of_the_same_form(tmp_path: Path) -> None:
    async with serving(tmp_path), client(tmp_path) as http:
        async with http.get("/v2/ports") as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (404, "not_found")
        async with http.delete("/v1/ports") as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (405, "bad_method")
        async with http.get("/v1/attach/dut1") as answer:
            assert "for WebSocket" in (await error_of(answer))["message"]
        async with http.post("/v1/ports/dut1/send", data=b"x" * 300_000) as answer:
            assert answer.status == 413


async def test_a_connection_that_asks_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_LIMIT_S", 0.05)
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sw"))
        writer.write(b"GET /v1/ports HT")

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await within_s(5, reader.readexactly(1))
        writer.close()


async def test_connections_that_have_left_without_a_word_are_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        assert bench.server is not None
        kept = []
        for _ in range(4):
            for _ in range(server_module.NEW_CONNECTIONS):
                _, writer = await asyncio.open_unix_connection(str(tmp_path / "sw"))
                writer.close()
                await writer.wait_closed()
            kept.append(len(bench.server._quiet))

        # The newest, twice over, and those that were still being taken.
        assert max(kept) <= 2 * server_module.NEW_CONNECTIONS + 2


async def test_more_connections_than_there_is_room_for_are_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 3)
    async with serving(tmp_path):
        held = [await asyncio.open_unix_connection(str(tmp_path / "sw")) for _ in range(4)]

        assert await within_s(5, held[3][0].read()) == b""
        for _, writer in held:
            writer.close()
            await writer.wait_closed()


async def test_nonsense_on_the_socket_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path), client(tmp_path) as http:
        for nonsense in (b"\x00" * 100, b"GET\r\n\r\n", b"x" * 20_000 + b"\r\n\r\n", b"\xff\xfe"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sw"))
            writer.write(nonsense)
            writer.write_eof()
            await within_s(5, reader.read())
            writer.close()
        async with http.get("/v1/ports") as answer:
            assert answer.status == 200

    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_events_are_followed_from_now_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        server = bench.server
        assert server is not None
        bench.change("dut1", state="absent")
        async with http.ws_connect("/v1/events") as ws:
            hit = Hit(
                "dut1", "linux.oops", "critical", "specific", "Oops", "k", 5, 5, 1, 0, 0, b"\x1bO"
            )
            server.on_hit(hit)
            server.on_incident(IncidentChange("opened", incident(17)))
            server.on_incident(IncidentChange("settled", incident(17)))
            server.on_report("dut1", REPORT)
            events = [await within_s(5, ws.receive_json()) for _ in range(4)]

        assert [event["kind"] for event in events] == [
            "hit",
            "incident.opened",
            "incident.changed",
            "report.published",
        ]
        assert events[0]["data"]["text"] == "\\x1bO"
        assert events[2]["data"]["what"] == "settled"
        assert [event["id"] for event in events] == [f"20260622T035812Z-{n}" for n in (2, 3, 4, 5)]


async def test_a_follower_gets_what_it_has_missed_or_is_told_to_start_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        for state in ("absent", "opening", "up"):
            bench.change("dut1", state=state)
        async with http.ws_connect("/v1/events?after=20260622T035812Z-1") as ws:
            states = [(await within_s(5, ws.receive_json()))["data"]["state"] for _ in range(2)]
        async with http.ws_connect("/v1/events?after=20250101T000000Z-9") as ws:
            reset = await within_s(5, ws.receive_json())
            bench.change("dut2", state="busy")
            fresh = await within_s(5, ws.receive_json())

        assert states == ["opening", "up"]
        assert (reset["kind"], reset["id"]) == ("reset", "20260622T035812Z-3")
        assert (fresh["kind"], fresh["port"]) == ("port.state", "dut2")


async def test_stopping_sends_every_client_away_quickly(tmp_path: Path) -> None:
    async with client(tmp_path) as http, serving(tmp_path) as bench:
        events = await http.ws_connect("/v1/events")
        console = await http.ws_connect("/v1/attach/dut1")
        following = await http.get("/v1/logs/dut1?follow=1")
        assert bench.server is not None
        await within_s(3, bench.server.stop())

        assert (await within_s(5, events.receive())).type is aiohttp.WSMsgType.CLOSE
        assert "hello" in await within_s(5, console.receive_json())
        assert (await within_s(5, console.receive())).data == aiohttp.WSCloseCode.GOING_AWAY
        assert await within_s(5, following.read()) == b""
        await bench.server.start()
