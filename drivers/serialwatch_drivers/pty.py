"""`pty:` makes a pair of terminals: we hold one end, the path of the other is for anybody.

`pty:/some/link` also makes a link to that path, gone when the port is closed.
"""

from __future__ import annotations

import contextlib
import os
import tty
from pathlib import Path

from serialwatch_drivers.descriptors import WRITE_LIMIT_S, BytesPort, FdReader, FdWriter
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.port import OnBytes, OnLost, PortOpenError, PortOptions


async def open_pty(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> PtyPort:
    """Make a pair and push what the far end writes. It never hangs up, and takes no options.

    Raises:
        PortOpenError: no pty is left, or the link cannot be made (`broken`).

    """
    body = parse_device(device).body
    link = Path(body) if body else None
    try:
        near, far = os.openpty()
    except OSError as exc:
        raise PortOpenError(device, "broken", f"no pty: {exc.strerror}") from exc
    try:
        tty.setraw(far)
        os.set_blocking(near, False)
        if link is not None:
            _make_link(device, link, os.ttyname(far))
    except BaseException:
        os.close(near)
        os.close(far)
        raise
    return PtyPort(device, near, far, link, on_bytes)


class PtyPort(BytesPort):
    """Our end of a pair."""

    def __init__(
        self,
        device: str,
        near: int,
        far: int,
        link: Path | None,
        on_bytes: OnBytes,
        write_limit_s: float = WRITE_LIMIT_S,
    ) -> None:
        self._near = near
        self._far = far  # kept open: the last close of the far end would hang us up
        self._far_end = os.ttyname(far)
        self._link = link
        super().__init__(
            device,
            FdReader(near, on_bytes, on_end=self.close),
            FdWriter(near, device, write_limit_s),
        )
        self._is_closed = False
        self._reader.resume()

    @property
    def far_end(self) -> str:
        """The path that the other side may open."""
        return self._far_end

    def close(self) -> None:
        """Close both ends and remove the link; no callback comes after this."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reader.close()
        self._writer.close()
        if self._link is not None:
            _remove_link(self._link, self._far_end)
        os.close(self._near)
        os.close(self._far)

    async def wait_closed(self) -> None:
        """Return at once: closing a pty does not wait."""


def _make_link(device: str, link: Path, target: str) -> None:
    """Lead `link` to `target` in one step; what is there may only be an old link of this kind."""
    if link.is_symlink():
        if not os.readlink(link).startswith("/dev/pts/"):
            problem = f"{link} leads to {os.readlink(link)!r} (remove it)"
            raise PortOpenError(device, "broken", problem)
    elif link.exists():
        raise PortOpenError(device, "broken", f"{link} exists and is not a link (remove it)")
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(link)
    except OSError as exc:
        raise PortOpenError(device, "broken", f"no link {link}: {exc.strerror}") from exc


def _remove_link(link: Path, target: str) -> None:
    with contextlib.suppress(OSError):  # gone already, or in a folder that is
        if os.readlink(link) == target:
            link.unlink()
