"""What holds a locked-in process; each test forks one and asks it what it can do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from serialwatch.agent.workers.sandbox import landlock_abi

PROBE = """
import json, os, sys
from pathlib import Path
from serialwatch.agent.workers.sandbox import Limits, confine

def tried(what):
    try:
        return repr(what())
    except BaseException as exc:
        return type(exc).__name__

room = Path(sys.argv[1])
status_fd = os.open("/proc/self/status", os.O_RDONLY)
held = confine(
    [Path(sys.prefix), Path(sys.base_prefix), *map(Path, filter(None, sys.path)), Path("/usr/lib"),
     Path("/dev/null"), room / "read"],
    [room / "write"],
    Limits(cpu_s=1, memory_bytes=300 << 20, files=20, file_bytes=1000),
)
status = os.pread(status_fd, 9999, 0).decode()
os.close(status_fd)
answers = {"abi": held.landlock_abi, "filter": held.has_filter}
"""

needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
needs_filter = pytest.mark.skipif(
    os.uname().machine not in ("x86_64", "aarch64", "riscv64"), reason="no filter for this machine"
)


@needs_landlock
def test_files_are_read_and_written_where_allowed_only(tmp_path: Path) -> None:
    answers = probe(
        tmp_path,
        """
        answers["read"] = tried((room / "read" / "file").read_text)
        answers["write"] = tried(lambda: (room / "write" / "new").write_text("x"))
        answers["remove"] = tried(lambda: (room / "write" / "new").unlink())
        answers["change"] = tried(lambda: (room / "read" / "file").write_text("x"))
        answers["other"] = tried((room / "secret").read_text)
        answers["list"] = tried(lambda: os.listdir(room))
        answers["passwd"] = tried(lambda: open("/etc/passwd").read())
        answers["tty"] = tried(lambda: os.open("/dev/ptmx", os.O_RDWR))
        answers["import"] = tried(lambda: __import__("wave").__name__)
        """,
    )

    assert answers["read"] == "'text'"
    assert (answers["write"], answers["remove"]) == ("1", "None")
    for what in ("change", "other", "list", "passwd", "tty"):
        assert answers[what] == "PermissionError", what
    assert answers["import"] == "'wave'"


@needs_filter
def test_no_process_no_socket_no_signal(tmp_path: Path) -> None:
    answers = probe(
        tmp_path,
        """
        import socket, subprocess, threading
        answers["fork"] = tried(os.fork)
        answers["exec"] = tried(lambda: os.execv("/bin/true", ["true"]))
        answers["run"] = tried(lambda: subprocess.run(["/bin/true"]))
        answers["socket"] = tried(socket.socket)
        answers["kill"] = tried(lambda: os.kill(os.getppid(), 9))
        pair = socket.socketpair()
        thread = threading.Thread(target=pair[0].send, args=(b"x",))
        thread.start()
        answers["thread"] = tried(lambda: pair[1].recv(1))
        """,
    )

    for what in ("fork", "exec", "run", "socket", "kill"):
        assert answers[what] == "PermissionError", what
    assert answers["thread"] == "b'x'"


def test_memory_files_and_size_are_limited(tmp_path: Path) -> None:
    answers = probe(
        tmp_path,
        """
        answers["memory"] = tried(lambda: bytearray(400 << 20))
        answers["files"] = tried(lambda: [os.dup(0) for _ in range(30)])
        for fd in range(3, 20):
            try:
                os.close(fd)
            except OSError:
                pass
        answers["size"] = tried(lambda: (room / "write" / "big").write_bytes(b"x" * 2000))
        answers["core"] = __import__("resource").getrlimit(4)[0]
        """,
    )

    assert answers["memory"] == "MemoryError"
    assert answers["files"] == "OSError"
    assert answers["size"] == "OSError"
    assert answers["core"] == 0


def test_no_new_rights_and_no_capability(tmp_path: Path) -> None:
    status = probe(tmp_path, "answers['status'] = status")["status"]

    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status


@needs_landlock
@needs_filter
def test_what_holds_is_told(tmp_path: Path) -> None:
    answers = probe(tmp_path, "")

    assert (answers["abi"], answers["filter"]) == (landlock_abi(), True)


def test_a_process_that_uses_up_its_time_is_ended(tmp_path: Path) -> None:
    process = run(tmp_path, "while True: pass")

    assert process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def probe(room: Path, code: str) -> dict[str, Any]:
    """Run `code` in a locked-in process and return the answers it collected."""
    process = run(room, textwrap.dedent(code) + "\nprint(json.dumps(answers))")
    assert process.returncode == 0, process.stderr
    answers: dict[str, Any] = json.loads(process.stdout)
    return answers


def run(room: Path, code: str) -> subprocess.CompletedProcess[str]:
    (room / "read").mkdir()
    (room / "read" / "file").write_text("text")
    (room / "write").mkdir()
    (room / "secret").write_text("secret")
    return subprocess.run(
        [sys.executable, "-I", "-c", PROBE + code, str(room)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
