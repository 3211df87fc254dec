"""Telnet as RFC 2217 uses it: a stream of bytes with commands in it, in chunks of any size."""

from __future__ import annotations

from collections.abc import Callable

IAC = 0xFF
_SB, _SE = 0xFA, 0xF0
_NEGOTIATIONS = frozenset((0xFB, 0xFC, 0xFD, 0xFE))  # WILL, WONT, DO, DONT
_MAX_SUBOPTION = 4096  # bytes; one that never ends is noise
_DOUBLED = bytes((IAC, IAC))


class Telnet:
    """Takes the commands out of what a server sends."""

    def __init__(
        self,
        on_option: Callable[[bytes, bytes], None],  # WILL, WONT, DO or DONT, and what
        on_suboption: Callable[[bytes], None],
    ) -> None:
        self._on_option = on_option
        self._on_suboption = on_suboption
        self._held = b""  # a command whose end has not come yet

    def feed(self, data: bytes) -> bytes:
        """Return the bytes among `data` that are no commands."""
        if self._held:
            data, self._held = self._held + data, b""
        at = data.find(IAC)
        if at < 0:
            return data
        out = bytearray(data[:at])
        while at >= 0:
            end = self._command(data, at, out)
            if end < 0:
                self._held = data[at:]
                break
            at = data.find(IAC, end)
            out += data[end:at] if at >= 0 else data[end:]
        return bytes(out)

    def _command(self, data: bytes, at: int, out: bytearray) -> int:
        """Take the command at `at`; return where it ends, -1 if its end is still to come."""
        if at + 1 == len(data):
            return -1
        what = data[at + 1]
        if what == IAC:
            out.append(IAC)
        elif what in _NEGOTIATIONS:
            if at + 2 == len(data):
                return -1
            self._on_option(data[at + 1 : at + 2], data[at + 2 : at + 3])
            return at + 3
        elif what == _SB:
            return self._suboption(data, at + 2)
        return at + 2

    def _suboption(self, data: bytes, start: int) -> int:
        at = start
        while (at := data.find(IAC, at)) >= 0 and at + 1 < len(data):
            if data[at + 1] == _SE:
                self._on_suboption(data[start:at].replace(_DOUBLED, bytes((IAC,))))
                return at + 2
            at += 2
        return start if len(data) - start > _MAX_SUBOPTION else -1


def doubled(data: bytes) -> bytes:
    """Return data as it is sent: a byte 255 would be a command."""
    return data.replace(bytes((IAC,)), _DOUBLED)
