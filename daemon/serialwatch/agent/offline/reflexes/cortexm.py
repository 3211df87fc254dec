"""Zephyr fatal errors and fault dumps of other Cortex-M firmware."""

from __future__ import annotations

import re

from serialwatch.agent.offline.case import Case, Decoded, Match, Story, name
from serialwatch.agent.offline.reflexes.general import (
    LIKELY,
    SURE,
    tell_anything,
    tell_own_words,
    tell_register,
)
from serialwatch.records import Line

NULL_PC = 4  # a program counter below was never one of a function; flash may begin at 0


def tell_zephyr(case: Case, story: Story) -> None:
    """Tell of a fatal error of Zephyr, or of a fault dump of another Cortex-M firmware."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    if case.incident.trigger == "zephyr.assert":
        tell_own_words(case, story)
        _tell_place(case, story, "")
        return
    kind = case.find(_ZEPHYR_FAULT)
    fatal = case.find(_ZEPHYR_FATAL)
    detail = case.find(_FAULT_DETAIL)
    address = case.find(_FAULT_ADDRESS)
    at = (address["address"] or f"0x{address['tval']}") if address else ""
    register = _fault_register(case)
    is_told = kind or fatal or detail or register
    if not is_told and not case.incident.trigger.startswith("zephyr."):
        tell_own_words(case, story)
        _tell_place(case, story, "")
        return
    reason = _own_reason(fatal)
    story.certainty = SURE
    system = "Zephyr" if case.incident.trigger.startswith("zephyr.") else "Firmware"
    what = _what(kind)
    words = _plain(detail["detail"]) if detail else ""
    lines = [m.line for m in (kind, detail, address) if m] or [fault]
    if fatal and reason:
        what = f"{_plain(reason)} ({what})" if kind else _plain(reason)
        lines = [*lines, fatal.line]
    if words:
        where = f" at address {at}" if at else ""
        claim = f"{_a(what)}: {name(words)}{where}."
        if kind is None and not reason:
            what = name(words)
            claim = f"{_a(what)}{where}."
        story.headline = f"{system}: {what}" + (f" at {at}" if at else "")
    else:
        story.headline = f"{system}: {what}"
        if system == "Zephyr" and kind is None and not reason:
            story.headline = f"{system}: {_after(case.incident.title).removeprefix('Zephyr ')}"
        if register is not None and kind is None:
            short = _plain(register.meaning).partition(";")[0].rstrip(".")
            story.headline = f"{system}: {short}"
            if fatal is None and system == "Firmware":
                story.certainty = LIKELY  # registers alone may be a status display
                story.headline = f"{system}: fault registers say {short}"
        claim, lines = _claim_without_detail(case, what, kind, fatal, register, lines)
        if at and register and _tells_access(register):
            claim = f"{claim.rstrip('.')}, at address {at}."
    story.conclude("cause", claim, [fault, *lines], knowledge=True)
    if register is not None:
        tell_register(story, register)
    _tell_place(case, story, words or (register.meaning if register else ""))
    if fatal is not None:
        story.mark(fatal.line)


def _claim_without_detail(
    case: Case,
    what: str,
    kind: Match | None,
    fatal: Match | None,
    register: Decoded | None,
    lines: list[Line],
) -> tuple[str, list[Line]]:
    if register is not None:
        said = [*lines, register.line]
        if kind is None:
            return f"The fault registers say: {name(_plain(register.meaning), 160)}", said
        return f"{_a(what)}: {name(_plain(register.meaning), 160)}", said
    if fatal is not None:
        if _own_reason(fatal):
            return f"{_a(what)}.", [*lines, fatal.line]
        return f"{_a(what)}: {name(fatal['reason'], 100)}.", [*lines, fatal.line]
    return f"{_a(what)}: {name(_after(case.incident.title), 120)}.", lines


def _tell_place(case: Case, story: Story, words: str) -> None:
    """Tell which instruction the dump names, and how far it can be believed."""
    pc = case.find(_FAULT_PC)
    if pc is None:
        return
    story.mark(pc.line, "where")
    thread = case.find(_THREAD)
    named = thread and thread["thread"] and thread["thread"] != "unknown"
    who = f", in thread {name(thread['thread'])}" if thread and named else ""
    lines = [pc.line, *([thread.line] if thread and who else [])]
    at = pc["pc"] or f"0x{pc['epc']}"
    claim = f"The dump names the instruction at {at}{who}"
    if "stacking error" in words:
        claim += "; the registers could not be saved, so it may be wrong"
    elif "imprecise" in words or "not the culprit" in words:
        claim += "; an imprecise error comes from an earlier one"
    elif int(at, 16) < NULL_PC:
        claim = f"The program counter was {at}{who}: as after a call through a NULL pointer"
    else:
        story.step(f"look up {at} in the ELF of exactly this build")
    story.conclude("observation", f"{claim}.", lines)


def _fault_register(case: Case) -> Decoded | None:
    """Return the register that says most: the one of the fault before that of its escalation."""
    every = ("cfsr", "ufsr", "bfsr", "mmfsr", "mcause", "exccause", "hfsr")
    seen = [d for d in case.decoded if d.name in every and d.line in case.block and _has_bits(d)]
    return min(seen, key=lambda d: every.index(d.name), default=None)


def _has_bits(register: Decoded) -> bool:
    return register.name in ("mcause", "exccause") or int(register.value, 16) != 0


def _tells_access(register: Decoded) -> bool:
    """Tell whether it names an access, whose address then stands beside it."""
    return register.name in ("mcause", "exccause") and bool(_ACCESSED.search(register.meaning))


def _own_reason(fatal: Match | None) -> str:
    """Return why Zephyr gave up if it knows more than that something failed."""
    if fatal is None or re.match(
        r"CPU exception|Unknown error|Kernel (?:oops|panic)", fatal["reason"]
    ):
        return ""
    return name(fatal["reason"], 60)


def _what(kind: Match | None) -> str:
    """Return what the dump calls the fault."""
    if kind is None:
        return "fatal error"
    if vector := kind["vector"]:
        return _ARC_VECTORS.get(int(vector, 16), f"exception of vector {vector}")
    return f"{(kind['kind'] or kind['other']).lower().replace('mpu', 'MPU')} fault"


def _after(title: str) -> str:
    return title.removeprefix("Zephyr fatal error: ").removeprefix("CPU fault: ")


def _plain(text: str) -> str:
    """Return words of a dump in small letters, as they stand in a sentence."""
    return re.sub(r"\b[A-Z](?=[a-z])|^A(?= )", lambda m: m.group().lower(), text)


def _a(what: str) -> str:
    """Return a noun with its article, to begin a sentence."""
    return f"{'An' if re.match(r'[aeio]|un(?!i)|MPU', what) else 'A'} {what}"


_ARC_VECTORS = {  # ARCv2 Programmer's Reference Manual, "Exception Vectors"
    0x1: "memory error", 0x2: "instruction error", 0x3: "machine check",
    0x4: "TLB miss of an instruction fetch", 0x5: "TLB miss of a data access",
    0x6: "protection violation", 0x7: "privilege violation", 0x8: "software interrupt (SWI)",
    0x9: "trap instruction", 0xA: "use of a disabled extension", 0xB: "division by zero",
    0xC: "data cache consistency error", 0xD: "misaligned access",
}  # fmt: skip
_ZEPHYR_FAULT = re.compile(
    r"\*{5} (?P<kind>MPU|BUS|USAGE|HARD|SECURE|DEBUG)[ _]FAULT \*{5}"
    r"|\b(?P<other>Hard|Bus|Usage|MemManage) ?[Ff]ault"
    r"|\*{5} Exception vector: (?P<vector>0x[0-9a-f]{1,4})"
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
_FAULT_ADDRESS = re.compile(
    r"\b(?:(?:BFAR|MMFAR)(?: Address)? *[:=] *|VADDR )(?P<address>0x[0-9a-f]{1,16})\b"
    r"|\b[ms]tval *[:=] *(?:0x)?(?P<tval>[0-9a-f]{1,16})\b"
)
_ACCESSED = re.compile(r"\b(?:load|store|access|page fault|fetch)\b")  # then there is an address
_FAULT_PC = re.compile(
    r"(?:(?:Faulting instruction address \(r15/pc\)|\b(?:pc|[er]ip)) *[:=] *|\*\* +PC )"
    r"(?P<pc>0x[0-9a-f]{1,16})\b|\b[ms]epc *[:=] *(?:0x)?(?P<epc>[0-9a-f]{8,16})\b",
    re.IGNORECASE,
)
_THREAD = re.compile(r"Current thread: 0x[0-9a-f]+(?: \((?P<thread>[^)]+)\))?")
