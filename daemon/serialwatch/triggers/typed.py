"""What was written to the board: its echo is no fault, and some commands restart it."""

from __future__ import annotations

import re
from collections import deque

from serialwatch.triggers.moments import S

_ECHO_NS = 2 * S
_LEAST = 4  # characters: less is found in any line
_MOST = 1024
_RESTARTS = re.compile(
    rb"(?:^|[\s;&|])(?:reset|reboot|poweroff|halt|shutdown|init [06]|kernel reboot \w+)"
    rb"(?:$|[\s;&|])|machine\.(?:soft_)?reset\(|systemctl (?:reboot|poweroff|halt|kexec)"
)
# A prompt and a command to which words are only text: no fault of the board. A kernel message that
# came between is told by its time.
_TEXT_COMMAND = re.compile(
    rb"^(?:=>|(?:[^\r\n#$>]{0,80}[^\r\n#$>=-])?[#$>]) +(?:sudo +)?"
    rb"(?:echo|printf|logger|z?grep|egrep|rg|sed|awk|z?cat|less|tail|head) "
    rb"(?!.*\[ *\d{1,7}\.\d{6}\])"
)


def is_text_command(line: bytes) -> bool:
    """Tell whether a line is a typed command that only handles text, such as `grep`."""
    return _TEXT_COMMAND.match(line) is not None


class Typed:
    """The lines written in the last two seconds."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=64)

    def wrote(self, data: bytes, mono_ns: int) -> bool:
        """Take what was written; tell whether it asks for a restart."""
        *lines, rest = re.split(rb"[\r\n]+", self._unfinished + data)
        self._unfinished = rest[-_MOST:]
        whole = [line.strip() for line in lines]
        self._lines += [(mono_ns, line) for line in whole if len(line) >= _LEAST]
        return any(_RESTARTS.search(line) for line in whole)

    def is_echo(self, line: bytes, mono_ns: int) -> bool:
        """Tell whether a line only shows what was typed, behind a prompt or not."""
        if not self._lines:
            return False
        shown = line.rstrip()
        return any(
            mono_ns - at_ns <= _ECHO_NS and shown.endswith(typed) for at_ns, typed in self._lines
        )
