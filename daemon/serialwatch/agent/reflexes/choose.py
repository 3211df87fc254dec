"""Which reflex speaks, and which registers are worth decoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from serialwatch.agent.case import Case, Register, Story
from serialwatch.agent.device_text import readable
from serialwatch.agent.reflexes.cortexm import tell_zephyr
from serialwatch.agent.reflexes.esp import tell_boot_loop, tell_esp_panic
from serialwatch.agent.reflexes.general import tell_anything
from serialwatch.agent.reflexes.link import tell_overrun, tell_silence
from serialwatch.agent.reflexes.linux import tell_irq, tell_oops, tell_panic, tell_storm
from serialwatch.agent.reflexes.uboot import tell_uboot_abort
from serialwatch.records import Line

Reflex = Callable[[Case, Story], None]


def reflex_for(case: Case) -> Reflex:
    """Return the reflex that knows the incident's primary trigger, else the general one."""
    trigger = case.incident.trigger
    for start, reflex in _REFLEXES:
        if trigger == start or (start.endswith(".") and trigger.startswith(start)):
            return reflex
    return tell_anything


def registers(lines: Sequence[Line]) -> list[Register]:
    """Return the fault registers that `lines` show, each value once, at most eight."""
    found: dict[tuple[str, int], Register] = {}
    for line in lines:
        text = readable(line.raw)
        for register, pattern in _REGISTERS:
            for match in pattern.finditer(text):
                value = match.group(1)
                number = int(value, 0 if value.startswith("0x") or register == "esp8266" else 16)
                found.setdefault((register, number), Register(register, value, line))
    return list(found.values())[:8]


_REGISTERS = (
    ("esr", re.compile(r"\besr(?:_el\d)?\b[ :=]+(0x[0-9a-f]{1,16})\b", re.IGNORECASE)),
    ("cfsr", re.compile(r"\bCFSR *[:=] *(?:0x)?([0-9a-f]{8})\b", re.IGNORECASE)),
    ("hfsr", re.compile(r"\bHFSR *[:=] *(?:0x)?([0-9a-f]{8})\b", re.IGNORECASE)),
    ("mcause", re.compile(r"\bmcause *[:=] *(0x[0-9a-f]{1,16}|\d{1,2})\b", re.IGNORECASE)),
    ("exccause", re.compile(r"\bEXCCAUSE *: *(0x[0-9a-f]{1,8})\b")),
    ("esp8266", re.compile(r"^\s*Exception \((\d{1,2})\):")),
    ("esp_reset", re.compile(r"\brst:(0x[0-9a-f]{1,2})\b")),
    ("init_exit", re.compile(r"\bexitcode=(0x[0-9a-f]{1,8})\b")),
)

# The first that fits the trigger speaks; a start that ends with a dot is a whole pack.
_REFLEXES: Sequence[tuple[str, Reflex]] = (
    ("uboot.sync_abort", tell_uboot_abort),
    ("linux.oops", tell_oops),
    ("linux.kernel_bug", tell_oops),
    ("linux.serror", tell_oops),
    ("linux.sync_external_abort", tell_oops),
    ("linux.panic", tell_panic),
    ("linux.panic_init_killed", tell_panic),
    ("linux.panic_vfs_root", tell_panic),
    ("linux.panic_no_init", tell_panic),
    ("linux.irq_nobody_cared", tell_irq),
    ("linux.irq_disabled", tell_irq),
    ("linux.irq_storm", tell_storm),
    ("rate.interrupt_storm", tell_storm),
    ("rate.flood", tell_storm),
    ("linux.tty_input_overrun", tell_overrun),
    ("linux.uart_fifo_overrun", tell_overrun),
    ("link.rx_overrun_host", tell_overrun),
    ("esp.guru", tell_esp_panic),
    ("boot.loop", tell_boot_loop),
    ("zephyr.", tell_zephyr),
    ("cortexm.", tell_zephyr),
    ("link.silence", tell_silence),
)
