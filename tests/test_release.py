"""A port that is lent to another program: closed in time, never opened too soon, told to all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench_cable import Cable
from bench_program import Program
from running_daemon import LIMIT_S, RunningDaemon, running

# What flashes: waits for a line on its stdin, having opened and locked the port.
FLASHER = """
import fcntl, os, sys
fd = os.open(os.environ["SERIALWATCH_DEVICE"], os.O_RDWR | os.O_NOCTTY)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("opened", flush=True)
sys.exit(int(sys.stdin.readline() or 9))
"""


@pytest.fixture(scope="module")
def cable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cable]:
    """The cable of dut1."""
    made = Cable(tmp_path_factory.mktemp("cable"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def started(cable: Cable) -> Iterator[RunningDaemon]:
    """One daemon for all tests: dut1, `hot`, which is not plugged in, and `still`, not written."""
    folder = cable.path.parent
    ports = {"dut1": str(cable.path), "hot": str(folder / "hot"), "still": "pty:"}
    with running(folder, ports, "write = false\n") as made:
        yield made


@pytest.fixture
def daemon(started: RunningDaemon) -> RunningDaemon:
    """The daemon, which has dut1 open."""
    started.wait_for(lambda: state_of(started) == "up", "port")
    return started


def port_of(daemon: RunningDaemon, name: str = "dut1") -> Any:
    return next(p for p in daemon.get("/v1/ports")["ports"] if p["name"] == name)


def state_of(daemon: RunningDaemon, name: str = "dut1") -> str:
    return str(port_of(daemon, name)["state"])


def newest(daemon: RunningDaemon, table: str) -> int:
    return int(daemon.rows(f"SELECT COALESCE(MAX(id), 0) FROM {table}")[0][0])


def release(daemon: RunningDaemon, *args: str, **more: Any) -> subprocess.Popen[str]:
    """Run `serialwatch release dut1 …`."""
    return subprocess.Popen(
        [sys.executable, "-m", "serialwatch", "release", "--socket", daemon.socket, "dut1", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def flashing(daemon: RunningDaemon, **more: Any) -> subprocess.Popen[str]:
    """Run a flasher in a release; returns when it has the port."""
    process = release(daemon, "--", sys.executable, "-c", FLASHER, **more)
    assert process.stdout is not None
    assert process.stdout.readline() == "opened\n", process.communicate()
    return process


def is_ours(cable: Cable, daemon: RunningDaemon) -> bool:
    """Tell whether the daemon has the device open."""
    assert daemon.process is not None
    target = os.path.realpath(cable.path)
    folder = f"/proc/{daemon.process.pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(f"{folder}/{name}") == target:
                return True
        except OSError:
            continue
    return False


class Watch:
    """Looks all the time whether the daemon opens the device."""

    def __init__(self, cable: Cable, daemon: RunningDaemon) -> None:
        self.opened = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(cable, daemon))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self, cable: Cable, daemon: RunningDaemon) -> None:
        while not self._stop.wait(0.005):
            self.opened += is_ours(cable, daemon)


def test_a_command_has_the_port_and_its_exit_code_is_ours(
    daemon: RunningDaemon, cable: Cable
) -> None:
    marker, entry = newest(daemon, "markers"), newest(daemon, "audit")
    process = flashing(daemon)
    lent = port_of(daemon)
    opened = is_ours(cable, daemon)
    _, told = process.communicate("7\n", timeout=LIMIT_S)
    state = state_of(daemon)
    cable.prints(b"new firmware\r\n")
    daemon.wait_for(lambda: b"new firmware" in daemon.saved("dut1"), "bytes")
    markers = daemon.rows("SELECT kind, text FROM markers WHERE id > ? ORDER BY id", marker)
    audit = daemon.rows("SELECT action, result FROM audit WHERE id > ?", entry)

    assert process.returncode == 7, told
    assert (lent["state"], opened, state) == ("released", False, "up")
    assert f"(pid {process.pid}) for `" in lent["problem"]
    assert [kind for kind, _ in markers] == ["flash", "flash"]
    assert markers[0][1].startswith("released to ")
    assert markers[1][1].startswith("taken back after ")
    assert audit == [("release", "ok")]
    assert port_of(daemon)["reconnects"] == 0, "it was lent, not lost"
    assert cable.received() == b""


def test_the_port_is_closed_once_its_release_is_answered(daemon: RunningDaemon) -> None:
    for _ in range(5):
        status, body = daemon.post("/v1/ports/dut1/release", {"ttl_s": 60})
        fd = os.open(body["device"], os.O_RDWR | os.O_NOCTTY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while anybody has it
        finally:
            os.close(fd)
        assert status == 200
        assert daemon.post("/v1/ports/dut1/take_back")[0] == 200
        daemon.wait_for(lambda: state_of(daemon) == "up", "port")


def test_a_device_that_comes_and_goes_meanwhile_is_not_opened(daemon: RunningDaemon) -> None:
    board = Cable(daemon.folder, "hot")
    daemon.wait_for(lambda: state_of(daemon, "hot") == "up", "port")
    daemon.post("/v1/ports/hot/release", {"ttl_s": 60})
    watch = Watch(board, daemon)
    for _ in range(3):
        board.unplug()
        board.plug()
        daemon.post("/v1/ports/hot/mark", {"text": "again"})
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: "configuration read again" in daemon.log(), "reload")
    watch.end()
    state = state_of(daemon, "hot")
    daemon.post("/v1/ports/hot/take_back")
    daemon.wait_for(lambda: state_of(daemon, "hot") == "up", "port")
    board.close()

    assert (watch.opened, state) == (0, "released")
    assert daemon.incidents() == []


def test_a_changed_configuration_does_not_open_a_lent_port(
    daemon: RunningDaemon, cable: Cable
) -> None:
    daemon.post("/v1/ports/dut1/release", {"ttl_s": 60})
    watch = Watch(cable, daemon)
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("[port.hot]", "bit_rate = 9600\n[port.hot]"))
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: port_of(daemon)["bit_rate"] == 9600, "reload")
    watch.end()
    state = state_of(daemon)
    daemon.post("/v1/ports/dut1/take_back")
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert (watch.opened, state) == (0, "released")


def test_a_release_for_a_time_ends_by_itself(daemon: RunningDaemon, cable: Cable) -> None:
    done = release(daemon, "--for", "1")
    said, _ = done.communicate(timeout=LIMIT_S)
    lent = port_of(daemon)
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert done.returncode == 0
    assert said == f"dut1 is released for 1 s: {cable.path}\n"
    assert lent["state"] == "released"
    assert lent["back_at"] is not None


def test_a_port_that_was_lent_is_back_at_the_first_try(daemon: RunningDaemon) -> None:
    before = len(daemon.log())
    for _ in range(2):
        daemon.post("/v1/ports/dut1/release", {"ttl_s": 60})
        daemon.post("/v1/ports/dut1/take_back")
        daemon.wait_for(lambda: state_of(daemon) == "up", "port")
    told = daemon.log()[before:]

    assert told.count("dut1: back on") == 2
    assert "tries" not in told


def test_of_two_releases_at_once_one_is_refused(daemon: RunningDaemon) -> None:
    answers: list[Any] = []

    def ask() -> None:
        answers.append(daemon.post("/v1/ports/dut1/release", {"ttl_s": 60}))

    both = [threading.Thread(target=ask) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    statuses = sorted(status for status, _ in answers)
    (refusal,) = [body["error"] for status, body in answers if status != 200]
    daemon.post("/v1/ports/dut1/take_back")

    assert statuses == [200, 409]
    assert "is lent to " in refusal["message"]
    assert "--take-back" in refusal["hint"]


def test_nobody_can_write_to_a_lent_port_and_nothing_is_taken_back_twice(
    daemon: RunningDaemon, cable: Cable
) -> None:
    daemon.post("/v1/ports/dut1/release", {"ttl_s": 60})
    sent = daemon.post("/v1/ports/dut1/send", {"text": "x"})
    first = daemon.post("/v1/ports/dut1/take_back")
    second = daemon.post("/v1/ports/dut1/take_back")

    assert (sent[0], first[0], second[0]) == (409, 200, 409)
    assert cable.received() == b""


def test_a_command_goes_on_when_its_port_is_taken_back(daemon: RunningDaemon, cable: Cable) -> None:
    process = flashing(daemon)
    daemon.post("/v1/ports/dut1/take_back")
    daemon.wait_for(lambda: state_of(daemon) == "busy", "holder")
    holder = port_of(daemon)["holder"]
    _, told = process.communicate("0\n", timeout=LIMIT_S)
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert process.returncode == 0
    assert "python" in holder
    assert "dut1 was taken back by " in told


def test_a_killed_client_gives_the_port_back_only_when_its_command_has_ended(
    daemon: RunningDaemon, cable: Cable
) -> None:
    reading, writing = os.pipe()
    process = flashing_from(daemon, reading)
    process.kill()
    process.wait()

    assert seen_until_it_ends(daemon, cable, (reading, writing)) == (0, "released")


@pytest.mark.parametrize("first", ["daemon", "client"])
def test_a_command_alone_keeps_its_port_when_daemon_and_client_are_killed(
    daemon: RunningDaemon, cable: Cable, first: str
) -> None:
    reading, writing = os.pipe()
    process = flashing_from(daemon, reading)

    def kill_client() -> None:
        process.kill()
        process.wait()

    daemon.wait_for(lambda: len(lent_to(daemon)) == 2, "command in the file")
    if first == "client":
        kill_client()
    daemon.kill()
    daemon.start()
    if first == "daemon":
        kill_client()

    assert seen_until_it_ends(daemon, cable, (reading, writing)) == (0, "released")


def seen_until_it_ends(
    daemon: RunningDaemon, cable: Cable, pipe: tuple[int, int]
) -> tuple[int, str]:
    """Return how often the port was seen open while a command had it, and its state then."""
    watch = Watch(cable, daemon)
    daemon.post("/v1/ports/dut1/mark", {"text": "who released it is dead"})
    daemon.post("/v1/ports/dut1/mark", {"text": "and the command is not"})
    watch.end()
    state = state_of(daemon)
    os.write(pipe[1], b"0\n")
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")
    for fd in pipe:
        os.close(fd)
    return watch.opened, state


def lent_to(daemon: RunningDaemon) -> list[int]:
    """Return the processes that the daemon would know after a restart."""
    loans = json.loads((daemon.state / "loans.json").read_text())["loans"]
    return [pid for loan in loans for pid, _ in loan["processes"]]


def test_what_is_to_be_opened_is_the_link_of_the_configuration(
    daemon: RunningDaemon, cable: Cable
) -> None:
    _, body = daemon.post("/v1/ports/dut1/release", {"ttl_s": 60})
    daemon.post("/v1/ports/dut1/take_back")

    assert body["device"] == str(cable.path)


@pytest.mark.parametrize("body", [{"pid": 0}, {"pid": True}, {"pid": 1, "ttl_s": 2}, {"pid": "1"}])
def test_a_wrong_process_is_refused(daemon: RunningDaemon, body: dict[str, Any]) -> None:
    status, answer = daemon.post("/v1/ports/dut1/release", body)

    assert status == 400
    assert "pid must be a process" in answer["error"]["message"]


def test_nobody_names_the_command_of_another(daemon: RunningDaemon) -> None:
    process = flashing(daemon)
    status, answer = daemon.post("/v1/ports/dut1/release", {"pid": 1})
    process.communicate("0\n", timeout=LIMIT_S)
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert status == 409
    assert "not released to pid" in answer["error"]["message"]


def flashing_from(daemon: RunningDaemon, stdin: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "serialwatch", "release", "--socket", daemon.socket),
            *("dut1", "--", sys.executable, "-c", FLASHER),
        ],
        stdin=stdin,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"opened\n"
    return process


def test_who_watches_is_told_and_stays(daemon: RunningDaemon, cable: Cable) -> None:
    watcher = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "serialwatch",
            "attach",
            "--json",
            "--socket",
            daemon.socket,
            "dut1",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    assert "hello" in json.loads(watcher.stdout.readline())
    daemon.post("/v1/ports/dut1/release", {"ttl_s": 60, "command": "esptool"})
    daemon.post("/v1/ports/dut1/take_back")
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")
    cable.prints(b"still here\r\n")
    told: list[Any] = []
    while not told or "still here" not in told[-1].get("text", ""):
        told.append(json.loads(watcher.stdout.readline()))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=LIMIT_S)
    states = [row["state"] for row in told if "state" in row]

    assert [each["state"] for each in states] == ["released", "opening", "up"]
    assert states[0]["problem"].endswith("for `esptool`")
    assert watcher.returncode == 0


def test_attach_goes_on_through_an_unplug_and_a_release(daemon: RunningDaemon) -> None:
    board = Cable(daemon.folder, "hot")
    daemon.wait_for(lambda: state_of(daemon, "hot") == "up", "port")
    terminal = Program(
        [sys.executable, "-m", "serialwatch", "attach", "hot", "--socket", str(daemon.socket)], {}
    )

    def until(text: str) -> None:
        daemon.wait_for(lambda: terminal.look() or text.encode() in terminal.seen, text)

    until("── live ──")
    board.unplug()
    until("hot is absent: hung up; this stays attached")
    board.plug()
    until("hot is back")
    daemon.post("/v1/ports/hot/release", {"ttl_s": 60})
    until("hot is released: lent to")
    daemon.post("/v1/ports/hot/take_back")
    daemon.wait_for(lambda: state_of(daemon, "hot") == "up", "port")
    board.prints(b"U-Boot 2023.01\r\n")
    until("U-Boot 2023.01")
    silent = board.received()
    terminal.type(b"x")
    got = daemon.wait_for(board.received, "key")
    terminal.close()
    board.close()

    assert (silent, got) == (b"", b"x")


def test_ports_shows_who_has_it_and_how_long(daemon: RunningDaemon) -> None:
    daemon.post("/v1/ports/dut1/release", {"ttl_s": 60, "command": "esptool"})
    shown = subprocess.run(
        [sys.executable, "-m", "serialwatch", "ports", "--socket", daemon.socket],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"COLUMNS": "200"},
    )
    daemon.post("/v1/ports/dut1/take_back")

    assert re.search(r"dut1 +released \d+s ", shown.stdout)
    assert re.search(
        r"lent to \w+ \(pid \d+\) for `esptool`; comes back in (1m|\d+s)", shown.stdout
    )


def test_a_restart_of_the_daemon_leaves_a_flasher_alone(
    daemon: RunningDaemon, cable: Cable
) -> None:
    process = flashing(daemon)
    daemon.stop()
    daemon.start()
    watch = Watch(cable, daemon)
    lent = port_of(daemon)
    daemon.post("/v1/ports/dut1/mark", {"text": "still lent"})
    watch.end()
    _, told = process.communicate("3\n", timeout=LIMIT_S)
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert (lent["state"], watch.opened) == ("released", 0)
    assert process.returncode == 3
    assert "the daemon has gone; it leaves dut1 alone as long as this runs" in told


def test_after_kill_9_what_was_lent_is_lent(daemon: RunningDaemon) -> None:
    process = flashing(daemon)
    daemon.post("/v1/ports/hot/release", {"ttl_s": 60})
    daemon.wait_for(lambda: "hot" in (daemon.state / "loans.json").read_text(), "file")
    daemon.kill()
    daemon.start()
    lent = port_of(daemon), port_of(daemon, "hot")
    daemon.post("/v1/ports/hot/take_back")
    process.communicate("0\n", timeout=LIMIT_S)
    daemon.wait_for(lambda: state_of(daemon) == "up", "port")

    assert [port["state"] for port in lent] == ["released", "released"]
    assert (lent[0]["back_at"], lent[1]["back_at"] is None) == (None, False)
    assert state_of(daemon, "hot") == "absent"


def test_ctrl_c_goes_to_the_command(daemon: RunningDaemon) -> None:
    code = "import signal, sys; signal.signal(2, lambda *_: sys.exit(42)); print('opened', flush=True); signal.pause()"
    process = release(daemon, "--", sys.executable, "-c", code, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "opened\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=LIMIT_S)

    assert process.returncode == 42
    assert state_of(daemon) == "up"


def test_a_command_that_a_signal_ends_and_one_that_is_not_there(daemon: RunningDaemon) -> None:
    entry = newest(daemon, "audit")
    killed = release(daemon, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 15)")
    killed.communicate(timeout=LIMIT_S)
    missing = release(daemon, "--", "no-such-flasher", "x")
    _, told = missing.communicate(timeout=LIMIT_S)

    assert killed.returncode == 128 + 15
    assert missing.returncode == 127
    assert "no-such-flasher: no such program" in told
    # Nothing was released for what is not there.
    assert len(daemon.rows("SELECT 1 FROM audit WHERE id > ?", entry)) == 1


def test_without_a_command_ctrl_c_takes_it_back(daemon: RunningDaemon) -> None:
    process = release(daemon)
    assert process.stderr is not None
    told = process.stderr.readline()
    lent = state_of(daemon)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)

    assert "dut1 is released: /" in told
    assert (lent, process.returncode, state_of(daemon)) == ("released", 0, "up")


def test_take_back_ends_a_release_without_a_command(daemon: RunningDaemon) -> None:
    process = release(daemon)
    assert process.stderr is not None
    process.stderr.readline()
    back = release(daemon, "--take-back", "--json")
    said, _ = back.communicate(timeout=LIMIT_S)
    _, told = process.communicate(timeout=LIMIT_S)

    assert (json.loads(said), back.returncode) == ({"port": "dut1"}, 0)
    assert process.returncode == 1
    assert "dut1 was taken back by " in told


def test_with_json_nothing_but_json_is_on_stdout(daemon: RunningDaemon) -> None:
    done, told = release(daemon, "--json", "--", "sh", "-c", "echo flashed").communicate(
        timeout=LIMIT_S
    )
    missing, _ = release(daemon, "--json", "--", "no-such-flasher").communicate(timeout=LIMIT_S)

    assert json.loads(done)["exit_code"] == 0
    assert told == "flashed\n"
    assert json.loads(missing) == {"port": "dut1", "device": None, "exit_code": 127}


@pytest.mark.parametrize(
    "body", [{"ttl_s": 0}, {"ttl_s": True}, {"ttl_s": "60"}, {"ttl_s": 1e9}, {"command": 1}]
)
def test_a_wrong_request_releases_nothing(daemon: RunningDaemon, body: dict[str, Any]) -> None:
    status, _ = daemon.post("/v1/ports/dut1/release", body)

    assert (status, state_of(daemon)) == (400, "up")


def test_a_port_that_must_not_be_written_is_not_lent(daemon: RunningDaemon) -> None:
    status, body = daemon.post("/v1/ports/still/release", {"ttl_s": 5})

    assert status == 403
    assert "write = false" in body["error"]["message"]
