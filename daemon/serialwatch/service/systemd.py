"""Tell systemd how we are: READY, STOPPING, RELOADING and the watchdog (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state such as "READY=1"; does nothing when systemd did not start us."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, flags) as sock:
        try:
            sock.sendto(state.encode(), address)
        except OSError as exc:
            # A manager that is not there now, or does not read, is no reason to end or to wait.
            log.debug("%s: %s is not told: %s", address, state, exc.strerror)


def watchdog_s() -> float | None:
    """Return how often systemd wants a sign of life, None if it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 1_000_000
    except (KeyError, ValueError):
        return None
