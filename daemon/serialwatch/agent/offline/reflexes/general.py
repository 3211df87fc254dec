"""What any fault shows: what was typed before it, what registers say, whether it loops."""

from __future__ import annotations

import re
from itertools import pairwise

from serialwatch.agent.knowledge import Page
from serialwatch.agent.offline.case import Case, Decoded, Match, Story, name
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import kernel_s, shape, untimed
from serialwatch.records import OWN_PORT, Line

_OWN_NUMBER = "if the panic reason says so"  # the register alone does not tell
_OF_STARTS = ("rst", "rst_cause")
_EMPTY = "No fault is recorded."  # beside a register that has one it only contradicts
NULL_LIMIT = 0x1000  # an address below is a member of a structure at NULL
LOOP = 3  # starts; of two the first may be when somebody switched the board on
MIN_GAPS = 3  # between restarts, to call them regular
REGULAR = 0.1  # of the period that regular restarts may differ by
MAX_SAMPLES = 4  # of a fault that came several times
DUMP = 12  # lines behind a fault that may be its own
MAX_STARTS = 10  # that a report cites
SOON_S = 2.0  # after a command: right after it
MAX_LATER_S = 60.0  # after a command: it has nothing to do with it
SURE, LIKELY, WEAK = 0.9, 0.6, 0.4  # certainty of the class


def tell_anything(case: Case, story: Story) -> None:
    """Tell of a fault that no reflex knows better: what was printed, where."""
    story.headline = case.incident.title
    story.certainty = WEAK if case.incident.tier == "generic" else LIKELY
    fault = case.fault
    if fault is None:
        tell_without_line(case, story)
        return
    story.conclude("observation", f"The board reports: {name(case.incident.title, 180)}.", [fault])
    tell_command(case, story)
    tell_registers(case, story)


def tell_own_words(case: Case, story: Story) -> None:
    """Tell of a fault whose own message names the cause."""
    fault = case.fault
    if fault is None:
        tell_anything(case, story)
        return
    story.certainty = SURE
    story.headline = case.incident.title
    claim = f"By the board's own words: {name(case.incident.title, 180)}."
    story.conclude("cause", claim, [fault], knowledge=True)
    tell_command(case, story)
    tell_registers(case, story)


def tell_command(case: Case, story: Story) -> None:
    """Tell what was typed right before the fault, if anything was."""
    fault, command = case.fault, case.command
    if fault is None or command is None or command.line.seq >= fault.seq:
        return
    later_s = _seconds_between(case, command.line, fault)
    if later_s >= MAX_LATER_S or _ONLY_SHOWS.match(command["command"]):
        return
    mark_command(case, story, command)
    about = f"{later_s:.0f} s after" if command.line.utc_ns else "after"  # stamps tell no more
    when = "right after" if later_s < SOON_S else about
    claim = f"It came {when} `{name(command['command'])}` was typed."
    story.conclude("observation", claim, [command.line, fault])


def _seconds_between(case: Case, command: Line, fault: Line) -> float:
    """Return how long after a command a fault came, 0 where no clock tells it."""
    if command.utc_ns:
        return (fault.told_utc_ns - (command.last_utc_ns or command.utc_ns)) / 1e9
    earlier = (x for x in reversed(case.lines) if x.seq < command.seq and x.boot == fault.boot)
    stamps = (stamp for x in earlier if (stamp := kernel_s(readable(x.raw))) is not None)
    since, at = next(stamps, None), kernel_s(readable(fault.raw))
    return at - since if at is not None and since is not None else 0.0


def tell_without_line(case: Case, story: Story) -> None:
    """Tell of a fault that no line carries, by the lines around its time."""
    incident = case.incident
    if incident.port == OWN_PORT:  # it prints nothing
        return
    said = [line for line in case.lines if readable(line.raw).strip()]
    before = [line for line in said if line.told_utc_ns <= incident.fault_utc_ns]
    after = [line for line in said if line.told_utc_ns > incident.fault_utc_ns]
    around = [*before[-1:], *after[:1]]
    if not around:
        story.unknowns.append("what the board printed around that time: there is no line")
        return
    for line in before[-1:]:
        story.mark(line, "last line before")
    for line in after[:1]:
        story.mark(line, "first line after")
    claim = f"{name(incident.title, 160)}: around these lines."
    if kernel := incident.fields.get("kernel"):
        claim += f" The PC's kernel said then: {name(kernel, 160)}."
    story.conclude("observation", claim, around)


def tell_loop(case: Case, story: Story, fault: Line | None = None) -> None:
    """Tell how often and how fast the board restarted, if it did more than once.

    `fault` is the line of the fault that the headline names, that of the incident unless given.
    """
    starts = _starts(case)
    if len(starts) < 2:
        return
    cited = starts[:MAX_STARTS]
    gaps_s = sorted((b.utc_ns - a.utc_ns) / 1e9 for a, b in pairwise(cited))
    period_s = gaps_s[len(gaps_s) // 2]
    is_loop = len(cited) >= LOOP
    how_often = f", about every {period_s:.0f} s" if is_loop else f", {period_s:.0f} s apart"
    every = how_often if period_s >= 1 else ""
    more = "more than " if len(starts) > len(cited) else ""
    for start in starts[-3:]:
        story.mark(start, f"boot #{start.boot}")
    is_told = re.search(r"\bloop|over and over", story.headline, re.IGNORECASE)
    if is_loop and not is_told and _comes_again(case, fault or case.fault):
        story.headline += ", over and over"
    claim = f"The board restarted {more}{len(cited)} times in the lines that were read{every}."
    story.conclude("observation", claim, cited)
    if len(gaps_s) >= MIN_GAPS and period_s >= 1:
        is_regular = gaps_s[-1] - gaps_s[0] <= REGULAR * period_s
        how = (
            "at equal intervals, as a watchdog, a timer or always the same crash makes them"
            if is_regular
            else "at varying intervals, which speaks against a watchdog or a timer alone"
        )
        story.conclude("inference", f"The restarts come {how}.", cited)


def _comes_again(case: Case, fault: Line | None) -> bool:
    """Tell whether more than one boot has such a line; what no line carries is of them all."""
    if fault is None or case.incident.trigger.endswith(_RESTARTS):
        return True
    alike = shape(readable(fault.raw))
    return any(x.boot != fault.boot and shape(readable(x.raw)) == alike for x in case.lines)


_RESTARTS = ("boot.loop", ".unexpected_reboot")  # these tell of the restarts themselves


def _starts(case: Case) -> list[Line]:
    """Return the first line with words of each start whose line before was read, too."""
    starts = []
    for at, (earlier, later) in enumerate(pairwise(case.lines), start=1):
        if later.boot > earlier.boot > 0 and later.seq == earlier.seq + 1:
            of_boot = (x for x in case.lines[at : at + 8] if x.boot == later.boot)
            if first := next((x for x in of_boot if readable(x.raw).strip()), None):
                starts.append(first)
    return starts


def tell_line_before(case: Case, story: Story) -> None:
    """Tell after which line the fault comes, if it came several times always after the same."""
    samples = case.incident.hits[0].samples if case.incident.hits else ()
    faults = [line for seq in samples if (line := case.line(seq))]
    alike = [x for x in faults if shape(readable(x.raw)) == shape(readable(faults[0].raw))]
    own = _own_shapes(case)
    alone = [  # what stands right behind a fault is its dump
        *alike[:1],
        *(x for a, x in pairwise(alike) if a.boot != x.boot or x.seq - a.seq > DUMP),
    ]
    pairs = [(before, x) for x in alone[:MAX_SAMPLES] if (before := _before(case, x, own))]
    shapes = {shape(readable(before.raw)) for before, _ in pairs}
    if len(pairs) < 2 or len(shapes) > 1:
        return
    words = name(untimed(readable(pairs[0][0].raw)), 80)
    for before, _ in pairs:
        story.mark(before, "the line before")
    story.conclude(
        "observation",
        f"Each time the last words before it were like `{words}`.",
        [line for pair in pairs for line in pair],
    )


def _before(case: Case, line: Line, own: set[str]) -> Line | None:
    """Return the last line with words before one, of the same boot, that is none of the fault."""
    earlier = (x for x in case.lines if line.seq - 6 <= x.seq < line.seq and x.boot == line.boot)
    said = [x for x in earlier if re.search(r"[A-Za-z]{2}", untimed(readable(x.raw)))]
    return next((x for x in reversed(said) if shape(readable(x.raw)) not in own), None)


def _own_shapes(case: Case) -> set[str]:
    """Return what the lines look like that tell of the fault, or begin its dump."""
    incident = case.incident
    told = {seq for hit in incident.hits for seq in (hit.first_seq, *hit.samples)}
    told.update(range(incident.block_first or incident.first_seq, incident.first_seq + 1))
    return {shape(readable(x.raw)) for x in case.lines if x.seq in told}


def tell_registers(case: Case, story: Story) -> None:
    """Tell what the registers of the dump say."""
    end = _own_end(case)
    block = {line.seq for line in case.block if line.seq <= end}
    told = [
        d
        for d in case.decoded
        if d.line.seq in block
        and _OWN_NUMBER not in d.meaning
        and (d.name not in _OF_STARTS or d.line == case.fault)  # how it ended tells of those
    ]
    empty = [d for d in told if d.meaning == _EMPTY]
    for decoded in told:
        if decoded not in empty or (len(empty) == len(told) and decoded is told[0]):
            tell_register(story, decoded)


def _own_end(case: Case) -> int:
    """Return the line in which another kernel fault of the incident begins its own dump."""
    incident = case.incident
    later = [
        hit.first_seq
        for hit in incident.hits
        if hit.severity == "critical"
        and hit.trigger.startswith("linux.")
        and hit.first_seq > incident.first_seq + DUMP
    ]
    is_kernels = incident.trigger.startswith("linux.") and later
    return min(later) if is_kernels else max(incident.end_seq, *(x.seq for x in case.block), 0)


def tell_register(story: Story, decoded: Decoded) -> None:
    """Tell what one register says."""
    story.mark(decoded.line)
    pages = (page for page in (story.case.page, *story.case.pages.values()) if page)
    cited = [page.id for page in pages if _speaks_of(page, decoded.name)][:1]
    story.conclude("inference", decoded.claim, [decoded.line], decoded=[decoded], pages=cited)


def _speaks_of(page: Page, register: str) -> bool:
    causes = (text for c in page.causes for text in (c.text, c.check))
    said = " ".join((page.title, page.body, *page.do, *page.never, *causes))
    return re.search(rf"\b{re.escape(register)}(?:\b|_)", said, re.IGNORECASE) is not None


def mark_command(case: Case, story: Story, command: Match) -> None:
    """Show the line with the command, and who sent it or that this is not known."""
    if sender := case.around.sent.get(command.line.seq):
        story.mark(command.line, f"the command, sent by {name(sender)}")
        return
    story.mark(command.line, "the command")
    story.unknowns.append(_who_typed(case))


def _who_typed(case: Case) -> str:
    """Return the question of who typed the command, with what is known of it."""
    writer = case.around.writer
    if writer is None:
        return "who typed the command"
    if writer == "":
        return "who typed the command: the port had no writer attached through serialwatch"
    return f"whether the command was typed by {name(writer)}, who was attached as its writer"


_ONLY_SHOWS = re.compile(  # unless what it reads is a device or a driver
    r"(?![^\n]* /(?:dev|proc|sys)/)(?:sudo )?"
    r"(?:logcat|dmesg|journalctl|logread|tail|less|more|watch|h?top|ps|uptime)\b"
)


def is_null(address: str) -> bool:
    """Tell whether a hexadecimal address is NULL, or a member of a structure there."""
    return int(address, 16) < NULL_LIMIT
