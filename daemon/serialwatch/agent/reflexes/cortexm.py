"""Zephyr fatal errors and fault dumps of other Cortex-M firmware."""

from __future__ import annotations

import re

from serialwatch.agent.case import Case, Match, Story, name
from serialwatch.agent.reflexes.general import SURE, tell_anything, tell_register


def tell_zephyr(case: Case, story: Story) -> None:
    """Tell of a fatal error of Zephyr, or of a fault dump of another Cortex-M firmware."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    kind = case.find(_ZEPHYR_FAULT)
    fatal = case.find(_ZEPHYR_FATAL)
    detail = case.find(_FAULT_DETAIL)
    address = case.find(_FAULT_ADDRESS)
    cfsr = case.register("cfsr") or case.register("hfsr") or case.register("mcause")
    story.certainty = SURE
    what = _what(kind)
    system = "Zephyr" if case.incident.trigger.startswith("zephyr.") else "Firmware"
    story.headline = f"{system}: {what}"
    lines = [m.line for m in (kind, detail, address) if m] or [fault]
    words = f"{detail['detail'][:1].lower()}{detail['detail'][1:]}" if detail else ""
    if words:
        where = f" at address {address['address']}" if address else ""
        story.headline += f" at {address['address']}" if address else ""
        claim = f"A {what}: {name(words)}{where}."
    elif cfsr is not None:
        lines = [*(m.line for m in (kind,) if m), cfsr.line]
        claim = f"A {what}: {name(cfsr.meaning[:1].lower() + cfsr.meaning[1:], 160)}"
    elif fatal:
        lines = [*lines, fatal.line]
        claim = f"A {what}: {name(fatal['reason'], 100)}."
    else:
        claim = f"A {what}: {name(case.incident.title, 120)}."
    story.conclude("cause", claim, [fault, *lines], knowledge=True)
    if cfsr is not None:
        tell_register(story, cfsr)
    pc = case.find(_FAULT_PC)
    if pc is not None:
        story.mark(pc.line, "where")
        thread = case.find(_THREAD)
        who = f", in thread {name(thread['thread'])}" if thread and thread["thread"] else ""
        story.conclude(
            "observation",
            f"The instruction at {pc['pc']} did it{who}.",
            [pc.line, *([thread.line] if thread and who else [])],
        )
        story.step(f"look up {pc['pc']} with addr2line on the ELF of this build")
    if fatal is not None:
        story.mark(fatal.line)


def _what(kind: Match | None) -> str:
    """Return what the dump calls the fault."""
    if kind is None:
        return "fatal error"
    return f"{(kind['kind'] or kind['other']).lower()} fault"


_ZEPHYR_FAULT = re.compile(
    r"\*{5} (?P<kind>MPU|BUS|USAGE|HARD|SECURE|DEBUG)[ _]FAULT \*{5}"
    r"|\b(?P<other>Hard|Bus|Usage|MemManage) ?[Ff]ault"
)
_ZEPHYR_FATAL = re.compile(r">>> ZEPHYR FATAL ERROR \d+: (?P<reason>.+?)(?: on CPU \d+)?\s*$")
_FAULT_DETAIL = re.compile(
    r"\b(?P<detail>(?:Precise|Imprecise) data bus error|Instruction bus error|Stacking error"
    r"|Unstacking error|Data Access Violation|Instruction Access Violation|Division by zero"
    r"|Unaligned memory access|Attempt to execute undefined instruction"
    r"|Illegal use of the EPSR|No coprocessor instructions|Floating-point lazy state "
    r"preservation error)\b",
    re.IGNORECASE,
)
_FAULT_ADDRESS = re.compile(r"\b(?:BFAR|MMFAR)(?: Address)? *[:=] *(?P<address>0x[0-9a-f]{1,8})\b")
_FAULT_PC = re.compile(
    r"(?:Faulting instruction address \(r15/pc\)|\bpc) *[:=] *(?P<pc>0x[0-9a-f]{1,16})\b",
    re.IGNORECASE,
)
_THREAD = re.compile(r"Current thread: 0x[0-9a-f]+(?: \((?P<thread>[^)]+)\))?")
