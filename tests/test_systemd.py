import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.service import systemd

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="Debian package systemd"
)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    text = (bundled_dir("systemd") / "serialwatch.service").read_text()
    path = tmp_path / "serialwatch.service"
    path.write_text(text.replace("/usr/local/bin/serialwatch", "/bin/true"))
    return path


@needs_systemd
def test_the_unit_is_clean(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_unit_is_locked_down(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-200:]


def test_a_state_reaches_systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        systemd.notify("READY=1")

        assert manager.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)

    systemd.notify("READY=1")


def test_the_watchdog_is_ours_only_if_the_pid_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert systemd.watchdog_s() == 30.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert systemd.watchdog_s() is None
    monkeypatch.delenv("WATCHDOG_PID")
    monkeypatch.delenv("WATCHDOG_USEC")
    assert systemd.watchdog_s() is None
