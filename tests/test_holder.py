from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from bench_cable import Cable
from serialwatch_drivers.holder import find_holder


def a_process(proc: Path, pid: int, command: bytes, opened: str | None = None) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_bytes(command + b"\n")
    if opened is not None:
        (proc / str(pid) / "fd/5").symlink_to(opened)


def lock_row(path: Path, pid: int, mark: str = "") -> str:
    file = path.stat()
    where = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    return f"1: {mark}FLOCK  ADVISORY  WRITE {pid} {where} 0 EOF\n"


def test_our_own_lock_is_found_in_the_real_proc(cable: Cable) -> None:
    fd = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    fcntl.flock(fd, fcntl.LOCK_EX)

    assert find_holder(str(cable.path)).endswith(f"(pid {os.getpid()}, uid {os.geteuid()})")
    os.close(fd)


def test_a_program_that_locked_nothing_is_found_by_what_it_has_open(cable: Cable) -> None:
    script = "import os,sys; os.open(sys.argv[1], 2); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script, str(cable.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"

        found = find_holder(str(cable.path))

        program.communicate(b"")
    assert f"(pid {program.pid}, uid {os.geteuid()})" in found


def test_we_ourselves_are_another_port(cable: Cable) -> None:
    fd = os.open(cable.path, os.O_RDONLY | os.O_NOCTTY)
    try:
        cable.detach_own()
        found = find_holder(str(cable.path))
    finally:
        os.close(fd)

    assert found == "another port of this daemon"


def test_the_owner_of_the_lock_is_named_before_others(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    a_process(tmp_path, 4121, b"picocom", opened=str(device))
    a_process(tmp_path, 4122, b"cat", opened=str(device))
    (tmp_path / "locks").write_text(lock_row(device, 4121))

    assert find_holder(str(device), tmp_path) == f"picocom (pid 4121, uid {os.getuid()})"


def test_a_lock_that_is_waited_for_holds_nothing(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    a_process(tmp_path, 4121, b"picocom")
    (tmp_path / "locks").write_text(lock_row(device, 4121, mark="-> "))

    assert find_holder(str(device), tmp_path) == ""


def test_a_lock_whose_owner_has_ended_leads_to_who_has_the_device_open(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    a_process(tmp_path, 4122, b"sh", opened=str(device))
    (tmp_path / "locks").write_text(lock_row(device, 4121))

    assert find_holder(str(device), tmp_path) == f"sh (pid 4122, uid {os.getuid()})"


def test_a_name_that_would_spoil_a_screen_is_shown_harmless(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    a_process(tmp_path, 66, b"a\x1b[2Jb\n\xffc", opened=str(device))

    assert find_holder(str(device), tmp_path).startswith("a?[2Jb?")


def test_nothing_known_is_an_empty_answer(tmp_path: Path) -> None:
    assert find_holder(str(tmp_path / "ttyUSB0"), tmp_path) == ""
