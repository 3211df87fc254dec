"""Lost bytes and silence."""

from __future__ import annotations

import re

from serialwatch.agent.offline.case import Case, Story, name
from serialwatch.agent.offline.reflexes.general import (
    LIKELY,
    SURE,
    WEAK,
    tell_anything,
    tell_without_line,
)
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line


def tell_overrun(case: Case, story: Story) -> None:
    """Tell of received bytes that were lost before anybody read them."""
    story.headline = case.incident.title
    story.certainty = LIKELY
    if case.fault is not None:  # the board's own words
        lost = case.find(_OVERRUN)
        if case.incident.count > 1:  # each line has a number of its own
            story.headline = _OF_ONE_LINE.sub("", story.headline)
            lost = None
        times = "once" if lost and lost["n"] == "1" else f"{lost['n']} times" if lost else ""
        count = f" {times}" if lost and lost["n"] else ""
        story.conclude(
            "observation",
            f"The board's own UART lost received bytes{count}: they came faster than its driver "
            "fetched them.",
            [case.fault, *([lost.line] if lost else [])],
            knowledge=True,
        )
        _tell_paste(case, story, case.fault)
        return
    tell_without_line(case, story)
    story.not_checked.append("what the bytes were: what a UART drops is gone")


def _tell_paste(case: Case, story: Story, fault: Line) -> None:
    """Tell that text was pasted into the console right before bytes of it were lost."""
    start_ns = fault.told_utc_ns - PASTE_NS
    typed = [
        x
        for x in case.lines
        if x.seq < fault.seq and x.utc_ns >= start_ns and _TYPED.match(readable(x.raw))
    ]
    if len(typed) < MIN_PASTED:
        return
    for line in (typed[0], typed[-1]):
        story.mark(line, "typed or pasted")
    words = f"{len(typed)} lines were typed within seconds before it, as when text is pasted: "
    cited = typed[-MAX_PASTED:]
    story.conclude(
        "inference",
        f"{words if len(typed) == len(cited) else 'Lines were typed in quick succession: '}"
        "they came faster than the board takes them.",
        [*cited, fault],
    )
    story.step("paste in smaller pieces, or with a delay after each line")


def tell_bit_rate(case: Case, story: Story) -> None:
    """Tell of text at another bit rate than the port reads: who changed it, if a line says so."""
    tell_anything(case, story)
    rate, fault = case.incident.fields.get("rate", ""), case.fault
    changed = case.command
    if fault is None or changed is None or not rate or rate not in changed["command"]:
        return
    story.certainty = SURE
    story.conclude(
        "cause",
        f"The command `{name(changed['command'])}` changed the board's bit rate to {rate}; the "
        "port went on reading at the old one.",
        [changed.line, fault],
        knowledge=True,
    )


def tell_silence(case: Case, story: Story) -> None:
    """Tell of a board that stopped talking: what it said last."""
    story.headline = case.incident.title
    story.certainty = WEAK
    opened = case.incident.fault_utc_ns
    said = [x for x in case.lines if x.utc_ns <= opened and readable(x.raw).strip()]
    if not said:
        tell_without_line(case, story)
        return
    last = said[-1]
    text = readable(last.raw)
    story.mark(last, "last line")
    for line in said[-4:-1]:
        story.mark(line)
    if handed := _HANDED_OVER.search(text):
        story.certainty = LIKELY
        story.headline = "Silent since it handed over to what it loaded"
        story.conclude(
            "inference",
            f"It went silent right after `{name(handed.group())}`: what was started there never "
            "printed.",
            [last],
            knowledge=True,
        )
        story.unknowns.append(
            "whether the program that was started ran without a console or hung at once"
        )
    elif not last.is_complete:
        story.conclude("observation", "It went silent in the middle of this line.", [last])
    else:
        story.conclude("observation", "This was the last line before the silence.", [last])
    story.unknowns.append("whether the board hangs, sleeps, has no power or has nothing to say")
    story.not_checked.append("the supply and the cable (no measurement here)")


PASTE_NS = 3_000_000_000
MIN_PASTED = 4  # lines within that time: nobody types so fast
MAX_PASTED = 6  # of them that are cited
_TYPED = re.compile(  # a kernel's own line may stand behind a prompt
    r"(?:(?:\w[\w.-]*@)?[\w.~/:@-]{1,48} ?[#$>]|[#$>]|=>) +(?!\[ *\d+\.)\S"
)
_OF_ONE_LINE = re.compile(r" \(input overruns: \d+\)$")
_OVERRUN = re.compile(r"(?P<n>\d+) input overrun|overrun", re.IGNORECASE)
_HANDED_OVER = re.compile(
    r"Starting kernel \.\.\.|Jumping to \S+|Loading Ramdisk.*|Run \S+ as init process|DRAM:.*"
    r"|entry 0x[0-9a-f]+"
)
