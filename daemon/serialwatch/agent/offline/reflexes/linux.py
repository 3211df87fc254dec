"""Oops, panic and interrupts of the Linux kernel."""

from __future__ import annotations

import re

from serialwatch.agent.offline.case import Case, Match, Story, name
from serialwatch.agent.offline.reflexes.general import (
    LIKELY,
    SURE,
    is_null,
    tell_anything,
    tell_command,
    tell_registers,
    tell_without_line,
)
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line

HEAD = 8  # lines in which one fault may be named several times, by the kernel's layers


def tell_oops(case: Case, story: Story) -> None:
    """Tell of a kernel oops: which address, in which function, and what became of it."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    own = _own_lines(case, fault)
    access = case.find(_BAD_ACCESS, own if case.incident.trigger == "linux.oops" else [fault])
    where = case.find(_WHERE, own)
    task = case.find(_TASK, own)
    place = f" in {name(where['symbol'])}" if where else ""
    module = f" (module {name(where['module'])})" if where and where["module"] else ""
    story.certainty = SURE
    if access is not None:
        lines = [fault, access.line, *([where.line] if where else [])]
        null = is_null(access["address"])
        story.headline = (
            f"Kernel oops: NULL pointer dereference{place}" if null else f"Kernel oops{place}"
        )
        if not null and not place and case.incident.trigger == "linux.oops":
            story.headline = _sentence(_COUNTER.sub("", case.incident.title))
        why = next((d for d in case.decoded if d.name in {"esr", "fsr"} and d.line in own), None)
        refused = case.find(_NOT_PERMITTED, own)
        lines += [why.line] if why else [refused.line] if refused else []
        words = _access_words(access, place + module, why.meaning if why else "", bool(refused))
        story.conclude("cause", words, lines, decoded=[why] if why else [])
    elif case.incident.trigger in _LATE:
        story.headline = case.incident.title
        story.conclude("cause", f"{_sentence(case.incident.title)}.", [fault])
        if where is not None:
            words = f"The CPU was{place}{module} when it came; the access that failed was earlier."
            story.conclude("observation", words, [fault, where.line])
    else:
        title = _COUNTER.sub("", case.incident.title)
        story.headline = f"{title}{place}"
        story.conclude(
            "cause",
            f"The kernel caught a fault{place}{module}: {name(title, 120)}.",
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


def _own_lines(case: Case, fault: Line) -> list[Line]:
    """Return the lines of the fault's own dump: none of a later one in the same block."""
    own: list[Line] = []
    for line in case.block:
        text = readable(line.raw)
        if line.seq > fault.seq + HEAD and _NEXT_DUMP.search(text):
            break
        own.append(line)
        if line.seq > fault.seq and "---[ end trace" in text:
            break
    return own


def tell_unhandled_fault(case: Case, story: Story) -> None:
    """Tell of a fault that ARM names by its status; the kernel dies of the last of several."""
    tell_anything(case, story)
    fault, death = case.fault, case.find(_DEATH)
    if fault is None or death is None:
        return
    named = [m for m in case.find_all(_UNHANDLED) if m.line.seq < death.line.seq]
    if named and named[-1].line.seq > fault.seq:
        last = named[-1]
        story.headline = f"unhandled fault: {name(last['what'], 60)}"
        words = (
            f"What the kernel died of came later: {name(last['what'], 60)} at {last['address']}."
        )
        story.mark(last.line, "what the kernel died of")
        story.conclude("inference", words, [last.line, death.line])


def tell_panic(case: Case, story: Story) -> None:
    """Tell of a kernel panic that no oops came before."""
    fault = case.fault
    panic = case.find(_PANIC)
    if fault is None or panic is None:
        tell_oops(case, story)
        return
    story.certainty = SURE
    why = name(panic["why"], 120) or "no reason given"
    short = name(panic["why"], 60).rstrip(".!")
    story.headline = f"Kernel panic: {short}" if short else "Kernel panic"
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
    elif root := case.find(_NO_ROOT):
        story.conclude(
            "cause",
            f"The kernel could not mount its root file system: {name(root['said'], 120)}.",
            [root.line, panic.line],
            knowledge=True,
        )
    else:
        story.conclude("cause", f"The kernel stopped itself: {why}.", [panic.line])
        tell_command(case, story)
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
    first = case.line(case.incident.block_first)  # of the two readings that make a rate
    lines = [*([first] if first else []), fault, *samples[-1:]]
    story.conclude("observation", claim, lines, knowledge=True)
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
    handlers = [
        m
        for m in case.find_all(_HANDLER)
        if listed and listed.line.seq < m.line.seq and (off is None or m.line.seq < off.line.seq)
    ][:3]
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


def _access_words(access: Match, where: str, meaning: str, is_refused: bool) -> str:
    """Return what the kernel did with an address; `meaning` is that of the fault register."""
    address = access["address"]
    shown = address if address.startswith("0x") else f"0x{address}"
    for pattern, words in _ACCESSES:
        if pattern.search(access.text):
            return f"{words.format(shown=shown, where=where)}."
    if is_null(address):
        offset = int(address, 16)
        if offset == 0:
            return f"A NULL pointer was used{where}: address {shown}."
        return f"A NULL pointer was used{where}: address {shown} is a member of a structure at 0."
    if is_refused or "permission fault" in meaning:
        return f"The kernel accessed address {shown}{where} in a way that its mapping forbids."
    if "translation fault" in meaning:
        return f"The kernel used address {shown}{where}, which is not mapped."
    return f"The kernel could not access address {shown}{where}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _samples(case: Case) -> tuple[int, ...]:
    return case.incident.hits[0].samples if case.incident.hits else ()


def _words_before(case: Case, line: Line, count: int) -> list[Line]:
    said = [x for x in case.lines if x.seq < line.seq and readable(x.raw).strip()]
    return said[-count:]


_DEATH = re.compile(r"Internal error: ")
_UNHANDLED = re.compile(
    r"Unhandled fault: (?P<what>[^(]{3,60}) \(0x[0-9a-f]+\) at (?P<address>0x[0-9a-f]+)"
)
_NEXT_DUMP = re.compile(
    r"Unable to handle kernel |\bBUG: |\bWARNING: |kernel BUG at |: nobody cared"
)
_BAD_ACCESS = re.compile(
    r"(?:Unable to handle kernel [\w -]{3,60} (?:at|for)(?: virtual)?(?: address)?:? "
    r"|BUG: kernel NULL pointer dereference, address: "
    r"|BUG: unable to handle [\w -]{3,40} (?:for address|at):? ?)"
    r"(?P<address>(?:0x)?[0-9a-fA-F]{1,16})\b"
)
# Accesses that the kernel names itself, none of them to an address without a mapping.
_ACCESSES = (
    (
        re.compile(r"kernel execute from non-executable memory"),
        "The kernel jumped to address {shown}{where}, in memory that may not be executed",
    ),
    (
        re.compile(r"kernel write to read-only memory"),
        "The kernel wrote to address {shown}{where}, in memory that is read-only",
    ),
    (
        re.compile(r"(?:access to|execution of) user memory"),
        "The kernel used address {shown} of user memory{where} without the functions for it",
    ),
)
_NOT_PERMITTED = re.compile(r"#PF: error_code\(0x[0-9a-f]+\) - permissions violation")
_COUNTER = re.compile(r": #\d+$")  # the number of the oops, where it is all that its line says
_LATE = frozenset({"linux.serror"})  # come after the access that failed
_WHERE = re.compile(
    r"(?:\bpc : |\bPC is at |\bEIP: |\bRIP: [0-9a-f]{4}:|\bepc +: (?:[0-9a-f]{8,16} )?)"
    r"(?P<symbol>[A-Za-z_][\w.$]*)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(?P<module>\w+)\])?"
)
_TASK = re.compile(r"CPU: (?P<cpu>\d+) (?:UID: \d+ )?PID: (?P<pid>\d+) Comm: (?P<comm>\S+)")
_PANIC = re.compile(r"(?<!end )Kernel panic - not syncing:? ?(?P<why>.*)")
_NO_ROOT = re.compile(r"VFS: (?P<said>(?:Unable to mount root fs on|Cannot open root device) .+)")
_NOBODY_CARED = re.compile(r"\birq (?P<irq>\d+): nobody cared")
_IRQ_OFF = re.compile(r"Disabling IRQ #(?P<irq>\d+)")
_HANDLERS = re.compile(r"handlers:\s*$")
# The primary handler of a threaded one is the kernel's own and says nothing of the device.
_HANDLER = re.compile(
    r"\[<[0-9a-fx]+>\] (?:irq_default_primary_handler threaded \[<[0-9a-fx]+>\] )?"
    r"(?P<symbol>[A-Za-z_][\w.$]*)"
)
_STORM_IRQ = re.compile(r"#\d+: (?P<count>\d+) +irq#(?P<irq>\d+)")
