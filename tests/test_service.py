"""The daemon as a whole, in a process of its own, on real ptys."""

import fcntl
import hashlib
import os
import random
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import termios
import threading
from contextlib import closing
from pathlib import Path

import pytest

from bench_cable import Cable
from running_daemon import LIMIT_S, RunningDaemon, running

OOPS = (
    b"[   12.000001] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010\r\n"
    b"[   12.000101] Internal error: Oops: 0000000096000004 [#1] SMP\r\n"
    b"[   12.000201] pc : foo_irq+0x14/0x80\r\n"
    b"[   12.000301] ---[ end trace 0000000000000000 ]---\r\n"
)


def write_all(cable: Cable, data: bytes) -> None:
    os.set_blocking(cable.board, True)
    view = memoryview(data)
    while view:
        view = view[os.write(cable.board, view[:4096]) :]
    os.set_blocking(cable.board, False)


def has_report(daemon: RunningDaemon, incident: int) -> bool:
    return bool(daemon.rows("SELECT 1 FROM reports WHERE incident_id = ?", incident))


def test_a_fault_becomes_an_incident_and_a_report_that_cites_it(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"[    0.000000] Linux version 6.6.1\r\n" + OOPS)
        (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        daemon.wait_for(lambda: has_report(daemon, incident["id"]), "report")
        report = daemon.get(f"/v1/reports/{incident['id']}")

    assert incident["trigger"] == "linux.oops"
    assert incident["first_seq"] == 2
    cited = {(e["port"], e["seq"]) for c in report["conclusions"] for e in c["evidence"]}
    assert ("dut1", 2) in cited
    for conclusion in report["conclusions"]:
        for evidence in conclusion["evidence"]:
            line = daemon.saved("dut1").split(b"\n")[evidence["seq"] - 1].decode()
            assert " ".join(evidence["quote"].split()) in " ".join(line.split())


def test_nothing_is_ever_sent_by_itself(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"U-Boot 2023.01\r\nHit any key to stop autoboot:  2 \r\nlogin: " + OOPS)
        daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda: "configuration read again" in daemon.log(), "reload")
        daemon.stop()
        daemon.start()

    assert cable.received() == b""


def test_every_byte_that_was_sent_is_in_the_log(cable: Cable, tmp_path: Path) -> None:
    data = (
        random.Random(1).randbytes(1 << 20) + bytes(range(256)) * 16 + b"\xe2\x9c\n" + b"\0" * 1000
    )
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, data)
        daemon.wait_for(lambda: len(daemon.saved("dut1")) >= len(data), "bytes")

        assert hashlib.sha256(daemon.saved("dut1")).digest() == hashlib.sha256(data).digest()
        assert daemon.get("/v1/ports")["ports"][0]["state"] == "up"


def test_a_mebibyte_without_a_line_end_is_kept_and_cut(cable: Cable, tmp_path: Path) -> None:
    data = b"x" * (1 << 20)
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, data + b"\r\n" + OOPS)
        (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")

    assert daemon.saved("dut1") == data + b"\r\n" + OOPS
    assert incident["first_seq"] == 65  # 64 pieces of 16 KiB go before it


def test_a_device_that_vanishes_in_a_line_comes_back_under_its_name(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"first\r\nhalf a li")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"half a li"), "bytes")
        cable.unplug()
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "absent", "loss")
        cable.plug()
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "return")
        write_all(cable, b"second\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"second\r\n"), "bytes")
        lines = daemon.lines("dut1")

    assert [(line["seq"], line["text"]) for line in lines] == [
        (1, "first"),
        (2, "half a li"),
        (3, "second"),
    ]


def test_a_second_start_on_the_same_state_is_refused_with_the_pid(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        second = subprocess.run(
            [sys.executable, "-m", "serialwatch", "run", "-c", daemon.config],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip

        assert second.returncode == 1
        assert f"pid {daemon.process.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        assert daemon.get("/v1/ports")["ports"][0]["state"] == "up"


def test_a_second_start_on_the_same_socket_is_refused_before_it_touches_a_port(
    cable: Cable, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    second_cable = Cable(other)
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        config = other / "c.toml"
        config.write_text(
            f'[daemon]\nstate_dir = "{other}/state"\nrun_dir = "{tmp_path}/run"\n'
            f'[api]\nlisten = ""\n[port.a]\ndevice = "{second_cable.path}"\n'
        )
        second_cable.prints(b"still unread")
        second = subprocess.run(
            [sys.executable, "-m", "serialwatch", "run", "-c", config],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip

        assert second.returncode == 1
        assert f"serialwatch.sock: in use: serialwatch with pid {daemon.process.pid}" in (
            second.stderr
        )
        assert "Traceback" not in second.stderr
        assert not (other / "state/log").exists() or not list((other / "state/log").rglob("*.log"))
        assert daemon.get("/v1/ports")["ports"][0]["state"] == "up"
    second_cable.close()


def test_a_state_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    # Root may write anywhere, but not below a file or on /proc.
    (tmp_path / "c.toml").write_text(
        '[daemon]\nstate_dir = "/proc/serialwatch"\n[port.a]\ndevice = "pty:"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "serialwatch", "run", "-c", tmp_path / "c.toml"],
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith("serialwatch: /proc/serialwatch: ")
    assert "Traceback" not in done.stderr


def test_after_kill_9_nothing_is_lost_and_no_number_is_used_twice(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        sent = b"".join(b"line %06d\r\n" % n for n in range(5000))
        write_all(cable, sent)
        daemon.wait_for(lambda: len(daemon.saved("dut1")) >= len(sent), "bytes")
        before = daemon.lines("dut1")[-1]["seq"]
        daemon.kill()
        write_all(cable, b"while it was dead\r\n")
        daemon.start()
        daemon.wait_for(lambda: b"while it was dead" in daemon.saved("dut1"), "bytes")
        after = daemon.lines("dut1")[-1]

        assert daemon.saved("dut1") == sent + b"while it was dead\r\n"
        assert after["text"] == "while it was dead"
        assert after["seq"] > before
        assert daemon.rows("PRAGMA integrity_check") == [("ok",)]


def test_an_oops_printed_just_before_kill_9_becomes_an_incident_after_it(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"[    0.000000] Linux version 6.6.1\r\n")
        daemon.wait_for(lambda: b"Linux version" in daemon.saved("dut1"), "bytes")
        os.kill(daemon.process.pid, signal.SIGSTOP)  # it reads nothing more: the crash is sudden
        daemon.kill()
        logs = list((daemon.state / "log/dut1").glob("*.log"))
        with logs[0].open("ab") as log:  # as the writer thread left it: written, never searched
            log.write(OOPS)
        daemon.start()
        (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        daemon.wait_for(lambda: has_report(daemon, incident["id"]), "report")

    assert incident["trigger"] == "linux.oops"


def test_an_agent_that_dies_again_and_again_leaves_capture_untouched(
    cable: Cable, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(
        "import sys\nif 'serialwatch.agent' in ' '.join(sys.orig_argv): raise SystemExit('planted')\n"
    )
    with running(tmp_path, {"dut1": str(cable.path)}, env={"PYTHONPATH": str(planted)}) as daemon:
        write_all(cable, OOPS)
        daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        own = daemon.wait_for(lambda: daemon.incidents("serialwatch"), "incident of the daemon")
        data = random.Random(2).randbytes(200_000)
        write_all(cable, data)
        daemon.wait_for(lambda: daemon.saved("dut1") == OOPS + data, "bytes")

    assert "agent failed" in own[0]["title"]


def test_a_notifier_that_cannot_run_leaves_capture_untouched(cable: Cable, tmp_path: Path) -> None:
    extra = '[[notify]]\ncommand = ["/does/not/exist"]\nseverity = "warning"\n'
    with running(tmp_path, {"dut1": str(cable.path)}, extra) as daemon:
        write_all(cable, OOPS)
        own = daemon.wait_for(lambda: daemon.incidents("serialwatch"), "incident of the daemon")
        write_all(cable, b"still here\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"still here\r\n"), "bytes")

    assert "notify /does/not/exist failed" in own[0]["title"]


def test_a_notifier_gets_the_report(cable: Cable, tmp_path: Path) -> None:
    extra = f'[[notify]]\ncommand = ["sh", "-c", "cat >> {tmp_path}/told"]\n'
    with running(tmp_path, {"dut1": str(cable.path)}, extra) as daemon:
        write_all(cable, OOPS)
        told = daemon.wait_for(lambda: (tmp_path / "told").read_text(), "notification")

    assert '"class": "linux.oops"' in told


def test_sighup_takes_over_what_changed_and_leaves_other_ports_open(tmp_path: Path) -> None:
    one, two, three = (Cable(tmp_path, name) for name in ("one", "two", "three"))
    try:
        with running(tmp_path, {"one": str(one.path), "two": str(two.path)}) as daemon:
            daemon.wait_for(
                lambda: [p["state"] for p in daemon.get("/v1/ports")["ports"]] == ["up", "up"],
                "ports",
            )
            since = daemon.get("/v1/ports")["ports"][0]["since"]
            daemon.configure({"one": str(one.path), "three": str(three.path)})
            daemon.signal(signal.SIGHUP)
            daemon.wait_for(
                lambda: {p["name"]: p["state"] for p in daemon.get("/v1/ports")["ports"]} == {"one": "up", "three": "up"},
                "the new port",
            )  # fmt: skip

            assert daemon.get("/v1/ports")["ports"][0]["since"] == since
    finally:
        for cable in (one, two, three):
            cable.close()


def test_sighup_with_a_bad_file_changes_nothing_says_so_and_holds_up_nobody_while_it_is_read(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        good = daemon.config.read_text()
        daemon.config.write_text(daemon.config.read_text() + "nonsense = 1\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda: "not reloaded: " in daemon.log(), "complaint")
        write_all(cable, b"still here\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"still here\r\n"), "bytes")

        assert "serialwatch.toml:" in daemon.log()
        assert "nonsense: unknown key" in daemon.log()

        daemon.config.unlink()
        os.mkfifo(daemon.config)
        daemon.signal(signal.SIGHUP)
        with daemon.config.open("w") as file:  # it is being read
            assert [line["text"] for line in daemon.lines("dut1")] == ["still here"]
            file.write(good)
        daemon.wait_for(lambda: "configuration read again" in daemon.log(), "reload")


def counted(daemon: RunningDaemon) -> float:
    text = daemon.get("/metrics", is_json=False).decode()
    return float(re.search(r'serialwatch_memories{kind="task_result"} (.*)', text).group(1))


def test_memories_of_one_run_are_found_by_the_next(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, OOPS)
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM memories"), "memory")
        daemon.wait_for(lambda: counted(daemon) == 1, "count")
        daemon.stop()
        daemon.start()
        daemon.wait_for(lambda: counted(daemon) == 1, "count")
        write_all(cable, b"[   99.000000] other\r\n" + OOPS.replace(b"12.0", b"99.0"))
        daemon.wait_for(
            lambda: (
                len(daemon.rows("SELECT id FROM incidents WHERE port = 'dut1'")) > 1
                or daemon.rows("SELECT 1 FROM incidents WHERE count > 1")
            ),
            "second incident",
        )
        seen = daemon.rows("SELECT args_json FROM skill_calls WHERE skill = 'memory-search'")

    assert seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order(cable: Cable, tmp_path: Path, number: int) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"one\r\ntwo")
        daemon.wait_for(lambda: b"two" in daemon.saved("dut1"), "bytes")
        daemon.signal(number)
        assert daemon.process.wait(20) == 0

    assert daemon.rows("SELECT next_seq, is_clean FROM ports") == [(3, 1)]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.stop()
        path = daemon.state / "serialwatch.db"
        with sqlite3.connect(path) as db:
            db.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('serialwatch', 'm999_future', '')"
            )
        db.close()
        before = path.read_bytes()
        done = subprocess.run(
            [sys.executable, "-m", "serialwatch", "run", "-c", daemon.config],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip

    assert done.returncode == 1
    assert "serialwatch.db" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == before


def test_systemd_is_told_of_ready_life_reload_and_end(cable: Cable, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
        with running(tmp_path, {"dut1": str(cable.path)}, env=env) as daemon:
            begun = [manager.recv(100)]
            while begun[-1] != b"READY=1":  # on a slow machine life comes first
                begun.append(manager.recv(100))
            assert set(begun) <= {b"READY=1", b"WATCHDOG=1", b"EXTEND_TIMEOUT_USEC=20000000"}
            daemon.signal(signal.SIGHUP)
            told = [manager.recv(100)]
            while not told[-1].startswith(b"READY"):
                told.append(manager.recv(100))
            assert any(state.startswith(b"RELOADING=1") for state in told)
            daemon.stop()
            while told[-1] != b"STOPPING=1":
                told.append(manager.recv(100))


def test_what_is_sent_arrives_exactly_and_is_written_down(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        status, _ = daemon.post("/v1/ports/dut1/send", {"text": "help\r"})
        assert status == 200
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM audit"), "audit")
        (row,) = daemon.rows("SELECT uid, action, port, bytes, result FROM audit")

    assert cable.received() == b"help\r"
    assert row == (os.getuid(), "send", "dut1", 5, "ok")


def test_a_send_that_waits_for_each_echo_arrives_exactly_and_is_written_down(
    cable: Cable, tmp_path: Path
) -> None:
    got = bytearray()

    def echo() -> None:
        while b"\r" not in got and select.select([cable.board], [], [], LIMIT_S)[0]:
            data = cable.received()
            got.extend(data)
            cable.prints(data.replace(b"\r", b"\r\n"))

    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        board = threading.Thread(target=echo)
        board.start()
        status, body = daemon.post("/v1/ports/dut1/send", {"text": "help\r", "wait_echo": True})
        board.join()
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM audit"), "audit")
        (row,) = daemon.rows("SELECT uid, action, port, bytes, result FROM audit")
        port = daemon.get("/v1/ports")["ports"][0]

        assert (status, body["echoed"], bytes(got)) == (200, 5, b"help\r")
        assert row == (os.getuid(), "send", "dut1", 5, "ok")
        assert port["tx_bytes"] == {"send": 5}
        daemon.wait_for(lambda: daemon.lines("dut1"), "line")
        assert [line["text"] for line in daemon.lines("dut1")] == ["help"]


def test_a_device_without_modem_lines_is_not_reset_by_them(tmp_path: Path) -> None:
    extra = "reset = [{rts = true, ms = 1}, {rts = false}]\n"
    with running(tmp_path, {"dut1": "command:cat"}, extra) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        status, body = daemon.post("/v1/ports/dut1/reset")

        assert (status, body["error"]["code"]) == (403, "not_allowed")
        assert body["error"]["message"] == "port dut1: command:cat has no DTR, RTS or break"
        assert daemon.rows("SELECT 1 FROM markers") == []


RESET = """#!{python} -IS
import os, socket, time
open("{folder}/was-reset", "w").close()
program = os.getpid()
if not os.fork():  # goes on when that has ended, and would like to type
    while os.getppid() == program:
        time.sleep(0.01)
    daemon = socket.socket(socket.AF_UNIX)
    daemon.connect("{folder}/run/serialwatch.sock")
    body = b'{{"text": "rm -rf /"}}'
    daemon.sendall(b"POST /v1/ports/dut1/send HTTP/1.1\\r\\nHost: localhost\\r\\n"
                   b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    with open("{folder}/new", "wb") as told:
        told.write(daemon.recv(100))
    os.rename("{folder}/new", "{folder}/told")
"""


def test_a_reset_runs_what_the_configuration_says_and_is_marked(
    cable: Cable, tmp_path: Path
) -> None:
    program = tmp_path / "reset"
    program.write_text(RESET.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    extra = f'reset = {{command = ["{program}"]}}\n'
    with running(tmp_path, {"dut1": str(cable.path)}, extra) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        status, body = daemon.post("/v1/ports/dut1/reset")
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM markers"), "marker")

        assert (status, body["how"]) == (200, f"ran {program}")
        assert (tmp_path / "was-reset").exists()
        answer = daemon.wait_for(lambda: (tmp_path / "told").read_bytes(), "an answer")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert daemon.rows("SELECT port, kind FROM markers") == [("dut1", "reset")]
    assert cable.received() == b""


def test_a_port_that_may_not_be_written_is_not(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}, "write = false\n") as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        status, body = daemon.post("/v1/ports/dut1/send", {"text": "help\r"})

    assert (status, body["error"]["code"]) == (403, "not_allowed")
    assert cable.received() == b""


def test_a_boot_after_our_own_reset_is_no_fault(cable: Cable, tmp_path: Path) -> None:
    extra = 'reset = {command = ["true"]}\n'
    banner = b"U-Boot SPL 2023.10 (Mar 04 2026 - 09:12:44 +0000)\r\n"
    with running(tmp_path, {"dut1": str(cable.path)}, extra) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        for _ in range(4):
            assert daemon.post("/v1/ports/dut1/reset")[0] == 200
            write_all(cable, banner + b"Trying to boot from MMC1\r\n" + b"x\r\n" * 20)
        daemon.wait_for(lambda: len(daemon.rows("SELECT 1 FROM boots")) == 4, "boots")
        boots = daemon.rows("SELECT cause, is_expected FROM boots")

        assert boots == [("commanded", 1)] * 4
        assert daemon.incidents("dut1") == []


def unread_bytes(cable: Cable) -> int:
    """Return what the board has printed and nobody has read."""
    return int.from_bytes(fcntl.ioctl(cable._slave, termios.FIONREAD, bytes(4)), sys.byteorder)


def reload(daemon: RunningDaemon) -> str:
    """Send SIGHUP and return what the daemon says to it."""
    before = len(daemon.log())
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(
        lambda: "read again" in daemon.log()[before:] or "not reloaded" in daemon.log()[before:],
        "reload",
    )
    return daemon.log()[before:]


def test_a_reload_may_bring_another_sign_of_a_finished_boot(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.configure({"dut1": str(cable.path)}, "ready = 'the board is up'\n")
        assert "read again: 1 ports opened" in reload(daemon)
        daemon.configure({"dut1": str(cable.path)}, "ready = '(?=no) look-ahead'\n")
        place = f"{daemon.config}:8: "
        assert f'{place}port "dut1": ready: Hyperscan cannot do look-ahead' in reload(daemon)
        write_all(cable, b"U-Boot 2023.01 (Jan 01 2023)\r\nthe board is up\r\n")
        daemon.wait_for(
            lambda: daemon.rows("SELECT 1 FROM boots WHERE ready_seq = 2"), "end of boot"
        )


def test_another_firmware_file_or_board_leaves_the_port_open_and_reaches_the_agent(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        (before,) = daemon.wait_for(lambda: agents(daemon), "agent")
        daemon.configure({"dut1": str(cable.path)}, 'elf = "/srv/app.elf"\n')
        assert "read again: 0 ports opened, 0 closed, 1 untouched" in reload(daemon)
        (after,) = daemon.wait_for(
            lambda: (now := agents(daemon)) not in ([], [before]) and now, "another agent"
        )
        daemon.configure({"dut1": str(cable.path)}, 'board = "evk-7"\n')
        assert "read again: 0 ports opened, 0 closed, 1 untouched" in reload(daemon)
        daemon.wait_for(lambda: agents(daemon) not in ([], [after]), "another agent")
        assert daemon.get("/v1/ports")["ports"][0]["board"] == "evk-7"


def agents(daemon: RunningDaemon) -> list[int]:
    """Return the processes of the agent that the daemon has started."""
    pid = daemon.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    started = [Path(f"/proc/{child}/cmdline") for child in children]
    return [int(p.parent.name) for p in started if b"serialwatch.agent" in p.read_bytes()]


def test_a_configuration_without_a_port_is_not_taken_over(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.config.write_text("")  # as an editor leaves it for a moment
        assert f"not reloaded: no port to watch is left in {daemon.config}\n" in reload(daemon)
        assert [port["state"] for port in daemon.get("/v1/ports")["ports"]] == ["up"]


def test_no_life_is_expected_of_a_port_that_is_gone(tmp_path: Path) -> None:
    ports = {"one": "pty:", "two": "pty:"}
    extra = '[api]\nlisten = "127.0.0.1:0"\n'

    def beats() -> str:
        return "".join(
            row
            for row in daemon.get("/metrics", is_json=False).decode().splitlines()
            if row.startswith("serialwatch_task_beat_seconds{")
        )

    with running(tmp_path, ports, extra) as daemon:
        daemon.wait_for(lambda: "port two" in beats(), "sign of life")
        daemon.configure({"one": "pty:"}, extra)
        reload(daemon)
        daemon.wait_for(lambda: "port two" not in beats(), "end of it")

        assert "port one" in beats()


def test_a_changed_port_keeps_its_numbers_and_what_is_not_in_the_log_yet(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"one\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1") == b"one\r\n", "bytes")
        folder = daemon.state / "log"
        folder.rename(daemon.state / "kept")
        folder.write_text("in the way: nothing can be logged")
        write_all(cable, b"two\r\n")
        daemon.wait_for(lambda: "nothing is written to the log" in daemon.log(), "problem")
        daemon.configure({"dut1": str(cable.path)}, "bit_rate = 9600\n")
        reload(daemon)
        daemon.wait_for(lambda: daemon.log().count("on /dev/pts") == 2, "port")
        write_all(cable, b"three\r\n")
        folder.unlink()
        (daemon.state / "kept").rename(folder)
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"three\r\n"), "bytes")
        lines = daemon.lines("dut1")

    assert [(line["seq"], line["text"]) for line in lines] == [(1, "one"), (2, "two"), (3, "three")]


def test_what_came_during_a_start_that_is_cut_short_is_in_the_log(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        daemon.stop()
        with closing(sqlite3.connect(daemon.state / "serialwatch.db", isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")  # the start waits for its turn
            write_all(cable, b"early\r\n")
            select.select([cable._slave], [], [])  # the kernel hands it on in its own time
            with daemon.stderr.open("ab") as err:
                daemon.process = subprocess.Popen(
                    [sys.executable, "-m", "serialwatch", "run", "-c", daemon.config], stderr=err
                )
            daemon.wait_for(lambda: not unread_bytes(cable), "reader")
            daemon.signal(signal.SIGTERM)
            db.execute("ROLLBACK")
            assert daemon.process.wait(20) == 0

    assert daemon.saved("dut1") == b"early\r\n"
    assert daemon.rows("SELECT next_seq, is_clean FROM ports") == [(2, 1)]


def test_boots_that_are_searched_again_after_a_crash_keep_their_numbers(
    cable: Cable, tmp_path: Path
) -> None:
    banner = b"U-Boot 2023.01 (Jan 01 2023)\r\n"
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, banner + b"one\r\n" + banner + b"two\r\n")
        daemon.wait_for(lambda: len(daemon.rows("SELECT 1 FROM boots")) == 2, "boots")
        daemon.kill()
        with closing(sqlite3.connect(daemon.state / "serialwatch.db")) as db, db:
            db.execute("UPDATE ports SET matched_seq = 2")  # as a crash a moment earlier leaves it
        daemon.start()
        write_all(cable, banner)
        daemon.wait_for(lambda: len(daemon.rows("SELECT 1 FROM boots")) >= 3, "boot")
        daemon.wait_for(lambda: daemon.lines("dut1")[-1]["boot"] > 2, "record of the boot")
        boots = [line["boot"] for line in daemon.lines("dut1")]

    assert [n for (n,) in daemon.rows("SELECT number FROM boots ORDER BY number")] == [1, 2, 3]
    assert boots == [1, 1, 2, 2, 3]


def test_a_log_that_cannot_be_read_does_not_keep_the_daemon_from_starting(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"one\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1"), "bytes")
        daemon.kill()
        (index,) = (daemon.state / "log/dut1").glob("*.idx")
        index.unlink()
        index.mkdir()
        daemon.start()
        write_all(cable, b"two\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"two\r\n"), "bytes")

        assert "cannot be read" in daemon.log()


def test_a_lost_database_is_told_and_lines_and_boots_are_counted_on(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, b"U-Boot 2023.01 (Jan 01 2023)\r\n" + OOPS)
        daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        daemon.stop()
        (daemon.state / "serialwatch.db").write_bytes(os.urandom(8192))
        daemon.start()
        (told,) = daemon.wait_for(lambda: daemon.incidents(), "incident")
        write_all(cable, b"U-Boot 2023.01 (Jan 01 2023)\r\n")
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM boots WHERE number = 2"), "boot")
        daemon.wait_for(lambda: daemon.lines("dut1")[-1]["boot"] > 1, "record of the boot")
        last = daemon.lines("dut1")[-1]

    assert told["trigger"] == "daemon.database_damaged"
    assert (last["seq"], last["boot"]) == (6, 2)


def test_a_program_that_will_not_end_does_not_keep_the_daemon(tmp_path: Path) -> None:
    with running(tmp_path, {"p1": "command:env --ignore-signal=TERM sleep 61"}) as daemon:
        assert [port["state"] for port in daemon.get("/v1/ports")["ports"]] == ["up"]

        assert daemon.stop() == 0


def test_a_manager_that_is_not_there_is_no_reason_to_end(cable: Cable, tmp_path: Path) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "30000000"}
    with running(tmp_path, {"dut1": str(cable.path)}, env=env) as daemon:
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM ports"), "port")

        assert daemon.stop() == 0
        assert "failed" not in daemon.log()


def test_a_database_that_is_deleted_is_told_and_made_again(cable: Cable, tmp_path: Path) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        write_all(cable, OOPS)
        daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
        for path in daemon.state.glob("serialwatch.db*"):
            path.unlink()
        write_all(cable, b"one\r\n")  # a position to store
        daemon.wait_for(
            lambda: (
                {row[0] for row in daemon.rows("SELECT trigger FROM incidents")}
                == {"linux.oops", "daemon.database_damaged"}
            ),
            "incidents",
        )

        assert daemon.rows("SELECT name, is_clean FROM ports") == [("dut1", 0)]
