"""An exception in U-Boot."""

from __future__ import annotations

import re

from serialwatch.agent.offline.case import Case, Decoded, Match, Story, name
from serialwatch.agent.offline.reflexes.general import (
    SURE,
    mark_command,
    tell_anything,
    tell_register,
)
from serialwatch.agent.text.device_text import readable


def tell_uboot_abort(case: Case, story: Story) -> None:
    """Tell of an exception in U-Boot: what ran, what the CPU says about it."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    esr = case.register("esr")
    kind = case.incident.fields.get("kind", "Synchronous Abort")
    what = "an SError (bus error)" if kind == "Error" else "a synchronous abort"
    story.certainty = SURE
    command = case.command
    if command is not None:
        program = name(command["command"].split()[0], 30)
        story.headline = f"U-Boot took {what} in `{program}`"
        mark_command(case, story, command)
        far = case.incident.fields.get("far", "")
        story.conclude("cause", _accused(command, esr, far), [command.line, fault])
        _tell_variables(case, story, command)
    else:
        story.headline = f"U-Boot took {what}"
        words = esr.claim if esr else f"U-Boot took {what} while it ran by itself."
        story.conclude("cause", words, [fault], decoded=[esr] if esr else [], knowledge=True)
    if esr is not None and command is not None:
        tell_register(story, esr)
        if (holder := _holder(case, command)) is not None:
            story.mark(holder.line)
            story.conclude(
                "observation",
                f"{holder['register']} holds that very address.",
                [holder.line, command.line],
            )
    if pc := case.find(_UBOOT_RELOC):
        story.mark(pc.line, "where, before relocation")
        story.step(f"look up {pc['elr']} (elr before relocation) in u-boot.map of this build")


def tell_uboot_hang(case: Case, story: Story) -> None:
    """Tell of a boot loader that gave up: its last words before say why, in no fixed form."""
    tell_anything(case, story)
    fault = case.fault
    before = [x for x in case.lines if fault and x.seq < fault.seq and readable(x.raw).strip()]
    for line in before[-2:]:
        story.mark(line, "its last words")
    if before:
        said = name(readable(before[-1].raw), 100)
        story.conclude("observation", f"The line before it is: {said}.", before[-1:])


def _accused(command: Match, esr: Decoded | None, far: str) -> str:
    """Return the claim that a typed command did it; `far` is the address if it was printed."""
    typed = name(command["command"], 80)
    found = _ADDRESS.search(command["command"])
    accessed = found.group() if found and _ACCESSES.match(command["command"]) else ""
    address = far or accessed
    fields = esr.fields if esr else {}
    if address and "WnR" in fields:
        way = "A write to" if fields["WnR"].startswith("1") else "A read from"
        is_unmapped = "translation fault" in fields.get("DFSC", "")
        failed = "was not mapped" if is_unmapped else "was refused"
        return f"{way} {address} {failed}: the abort came right after the command `{typed}`."
    return f"The abort came right after the command `{typed}`."


def _tell_variables(case: Case, story: Story, command: Match) -> None:
    """Tell where a variable of the command got its value, if that was typed too."""
    for variable in re.findall(r"\$\{?(\w{1,40})\}?", command["command"])[:2]:
        wanted = re.compile(rf"\bsetenv {variable} +(?P<value>\S.{{0,60}})")
        before = [line for line in case.lines if line.seq < command.line.seq]
        if (found := case.find(wanted, before[::-1])) is not None:
            story.mark(found.line, f"sets {variable}")
            story.conclude(
                "observation",
                f"{variable} had been set to {name(found['value'])}.",
                [found.line, command.line],
            )


def _holder(case: Case, command: Match | None) -> Match | None:
    """Return the line of the dump in which a register holds the address that was typed."""
    if command is None:
        return None
    address = _ADDRESS.search(command["command"])
    if address is None:
        return None
    wanted = int(address.group(1), 16)
    for match in case.find_all(_PAIRS):
        for pair in _PAIR.finditer(match.text):
            if int(pair.group("value"), 16) == wanted:
                return Match(match.line, match.text, {"register": pair.group("register")})
    return None


_ACCESSES = re.compile(r"(?:md|mw|mm|nm)(?:\.[bwlq])? ")  # what follows is accessed
_UBOOT_RELOC = re.compile(r"\belr: (?P<elr>[0-9a-f]{8,16}) lr ?: [0-9a-f]+ \(reloc\)")
_PAIRS = re.compile(r"\b(?:x\d{1,2}|r\d{1,2}) *: ?[0-9a-f]{8,16}\b")
_PAIR = re.compile(r"\b(?P<register>[xr]\d{1,2}) *: ?(?P<value>[0-9a-f]{8,16})\b")
_ADDRESS = re.compile(r"\b(?:0x)?([0-9a-fA-F]{6,16})\b")
