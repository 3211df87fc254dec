"""A Cortex-M3 board whose firmware has two bugs: an interrupt storm, and later a HardFault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thumb import CC, EQ, MI, NE, R0, R1, R2, R3, R4, R5, SP, Thumb, assemble

QEMU = "qemu-system-arm"

TICKS_PER_S = 4
STORM_TICKS = (4, 6)  # on, off
FAULT_TICK = 34  # 7 s after the storm: a fault of its own

_CLOCK = 12_500_000  # Hz, after a reset
_UART_IRQ = 5
_UART, _FLAGS, _CONTROL, _MASK = 0x4000C000, 0x18, 0x30, 0x38  # PL011
_COUNT, _TICKS = 0x20000000, 0x20000004
_STACK = 0x20001000


def mcu_board(image: Path) -> Sequence[str | Path]:
    """Return how QEMU is called."""
    return [QEMU, "-M", "lm3s6965evb", "-kernel", image]


def firmware() -> bytes:
    """Return the image for flash at address 0."""
    return assemble(_firmware)


def _firmware(t: Thumb) -> None:
    vectors = {1: "reset", 3: "hard_fault", 15: "tick", 16 + _UART_IRQ: "uart"}
    t.word(_STACK)
    for number in range(1, 16 + _UART_IRQ + 1):
        t.word(t.at(vectors.get(number, "stop")) | 1)
    _reset(t)
    _uart(t)
    _tick(t)
    _hard_fault(t)
    _put_text(t)
    _put_decimal(t)
    _put_hex(t)
    _put_letter(t)
    for name, text in _TEXTS.items():
        t.label(name)
        t.data(text + b"\0")


_TEXTS = {
    "hello": b"pump-ctl 2.4.1 started\r\n",
    "irq": b"irq 5: ",
    "newline": b"\r\n",
    "fault": b"\r\nHardFault\r\n",
    "cfsr": b"CFSR=0x",
    "hfsr": b" HFSR=0x",
    "pc": b"\r\nPC=0x",
    "lr": b" LR=0x",
}


def _reset(t: Thumb) -> None:
    t.label("reset")
    _say(t, "hello")
    for address, value in (
        (_UART + _CONTROL, 0x301),
        (0xE000E404, 0x8000),  # IPR1: below the tick, which has 0
        (0xE000E100, 1 << _UART_IRQ),  # ISER0
        (0xE000E014, _CLOCK // TICKS_PER_S - 1),  # SysTick: reload, value, control
        (0xE000E018, 0),
        (0xE000E010, 7),
    ):
        t.load(R0, address)
        t.load(R1, value)
        t.str(R1, R0)
    t.label("stop")
    t.wfi()
    t.jump("stop")


def _uart(t: Thumb) -> None:
    """Count; the bug is that nobody takes the interrupt back."""
    t.label("uart")
    _count(t, _COUNT)
    t.bx_lr()


def _tick(t: Thumb) -> None:
    t.label("tick")
    t.push(R4)
    _count(t, _TICKS)
    t.mov(R4, R1)
    _say(t, "irq")
    t.load(R0, _COUNT)
    t.ldr(R0, R0)
    t.call("put_decimal")
    _say(t, "newline")
    for tick, mask in zip(STORM_TICKS, (0x20, 0), strict=True):  # "ready to send"
        t.cmp(R4, tick)
        t.jump_if(NE, f"not {tick}")
        t.load(R0, _UART)
        t.movs(R1, mask)
        t.str(R1, R0, _MASK)
        t.label(f"not {tick}")
    t.cmp(R4, FAULT_TICK)
    t.jump_if(NE, "no fault")
    t.movs(R0, 0)
    t.call_at(R0)  # a callback that nobody set
    t.label("no fault")
    t.pop(R4)


def _hard_fault(t: Thumb) -> None:
    t.label("hard_fault")
    t.mov(R4, SP)  # r0 to r3, r12, lr, pc, xpsr
    _say(t, "fault")
    for name, address in (("cfsr", 0xE000ED28), ("hfsr", 0xE000ED2C)):
        _say(t, name)
        t.load(R0, address)
        t.ldr(R0, R0)
        t.call("put_hex")
    for name, offset in (("pc", 24), ("lr", 20)):
        _say(t, name)
        t.ldr(R0, R4, offset)
        t.call("put_hex")
    _say(t, "newline")
    t.jump("stop")


def _say(t: Thumb, name: str) -> None:
    t.load(R0, t.at(name))
    t.call("put_text")


def _count(t: Thumb, address: int) -> None:
    t.load(R0, address)
    t.ldr(R1, R0)
    t.adds(R1, 1)
    t.str(R1, R0)


def _put_text(t: Thumb) -> None:
    t.label("put_text")
    t.push(R4)
    t.mov(R4, R0)
    t.label("next letter")
    t.ldrb(R0, R4)
    t.cmp(R0, 0)
    t.jump_if(EQ, "end of text")
    t.call("put_letter")
    t.adds(R4, 1)
    t.jump("next letter")
    t.label("end of text")
    t.pop(R4)


def _put_decimal(t: Thumb) -> None:
    """Eight digits of r0."""
    t.label("put_decimal")
    t.push(R4, R5)
    t.mov(R4, R0)
    t.load(R5, 10_000_000)
    t.label("next digit")
    t.udiv(R0, R4, R5)
    t.mls(R4, R0, R5, R4)
    t.adds(R0, ord("0"))
    t.call("put_letter")
    t.movs(R0, 10)
    t.udiv(R5, R5, R0)
    t.cmp(R5, 0)
    t.jump_if(NE, "next digit")
    t.pop(R4, R5)


def _put_hex(t: Thumb) -> None:
    """Eight digits of r0."""
    t.label("put_hex")
    t.push(R4, R5)
    t.mov(R4, R0)
    t.movs(R5, 8)
    t.label("next nibble")
    t.lsrs(R0, R4, 28)
    t.lsls(R4, R4, 4)
    t.cmp(R0, 10)
    t.jump_if(CC, "a digit")
    t.adds(R0, ord("a") - ord("0") - 10)
    t.label("a digit")
    t.adds(R0, ord("0"))
    t.call("put_letter")
    t.subs(R5, 1)
    t.jump_if(NE, "next nibble")
    t.pop(R4, R5)


def _put_letter(t: Thumb) -> None:
    t.label("put_letter")
    t.load(R2, _UART)
    t.label("full")
    t.ldr(R3, R2, _FLAGS)
    t.lsls(R3, R3, 31 - 5)  # TXFF
    t.jump_if(MI, "full")
    t.str(R0, R2)
    t.bx_lr()
