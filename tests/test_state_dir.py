"""One daemon a state directory."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from serialwatch.store.state_dir import StateBusy, StateError, StateLock

HOLD = """
import sys
from pathlib import Path
from serialwatch.store.state_dir import StateLock
StateLock(Path(sys.argv[1])).take()
print("taken", flush=True)
sys.stdin.read()
"""

TAKE = """
import os, sys
from pathlib import Path
from serialwatch.store.state_dir import StateBusy, StateError, StateLock
if os.geteuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    with StateLock(Path(sys.argv[1])):
        print("taken")
except (StateBusy, StateError) as exc:
    print(type(exc).__name__, exc)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has `tmp_path`/state."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_the_directory_is_made_for_the_service_and_its_group(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with StateLock(tmp_path / "var" / "state"):
            mode = stat.S_IMODE((tmp_path / "var" / "state").stat().st_mode)
    finally:
        os.umask(before)

    assert mode == 0o750


def test_the_lock_names_the_process(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        text = (tmp_path / "lock").read_text()

    assert text.startswith(f"pid {os.getpid()}\nstarted 2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock"]


def test_a_second_start_is_refused_and_names_the_first(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(StateBusy, match=rf"in use: serialwatch with pid {holder.pid}, ") as refused:
        StateLock(tmp_path / "state").take()

    assert refused.value.pid == holder.pid


def test_a_killed_daemon_holds_nothing(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()

    with StateLock(tmp_path / "state"):
        assert f"pid {os.getpid()}\n" in (tmp_path / "state" / "lock").read_text()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    lock.take()
    lock.release()
    lock.release()

    with lock:
        pass


def test_an_owner_that_has_not_signed_yet_is_still_an_owner(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    (tmp_path / "state" / "lock").write_text("")

    with pytest.raises(StateBusy, match="another serialwatch"):
        StateLock(tmp_path / "state").take()


def test_a_file_in_the_way_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(StateError, match=r"state: .*File exists .*a file is in the way"):
        StateLock(tmp_path / "state").take()
    with pytest.raises(StateError, match="a file is in the way"):
        StateLock(tmp_path / "state" / "deeper").take()


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A directory that everybody may read and the child process may not write."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        folder = Path(name)
        (folder / "lock").write_text("")
        (folder / "lock").chmod(0o666)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def take_in_a_child(folder: Path) -> str:
    script = [sys.executable, "-c", TAKE, str(folder)]
    return subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_a_directory_that_cannot_be_written_is_refused_with_a_remedy(foreign: Path) -> None:
    foreign.chmod(0o755)
    (foreign / "lock").unlink()
    foreign.chmod(0o555)

    assert take_in_a_child(foreign) == (
        f"StateError {foreign}: cannot be used: Permission denied"
        " (does it belong to the user that runs serialwatch?)\n"
    )


def test_an_old_lock_in_a_directory_that_is_now_read_only_is_no_help(foreign: Path) -> None:
    told = take_in_a_child(foreign)

    assert told.startswith(f"StateError {foreign}: cannot be written: Permission denied")
