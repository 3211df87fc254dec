"""Which reflex speaks, and which registers are worth decoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from serialwatch.agent.offline.case import Case, Story
from serialwatch.agent.offline.reflexes.cortexm import tell_zephyr
from serialwatch.agent.offline.reflexes.esp import tell_boot_loop, tell_esp_panic, tell_esp_words
from serialwatch.agent.offline.reflexes.general import tell_anything, tell_own_words
from serialwatch.agent.offline.reflexes.link import tell_bit_rate, tell_overrun, tell_silence
from serialwatch.agent.offline.reflexes.linux import (
    tell_irq,
    tell_oops,
    tell_panic,
    tell_storm,
    tell_unhandled_fault,
)
from serialwatch.agent.offline.reflexes.own import tell_log_not_written
from serialwatch.agent.offline.reflexes.reboot import tell_unexpected_reboot
from serialwatch.agent.offline.reflexes.uboot import tell_uboot_abort, tell_uboot_hang
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line

Reflex = Callable[[Case, Story], None]


def reflex_for(case: Case) -> Reflex:
    """Return the reflex that knows the incident's primary trigger, else the general one."""
    trigger = case.incident.trigger
    for start, reflex in _REFLEXES:
        if trigger == start or (start.endswith((".", "_")) and trigger.startswith(start)):
            return reflex
    return tell_anything


def register_lines(lines: Sequence[Line], most: int = 6) -> list[Line]:
    """Return the lines that show a fault register, each value once."""
    found: dict[tuple[str, ...], Line] = {}
    for line in lines:
        if values := tuple(m.group().lower() for m in _REGISTER.finditer(readable(line.raw))):
            found.setdefault(values, line)
    return list(found.values())[:most]


_REGISTER = re.compile(
    r"\besr(?:_el\d)?\b\s*[:=]?\s*0x[0-9a-f]+"
    r"|\b[id]?fsr\s*[:=]?\s*0x[0-9a-f]+"
    r"|\b(?:C|H|MM|B|U)FSR(?:\s*[:=]\s*(?:0x)?|\s+0x)[0-9a-f]+"
    r"|\b[ms]cause\s*[:=]\s*(?:0x)?[0-9a-f]+"
    r"|\bEXCCAUSE\s*[:=]?\s*(?:0x)?[0-9a-f]+|\bException \(\d+\):"
    r"|\brst:0x[0-9a-f]+|\brst cause: ?\d+"
    r"|\bexitcode=0x[0-9a-f]+|Internal error: (?:Oops)?: [0-9a-f]+",
    re.IGNORECASE,
)

# The first that fits the trigger speaks; one that ends with a dot (a pack) or _ is a start.
_REFLEXES: Sequence[tuple[str, Reflex]] = (
    ("uboot.sync_abort", tell_uboot_abort),
    ("linux.oops", tell_oops),
    ("linux.kernel_bug", tell_oops),
    ("linux.serror", tell_oops),
    ("linux.sync_external_abort", tell_oops),
    ("linux.unhandled_fault", tell_unhandled_fault),
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
    ("esp.", tell_esp_words),
    ("uboot.hang", tell_uboot_hang),
    ("uboot.disk_error", tell_anything),
    ("uboot.", tell_own_words),
    ("boot.loop", tell_boot_loop),
    ("zephyr.assert", tell_zephyr),
    ("zephyr.cpu_fault", tell_zephyr),
    ("zephyr.fatal", tell_zephyr),
    ("zephyr.legacy_fatal", tell_zephyr),
    ("zephyr.fault_", tell_zephyr),
    ("zephyr.", tell_own_words),
    ("cortexm.", tell_zephyr),
    ("daemon.log_not_written", tell_log_not_written),
    ("link.silence", tell_silence),
    ("link.baud_mismatch", tell_bit_rate),
    ("boot.unexpected_reboot", tell_unexpected_reboot),
    ("linux.unexpected_reboot", tell_unexpected_reboot),
)
