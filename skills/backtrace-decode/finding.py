"""Find the addresses of a crash in console lines: backtraces, register dumps, call traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FOUND = 40  # addresses of one dump
MAX_STACK = 200  # words of a stack dump that are looked at
MAX_LINE = 1000  # characters of a line that are looked at


@dataclass(frozen=True, slots=True)
class Found:
    """One place in code, as the board printed it."""

    role: str  # pc, lr, frame, stack, address: what kind of address it is
    address: int | None  # None: by name only
    seq: int = 0  # line of the log, 0: none
    name: str = ""  # Linux: name+offset/size
    offset: int = 0
    size: int = 0
    module: str = ""  # Linux: of which module

    @property
    def is_return(self) -> bool:
        """Return whether the call itself stands just before the address."""
        return self.role in {"lr", "frame", "stack"}


def find_addresses(lines: list[tuple[int, str]]) -> list[Found]:
    """Return what some lines, each with its number, tell of where the code was."""
    found: list[Found] = []
    has_reloc = any("(reloc)" in text for _, text in lines)
    stack = _Stack()
    for seq, whole in lines:
        text = whole[:MAX_LINE]
        if has_reloc and _U_BOOT.search(text) and "(reloc)" not in text:
            continue  # U-Boot prints the same two again where it runs
        here = list(_found(seq, text)) or list(stack.words(seq, text))
        found += here
    unique: dict[tuple[object, ...], Found] = {}
    for one in found:
        unique.setdefault((one.address, one.name, one.offset, one.is_return), one)
    return list(unique.values())[:MAX_FOUND]


def parse_address(text: str) -> int:
    """Return an address that was given as 0x and hexadecimal digits."""
    return int(text, 16)


def _found(seq: int, text: str) -> Iterator[Found]:
    if match := _PAIRS.search(text):
        for number, pair in enumerate(_PAIR.finditer(match[0])):
            role = "pc" if number == 0 else "frame"
            # The console has gone back from the return address to the call already.
            yield Found(role if role == "pc" else "call", int(pair[1], 16), seq)
        return
    if match := _LIST.search(text):
        for word in _WORD.finditer(match[1]):
            yield Found("frame", int(word[0], 16), seq)
        return
    named = False
    for match in _LINUX.finditer(text):
        named = True
        role = "pc" if _LINUX_PC.search(text[: match.start()]) else "frame"
        yield Found(
            role,
            int(match["addr"], 16) if match["addr"] else None,
            seq,
            match["name"],
            int(match["offset"], 16),
            int(match["size"], 16),
            match["module"] or "",
        )
    if named:
        return
    for match in _REGISTER.finditer(text):
        role = "pc" if _IS_PC.fullmatch(match[1]) else "lr"
        yield Found(role, int(match[2], 16), seq)


class _Stack:
    """Words of a stack dump, which begins with its heading and ends with any other line."""

    def __init__(self) -> None:
        self._is_inside = False
        self._left = MAX_STACK

    def words(self, seq: int, text: str) -> Iterator[Found]:
        if _STACK_HEAD.search(text):
            self._is_inside = True
            return
        row = _STACK_ROW.match(text)
        if row is None or not self._is_inside:
            self._is_inside = self._is_inside and not text.strip()
            return
        for word in _WORD.finditer(row[1]):
            if self._left > 0:
                self._left -= 1
                yield Found("stack", int(word[0], 16), seq)


_PAIRS = re.compile(r"\bBacktrace: ?(?:0x[0-9a-fA-F]{8}:0x[0-9a-fA-F]{8} ?)+")
_PAIR = re.compile(r"(0x[0-9a-fA-F]{8}):0x[0-9a-fA-F]{8}")
_LIST = re.compile(
    r"\b[Bb]acktrace[^0-9]{0,20}(?:\d+[:|]\s*)?((?:[\s,]*(?:0x)?[0-9a-fA-F]{8,16}\b)+)[\s,]*$"
)
_WORD = re.compile(r"\b(?:0x)?[0-9a-fA-F]{8,16}\b")
_LINUX = re.compile(
    r"(?:\[<(?P<addr>[0-9a-f]{8,16})>\]\s+)?(?:\(|\b)(?P<name>[A-Za-z_][\w.$]{0,127})"
    r"\+0x(?P<offset>[0-9a-f]{1,8})/0x(?P<size>[0-9a-f]{1,8})\)?(?:\s+\[(?P<module>\w{1,64})[^\]]{0,60}\])?"
)
_LINUX_PC = re.compile(r"\b(?:[Pp][Cc]|RIP|EIP|NIP|epc|PC is at)\b[^+]{0,40}$")
_REGISTER = re.compile(
    r"(?i)(?<![\w/])((?:r15/|xt)?pc|(?:r14/)?lr|ra|mepc|sepc|epc1?|elr(?:_el[123n])?|rip|eip|x30|"
    r"faulting instruction address(?: \(r15/pc\))?)(?:\s*\([^)]{1,12}\))?\s*[:=]?\s*[<\[]{0,2}"
    r"((?:0x)?[0-9a-f]{8,16})\b"
)
_IS_PC = re.compile(r"(?i)(?:r15/|xt)?pc|[ms]?epc1?|elr.*|[re]ip|faulting.*")
_U_BOOT = re.compile(r"^\W*elr: ?[0-9a-f]{16} lr ?: ?[0-9a-f]{16}")
_STACK_HEAD = re.compile(r"(?i)\bstack(?: memory| dump|:)|>>>stack>>>")
_STACK_ROW = re.compile(r"^\W*(?:0x)?[0-9a-fA-F]{8}:\s+((?:(?:0x)?[0-9a-fA-F]{8}\s*){1,8})$")
