"""Tell systemd how we are: READY, STOPPING, RELOADING and the watchdog (sd_notify(3))."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send a state such as "READY=1"; does nothing when systemd did not start us."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state.encode(), address)


def watchdog_s() -> float | None:
    """Return how often systemd wants a sign of life, None if it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 1_000_000
    except (KeyError, ValueError):
        return None
