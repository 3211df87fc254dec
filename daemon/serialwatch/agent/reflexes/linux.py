"""Oops, panic and interrupts of the Linux kernel."""

from __future__ import annotations

import re

from serialwatch.agent.case import Case, Story, name
from serialwatch.agent.device_text import readable
from serialwatch.agent.reflexes.general import (
    LIKELY,
    SURE,
    is_null,
    tell_anything,
    tell_registers,
    tell_without_line,
)
from serialwatch.records import Line


def tell_oops(case: Case, story: Story) -> None:
    """Tell of a kernel oops: which address, in which function, and what became of it."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    access = case.find(_BAD_ACCESS)
    where = case.find(_WHERE)
    task = case.find(_TASK)
    place = f" in {name(where['symbol'])}" if where else ""
    module = f" (module {name(where['module'])})" if where and where["module"] else ""
    story.certainty = SURE
    if access is not None:
        lines = [fault, access.line, *([where.line] if where else [])]
        null = is_null(access["address"])
        story.headline = (
            f"Kernel oops: NULL pointer dereference{place}" if null else f"Kernel oops{place}"
        )
        story.conclude("cause", _access_words(access["address"], place + module), lines)
    else:
        story.headline = f"{case.incident.title}{place}"
        story.conclude(
            "cause",
            f"The kernel stopped{place}{module}: {name(case.incident.title, 120)}.",
            [fault, *([where.line] if where else [])],
        )
    if where is not None:
        story.mark(where.line, "where")
        story.step("resolve that place with the vmlinux of exactly this build")
    if task is not None:
        story.mark(task.line)
        story.conclude(
            "observation",
            f"{name(task['comm'])} was running (PID {task['pid']}) on CPU {task['cpu']}.",
            [task.line],
        )
    tell_registers(case, story)
    if (panic := case.find(_PANIC)) is not None and panic.line.seq > fault.seq:
        story.mark(panic.line, "its consequence")
        story.headline += ", then panic"
        story.conclude(
            "inference", f"The oops became a panic: {name(panic['why'], 120)}.", [fault, panic.line]
        )


def tell_panic(case: Case, story: Story) -> None:
    """Tell of a kernel panic that no oops came before."""
    fault = case.fault
    panic = case.find(_PANIC)
    if fault is None or panic is None:
        tell_oops(case, story)
        return
    story.certainty = SURE
    why = name(panic["why"], 120) or "no reason given"
    story.headline = f"Kernel panic: {name(panic['why'], 60)}" if panic["why"] else "Kernel panic"
    story.mark(panic.line, "the panic")
    exit_code = case.register("exitcode")
    if exit_code is not None:
        story.headline = "Kernel panic: init ended"
        story.conclude(
            "cause",
            f"The kernel's first process ended. {exit_code.claim}",
            [panic.line, exit_code.line],
            decoded=[exit_code],
            knowledge=True,
        )
    elif root := case.find(_NO_ROOT, case.lines):
        story.conclude(
            "cause",
            f"The kernel could not mount its root file system: {name(root.text[-100:], 100)}.",
            [root.line, panic.line],
            knowledge=True,
        )
    else:
        story.conclude("cause", f"The kernel stopped itself: {why}.", [panic.line])
    for line in _words_before(case, panic.line, 2):
        story.mark(line)


def tell_irq(case: Case, story: Story) -> None:
    """Tell of an interrupt line that the kernel gave up on."""
    if not _tell_nobody_cared(case, story):
        tell_storm(case, story)


def tell_storm(case: Case, story: Story) -> None:
    """Tell of something that comes far too often: an interrupt, or one repeated line."""
    story.headline = case.incident.title
    story.certainty = LIKELY
    fault = case.fault
    if fault is None:
        tell_without_line(case, story)
        return
    samples = [line for seq in _samples(case) if (line := case.line(seq))]
    claim = f"Too often: {name(case.incident.title, 180)}."
    story.conclude("observation", claim, [fault, *samples[-1:]], knowledge=True)
    if (top := case.find(_STORM_IRQ)) is not None:
        claim = f"irq {top['irq']} came most often, {top['count']} times: it keeps the CPU busy."
        story.conclude("cause", claim, [fault, top.line])
        story.mark(top.line, "the busiest")
    headline = story.headline
    _tell_nobody_cared(case, story)
    story.headline = headline


def _tell_nobody_cared(case: Case, story: Story) -> bool:
    """Tell that the kernel switched an interrupt off, and whose; False if it did not."""
    nobody = case.find(_NOBODY_CARED)
    if nobody is None:
        return False
    irq = nobody["irq"]
    off = case.find(_IRQ_OFF)
    story.certainty = SURE
    story.headline = f"IRQ {irq} was disabled: nobody cared"
    claim = f"Interrupts kept coming on IRQ {irq} and no handler claimed them"
    claim += "; the kernel switched the line off." if off else "."
    story.mark(nobody.line)
    story.conclude("cause", claim, [nobody.line, *([off.line] if off else [])], knowledge=True)
    listed = case.find(_HANDLERS)
    handlers = [m for m in case.find_all(_HANDLER) if listed and m.line.seq > listed.line.seq][:3]
    if handlers:
        names = ", ".join(dict.fromkeys(name(m["symbol"], 40) for m in handlers))
        claim = f"The device behind {names} gets no interrupts any more: it is dead or slow now."
        lines = [m.line for m in handlers] + ([off.line] if off else [])
        story.conclude("inference", claim, lines)
        for match in handlers:
            story.mark(match.line, "handler on the line")
    elif listed is not None:
        story.conclude(
            "observation", f"No handler is listed for IRQ {irq}.", [nobody.line, listed.line]
        )
    if off is not None:
        story.mark(off.line, "the line is off from here")
    return True


def _access_words(address: str, where: str) -> str:
    shown = address if address.startswith("0x") else f"0x{address}"
    if is_null(address):
        offset = int(address, 16)
        if offset == 0:
            return f"A NULL pointer was used{where}: address {shown}."
        return f"A NULL pointer was used{where}: address {shown} is a member of a structure at 0."
    return f"The kernel used address {shown}{where}, which is not mapped."


def _samples(case: Case) -> tuple[int, ...]:
    return case.incident.hits[0].samples if case.incident.hits else ()


def _words_before(case: Case, line: Line, count: int) -> list[Line]:
    said = [x for x in case.lines if x.seq < line.seq and readable(x.raw).strip()]
    return said[-count:]


_BAD_ACCESS = re.compile(
    r"(?:Unable to handle kernel [\w -]{3,60} (?:at|for)(?: virtual)?(?: address)?:? "
    r"|BUG: kernel NULL pointer dereference, address: "
    r"|BUG: unable to handle [\w -]{3,40} (?:for address|at):? ?)"
    r"(?P<address>(?:0x)?[0-9a-fA-F]{1,16})\b"
)
_WHERE = re.compile(
    r"(?:\bpc : |\bPC is at |\bRIP: [0-9a-f]{4}:|\bepc : )(?P<symbol>[A-Za-z_][\w.$]*)\+0x[0-9a-f]+"
    r"/0x[0-9a-f]+(?: \[(?P<module>\w+)\])?"
)
_TASK = re.compile(r"CPU: (?P<cpu>\d+) (?:UID: \d+ )?PID: (?P<pid>\d+) Comm: (?P<comm>\S+)")
_PANIC = re.compile(r"(?<!end )Kernel panic - not syncing:? ?(?P<why>.*)")
_NO_ROOT = re.compile(r"VFS: (?:Unable to mount root fs on .+|Cannot open root device .+)")
_NOBODY_CARED = re.compile(r"\birq (?P<irq>\d+): nobody cared")
_IRQ_OFF = re.compile(r"Disabling IRQ #(?P<irq>\d+)")
_HANDLERS = re.compile(r"handlers:\s*$")
_HANDLER = re.compile(r"\[<[0-9a-fx]+>\] (?P<symbol>[A-Za-z_][\w.$]*)")
_STORM_IRQ = re.compile(r"#\d+: (?P<count>\d+) +irq#(?P<irq>\d+)")
