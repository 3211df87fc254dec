"""A panic of an Espressif chip, and any board that starts over and over."""

from __future__ import annotations

import re
from collections.abc import Sequence

from serialwatch.agent.offline.case import Case, Story, name
from serialwatch.agent.offline.reflexes.general import (
    LIKELY,
    SURE,
    is_null,
    tell_anything,
    tell_loop,
    tell_own_words,
    tell_register,
)
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line

MAX_PANIC = 120  # lines of one panic, as the rule has it


def tell_esp_panic(case: Case, story: Story) -> None:
    """Tell of a panic of an Espressif chip: why, where, and whether it loops."""
    is_loop = case.incident.trigger == "boot.loop"  # the panic comes before its lines
    fault = case.find(_GURU, case.lines if is_loop else case.block)
    if fault is None:
        tell_anything(case, story)
        tell_loop(case, story)
        return
    story.certainty = SURE
    reason = name(fault["reason"], 60)
    core = f" on core {fault['core']}" if fault["core"] else ""
    story.headline = f"ESP panic{core}: {reason}"
    own = _own_lines(case, fault.line)
    seqs = {line.seq for line in own}
    address = case.find(_EXCVADDR, own)
    cause = case.register("exccause") or case.register("mcause")
    cause = cause if cause and cause.line.seq in seqs else None
    access = _access(reason)
    if address is not None and access and is_null(address["address"]):
        story.headline = f"ESP panic: {access} through a NULL pointer ({reason})"
        words = f"A {access} through a pointer near NULL, at {address['address']}: {reason}."
        story.conclude("cause", words, [fault.line, address.line], knowledge=True)
    elif address is not None and access:
        words = f"A {access} at address {address['address']}, which is not allowed: {reason}."
        story.conclude("cause", words, [fault.line, address.line], knowledge=True)
    else:
        story.conclude("cause", f"The chip panicked: {reason}.", [fault.line], knowledge=True)
    if cause is not None and not re.match(_NO_EXCEPTION, reason):
        tell_register(story, cause)
    _tell_backtrace(case, story, own)
    tell_loop(case, story, fault.line)


def tell_esp_words(case: Case, story: Story) -> None:
    """Tell of what the chip itself names: an abort, a brownout, a damaged heap."""
    if case.find(_GURU) and not case.incident.trigger.startswith(_NAMED):
        tell_esp_panic(case, story)
        return
    tell_own_words(case, story)
    _tell_backtrace(case, story, case.block)
    tell_loop(case, story)


def tell_boot_loop(case: Case, story: Story) -> None:
    """Tell of a board that starts over and over; the fault in it, if it shows one."""
    if case.find(_GURU, case.lines):
        tell_esp_panic(case, story)
        return
    story.headline = case.incident.title
    story.certainty = LIKELY
    tell_loop(case, story)
    if not story.conclusions and case.fault is not None:
        story.conclude("observation", f"{name(case.incident.title, 180)}.", [case.fault])
    for hit in case.incident.hits[1:]:
        if (line := case.line(hit.first_seq)) is not None:
            story.mark(line, hit.trigger)
            story.conclude("observation", f"Before a restart: {name(hit.title, 180)}.", [line])
            break


def _own_lines(case: Case, first: Line) -> list[Line]:
    """Return the lines of the panic that begins with `first`, up to the next one or a boot."""
    own: list[Line] = []
    for line in case.lines:
        if line.seq < first.seq:
            continue
        text = readable(line.raw)
        if line.boot != first.boot or (own and _GURU.search(text)):
            break
        own.append(line)
        if _END.search(text):
            break
    return own[:MAX_PANIC]


def _tell_backtrace(case: Case, story: Story, own: Sequence[Line]) -> None:
    if trace := case.find(_BACKTRACE, own):
        story.mark(trace.line, "backtrace")
        story.step("decode the backtrace with the ELF of exactly this build")


def _access(reason: str) -> str:
    """Return how the panic reason says an address was used, "" if it is about none."""
    for word, access in (("Load", "read"), ("Store", "write"), ("Instr", "jump")):
        if re.match(rf"{word}\w*(?:Prohibited| access fault)", reason):
            return access
    return ""


_NAMED = ("esp.stack_overflow", "esp.int_wdt")  # these say more than the panic they end in
# Reasons that ESP-IDF makes up itself: the cause register has a number of its own then.
_NO_EXCEPTION = r"Unhandled debug|Interrupt wdt|Cache |Stack protection|Double exception"
_GURU = re.compile(
    r"Guru Meditation Error(?:: Core +(?P<core>\d+) panic'ed \(| of type )(?P<reason>[^)]*?)"
    r"(?:\)| occurred on core)"
)
_END = re.compile(r"^\s*Rebooting\.\.\.|CPU halted")
_EXCVADDR = re.compile(r"\b(?:EXCVADDR|MTVAL) *: *(?P<address>0x[0-9a-f]{1,8})\b")
_BACKTRACE = re.compile(r"\bBacktrace: ?0x[0-9a-f]+")
