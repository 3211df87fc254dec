"""As much of an assembler for Thumb-2 as a small firmware needs (ARMv7-M, DDI 0403, A7.7)."""

from __future__ import annotations

import struct
from collections.abc import Callable

R0, R1, R2, R3, R4, R5, SP = 0, 1, 2, 3, 4, 5, 13
EQ, NE, CC, MI = 0, 1, 3, 4


class Thumb:
    """Code that starts at address 0; addresses of `labels` come from an earlier pass."""

    def __init__(self, labels: dict[str, int]) -> None:
        self.code = bytearray()
        self.seen: dict[str, int] = {}
        self._labels = labels

    def label(self, name: str) -> None:
        """Name the place that follows."""
        self.seen[name] = len(self.code)

    def at(self, name: str) -> int:
        """Return the address of a label, 0 in the first pass."""
        return self._labels.get(name, 0)

    def data(self, value: bytes) -> None:
        """Put bytes there, up to the next half-word."""
        self.code += value + bytes(len(value) % 2)

    def word(self, value: int) -> None:
        """Put a word there."""
        self.code += struct.pack("<I", value)

    def load(self, rd: int, value: int) -> None:
        """movw, movt: any 32 bits."""
        for code, half in ((0xF240, value & 0xFFFF), (0xF2C0, value >> 16)):
            first = code | (half >> 11 & 1) << 10 | half >> 12
            self._put(first, (half >> 8 & 7) << 12 | rd << 8 | half & 0xFF)

    def mov(self, rd: int, rm: int) -> None:
        """mov rd, rm."""
        self._put(0x4600 | rm << 3 | rd)

    def movs(self, rd: int, value: int) -> None:
        """movs rd, #value."""
        self._put(0x2000 | rd << 8 | value)

    def cmp(self, rn: int, value: int) -> None:
        """cmp rn, #value."""
        self._put(0x2800 | rn << 8 | value)

    def adds(self, rd: int, value: int) -> None:
        """adds rd, #value."""
        self._put(0x3000 | rd << 8 | value)

    def subs(self, rd: int, value: int) -> None:
        """subs rd, #value."""
        self._put(0x3800 | rd << 8 | value)

    def lsls(self, rd: int, rm: int, by: int) -> None:
        """lsls rd, rm, #by."""
        self._put(by << 6 | rm << 3 | rd)

    def lsrs(self, rd: int, rm: int, by: int) -> None:
        """lsrs rd, rm, #by."""
        self._put(0x0800 | by << 6 | rm << 3 | rd)

    def udiv(self, rd: int, rn: int, rm: int) -> None:
        """udiv rd, rn, rm."""
        self._put(0xFBB0 | rn, 0xF0F0 | rd << 8 | rm)

    def mls(self, rd: int, rn: int, rm: int, ra: int) -> None:
        """mls rd, rn, rm, ra: rd = ra - rn * rm."""
        self._put(0xFB00 | rn, ra << 12 | rd << 8 | 0x10 | rm)

    def ldr(self, rt: int, rn: int, offset: int = 0) -> None:
        """ldr rt, [rn, #offset]."""
        self._put(0x6800 | offset // 4 << 6 | rn << 3 | rt)

    def str(self, rt: int, rn: int, offset: int = 0) -> None:
        """str rt, [rn, #offset]."""
        self._put(0x6000 | offset // 4 << 6 | rn << 3 | rt)

    def ldrb(self, rt: int, rn: int) -> None:
        """ldrb rt, [rn]."""
        self._put(0x7800 | rn << 3 | rt)

    def push(self, *registers: int) -> None:
        """Push registers and lr."""
        self._put(0xB500 | sum(1 << r for r in registers))

    def pop(self, *registers: int) -> None:
        """Pop registers and pc: return."""
        self._put(0xBD00 | sum(1 << r for r in registers))

    def bx_lr(self) -> None:
        """Return."""
        self._put(0x4770)

    def wfi(self) -> None:
        """Sleep until an interrupt."""
        self._put(0xBF30)

    def call(self, name: str) -> None:
        """bl name."""
        offset = self.at(name) - len(self.code) - 4
        sign = offset >> 24 & 1
        j1, j2 = (1 - (offset >> by & 1) ^ sign for by in (23, 22))
        self._put(
            0xF000 | sign << 10 | offset >> 12 & 0x3FF,
            0xD000 | j1 << 13 | j2 << 11 | offset >> 1 & 0x7FF,
        )

    def call_at(self, rm: int) -> None:
        """blx rm."""
        self._put(0x4780 | rm << 3)

    def jump(self, name: str) -> None:
        """b name, up to 2 KB away."""
        self._put(0xE000 | (self.at(name) - len(self.code) - 4) >> 1 & 0x7FF)

    def jump_if(self, condition: int, name: str) -> None:
        """b<condition> name, up to 256 bytes away."""
        self._put(0xD000 | condition << 8 | (self.at(name) - len(self.code) - 4) >> 1 & 0xFF)

    def _put(self, *halves: int) -> None:
        self.code += struct.pack(f"<{len(halves)}H", *halves)


def assemble(program: Callable[[Thumb], None]) -> bytes:
    """Return the code of `program`, in two passes."""
    first = Thumb({})
    program(first)
    second = Thumb(first.seen)
    program(second)
    return bytes(second.code)
