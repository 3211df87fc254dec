"""What is typed while attached: keys for the board, and commands for us."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = 0x14  # Ctrl-T
_ENTER = frozenset(b"\r\n")
_TILDE = ord("~")


@dataclass(frozen=True, slots=True)
class Typed:
    """Keys for the board."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Command:
    """A key after Ctrl-T; `~.` is `q`."""

    key: str


class Keys:
    """Tells commands from keys: `Ctrl-T x`, and `~.` at the start of a line."""

    def __init__(self) -> None:
        self._is_line_start = True
        self._held = 0  # PREFIX or a tilde whose meaning the next key decides

    def feed(self, data: bytes) -> list[Typed | Command]:
        """Return what `data` means, in order."""
        if data and not self._held and PREFIX not in data and _TILDE not in data:
            self._is_line_start = data[-1] in _ENTER  # a paste, nearly always
            return [Typed(data)]
        found: list[Typed | Command] = []
        keys = bytearray()
        for byte in data:
            held, self._held = self._held, 0
            if held == PREFIX and byte != PREFIX:
                if keys:
                    found.append(Typed(bytes(keys)))
                    keys.clear()
                found.append(Command(chr(byte)))
                continue
            if held == _TILDE and byte == ord("."):
                if keys:
                    found.append(Typed(bytes(keys)))
                return [*found, Command("q")]
            if held == _TILDE and byte != _TILDE:
                keys.append(_TILDE)
            elif byte == _TILDE and self._is_line_start and held != _TILDE:
                self._held = _TILDE
                self._is_line_start = False
                continue
            if byte == PREFIX and held != PREFIX:
                self._held = PREFIX
                continue
            keys.append(byte)
            self._is_line_start = byte in _ENTER
        if keys:
            found.append(Typed(bytes(keys)))
        return found
