"""Who reset the board: itself, its watchdog, its supply, or nobody who said so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from serialwatch.agent.offline.case import Case, Decoded, Match, Story, name
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import untimed
from serialwatch.records import Line

QUIET_NS = 60_000_000_000  # of silence: that is what "halted" means
AFTER_END = 20  # lines behind a fault that may still tell how it ended
NEAR_START = 20  # lines in which a start tells why


def tell_the_end(case: Case, story: Story) -> str:
    """Add how it went on after the fault; return the word for the title, e.g. "reset"."""
    boot = case.next_boot if case.incident.outcome != "continued" else None  # no end of this fault
    announced = _announcement(case, boot)
    if announced is not None:
        story.mark(announced.line)
    if boot is not None:
        story.mark(boot, f"boot #{boot.boot}")
        return _tell_reset(case, story, boot, announced)
    if (cause := _named_later(case)) is not None:  # its start has no banner that is known here
        story.mark(cause.line, "reset cause")
        meaning = meaning_of(cause["text"])
        words = f"The board has started anew and names the reset: {name(cause['text'])}"
        story.conclude("inference", f"{words}{f', {meaning}' if meaning else ''}.", [cause.line])
        return "reset"
    outcome = case.incident.outcome
    if halt := case.find(_HALT, _from_fault(case)):
        story.mark(halt.line, "the end")
        words = "The board says that it stops here: its software does not restart it."
        if outcome == "continued":
            words = "It says that it stops here; more was printed since then."
        story.conclude("observation", words, [halt.line])
        return "" if outcome == "continued" else "halted"
    if announced is not None:
        if outcome is None:
            unknown = "whether the board came up again: its boot had not been seen yet"
            story.unknowns.append(unknown)
        if case.phase == "opened":
            return ""
        _tell_announced(case, story, announced)
        if outcome == "halted":
            _tell_silence(case, story)
        return "announced a reset"
    if outcome == "halted":
        _tell_silence(case, story)
        return "silent"
    if case.phase == "opened":
        story.unknowns.append("how it went on: this was written while the fault was being printed")
    return ""


def _tell_reset(case: Case, story: Story, boot: Line, announced: Match | None) -> str:
    cause = cause_of_boot(case, boot)
    decoded = _decoded(case, cause) if cause else None
    if cause is not None:
        story.mark(cause.line, "reset cause")
    if announced is not None:
        _tell_origin(story, announced, cause, decoded)
        if cause is not None and _DOG.search(cause["text"]):
            words = (
                f"The next boot names the reset cause {name(cause['text'])}: many boards carry "
                "out a reset by their watchdog."
            )
            story.conclude("observation", words, [cause.line])
        return "reset"
    if decoded is not None:
        words = f"The next boot names the reset: {decoded.meaning}"
        story.conclude("inference", words, [cause.line] if cause else [], decoded=[decoded])
        return "reset"
    if cause is not None and (text := cause["text"] or cause["name"]):
        dog = " watchdog" if _DOG.search(text) else ""
        words = f"The next boot names the{dog} reset: {name(text)}."
        story.conclude("inference", words, [cause.line])
        return "reset"
    if (told := _told_by_start(case, boot)) is not None:
        story.mark(told.line, "reset cause")
        words = f"The start that follows tells what reset the board: {told['what']}."
        story.conclude("inference", words, [told.line])
        return "reset"
    if case.incident.outcome_cause == "commanded":
        return "rebooted"
    before = [x for x in case.fault_boot if readable(x.raw).strip()]
    story.unknowns.append(
        "what reset the board: no line announces it; a watchdog without a message, the supply and "
        "a reset button look alike here"
    )
    if before:
        story.conclude(
            "observation",
            "No line before the next boot announces a reset in a form that is known here.",
            [before[-1], boot],
        )
    return "rebooted"


def _told_by_start(case: Case, boot: Line) -> Match | None:
    """Return the line in which the next boot tells its cause in words of its own."""
    incident = case.incident
    pattern, what = _CAUSES_TOLD.get(incident.outcome_cause, (None, ""))
    if pattern is None or abs(boot.seq - incident.outcome_seq) > NEAR_START:
        return None
    near = [x for x in case.lines if boot.seq - 3 <= x.seq <= boot.seq + NEAR_START]
    found = case.find(pattern, near)
    return Match(found.line, found.text, {"what": what}) if found else None


def _named_later(case: Case) -> Match | None:
    """Return the line after the fault in which a board that prints no banner names a reset."""
    incident = case.incident
    if incident.trigger.endswith(".unexpected_reboot") or not incident.first_seq:
        return None
    found = case.find(_PRINTED_CAUSE, [x for x in _from_fault(case) if x.seq > incident.first_seq])
    return found if found and found["text"] else None


def _tell_announced(case: Case, story: Story, announced: Match) -> None:
    """Tell of a reset that was only announced: no line shows that it happened."""
    seconds = int(announced["n"] or 0)
    words = (
        f"The kernel announced that it resets the board {seconds} s later"
        if seconds
        else f"The board announced its reset: {name(untimed(announced.text), 80)}"
    )
    if case.incident.outcome == "continued":
        words += "; more was printed since then, but no start that is known here"
    story.conclude("observation", f"{words}.", [announced.line])


def _tell_silence(case: Case, story: Story) -> None:
    """Tell after which line the board was silent."""
    said = [x for x in case.lines if readable(x.raw).strip()]
    pairs = ((a, b) for a, b in pairwise(said) if a.seq >= case.incident.first_seq)
    gap = next((a for a, b in pairs if b.utc_ns - a.told_utc_ns >= QUIET_NS), None)
    if (last := gap or next(reversed(said), None)) is not None:
        story.mark(last, "last line")
        words = "After this line the board was silent for a minute and more."
        story.conclude("observation", words, [last])


def _tell_origin(
    story: Story, announced: Match, cause: Match | None, decoded: Decoded | None
) -> None:
    words = announced["claim"].format(**{"n": "", **announced.groups})
    lines = [announced.line, *([cause.line] if cause and decoded else [])]
    story.conclude("inference", words, lines, decoded=[decoded] if decoded else [])


def _announcement(case: Case, boot: Line | None) -> Match | None:
    """Return the last line that announces a reset; it may be all that shows the next boot."""
    for line in reversed([*_from_fault(case), *([boot] if boot else [])]):
        text = readable(line.raw)
        for origin in _ORIGINS:
            found = origin.pattern.search(text)
            trigger = case.incident.trigger
            if found and trigger.startswith(origin.packs) and not trigger.startswith(origin.but):
                groups = {k: v for k, v in found.groupdict().items() if v}
                told = {"claim": origin.claim, "said": name(found.group().strip())}
                return Match(line, text, told | groups)
    return None


def _from_fault(case: Case) -> list[Line]:
    """Return the lines that tell how it ended; none of a later fault if the board went on."""
    incident = case.incident
    first, last = incident.first_seq or incident.last_seq, incident.last_seq
    if incident.outcome != "continued":
        last += AFTER_END if incident.is_settled else len(case.lines)
        if case.next_boot is not None:
            last = case.next_boot.seq
    return [line for line in case.fault_boot if first <= line.seq <= last]


def cause_of_boot(case: Case, boot: Line) -> Match | None:
    """Return the line near the start of the next boot in which the board says why it reset.

    Some ROMs print it before their banner, so with the end of the lines before it.
    """
    near = [line for line in case.lines if boot.seq - 3 <= line.seq <= boot.seq + NEAR_START]
    own = [line for line in near if line.boot == boot.boot]
    found = case.find(_PRINTED_CAUSE, own) or case.find(_PRINTED_CAUSE, near)
    if found is None or not found["text"] or _WORD.search(found["text"]):
        return found
    line = case.line(found.line.seq + 1)  # a number alone: its words are in the line below
    words = _LEVEL.sub("", untimed(readable(line.raw))).strip() if line else ""
    is_told = line is not None and line.boot == found.line.boot and _RESET.search(words)
    return Match(line, words, {"text": words}) if line and is_told else None


def meaning_of(text: str) -> str:
    """Return what a printed reset cause means, "" where it names several things or none."""
    found = [meaning for pattern, meaning in _MEANINGS if pattern.search(text)]
    return found[0] if len(found) == 1 else ""


_MEANINGS = (
    (re.compile(r"wdo?g|watchdog|wdt", re.IGNORECASE), "its watchdog"),
    (re.compile(r"brown|\bbor\b|under-?volt", re.IGNORECASE), "its supply dipped"),
    (
        re.compile(r"\bpor\b|power-?on|\bpwr\b", re.IGNORECASE),
        "a power-on: the supply had been off, or somebody cut it",
    ),
    (re.compile(r"\bpin\b|\bext(?:ernal)?\b|button|nrst", re.IGNORECASE), "the reset pin"),
    (re.compile(r"\bsft?w?\b|\bsoft|\bsrst\b|lockup", re.IGNORECASE), "its software"),
)


@dataclass(frozen=True, slots=True)
class _Origin:
    pattern: re.Pattern[str]
    claim: str
    packs: tuple[str, ...] = ("",)  # what the trigger of the incident begins with,
    but: tuple[str, ...] = ()  # or does not


# The last announcement before the next boot counts; the sharper ones first.
_ORIGINS = (
    _Origin(
        re.compile(r"^\s*(?:Resetting CPU \.\.\.|resetting \.\.\.\s*$)"),
        "The reset was U-Boot's own, not a watchdog's.",
    ),
    _Origin(
        re.compile(r"Rebooting in (?P<n>\d+) seconds"),
        "The kernel reset the board itself: its panic time-out was {n} s.",
    ),
    _Origin(
        re.compile(
            r"reboot: (?:Restarting system|machine restart)|^\s*Requesting system reboot"
            r"|systemd-shutdown\[1\]: Rebooting"
        ),
        "Software asked the kernel for the reboot; it was not a watchdog's.",
    ),
    _Origin(
        re.compile(r"\bACPI (?:MEMORY or I/O|PCI) RESET_REG"),
        "The kernel reset the board itself, through ACPI.",
    ),
    _Origin(
        re.compile(r"\bsysrq ?: Resetting", re.IGNORECASE),
        "Somebody reset the board by a SysRq command; it was not a watchdog.",
    ),
    _Origin(
        re.compile(r"softdog: Initiating system reboot"),
        "The kernel's software watchdog reset the board: nobody had fed it in time.",
    ),
    _Origin(
        re.compile(r"^\s*Rebooting\.\.\."),
        "The chip's own panic handler restarted it, in software: not the supply.",
        ("esp.", "boot."),
    ),
    _Origin(
        re.compile(r"(?:fatal_error|os|E): Resetting system"),
        "The firmware's own fatal-error handler reset the board.",
    ),
    _Origin(
        re.compile(r"System will be rebooted due to a fatal error|\*\*\* rebooting\.\.\."),
        "The firmware's own fault handler rebooted the board.",
    ),
    _Origin(
        re.compile(
            r"^\W*(?:[\w-]{1,16}: )?(?:[Ss]ystem |[Dd]evice |[Bb]oard )?(?:is |will )?"
            r"(?:[Rr]ebooting|[Rr]esetting|[Rr]estarting|REBOOTING|RESETTING|RESTARTING)"
            r"(?: (?:the |now|system|device|board|chip|MCU|CPU)){0,3}\W*$"
        ),
        "The firmware itself announced the reset: {said}.",
        but=("linux.", "user.", "systemd.", "android.", "uboot."),
    ),
)

_HALT = re.compile(
    r"Halting system|CPU halted|System halted|\*\*\* halted\.|### ERROR ### Please RESET"
    r"|---\[ end Kernel panic"
)

_PRINTED_CAUSE = re.compile(
    r"rst:(?P<code>0x[0-9a-f]+) ?\((?P<name>\w+)\)"
    r"|rst cause:(?P<esp8266>\d)"
    r"|(?:(?:Reset (?:cause|reason|Status)|reset reason):?"
    r"|\b(?:last|previous) (?:reset|restart|reboot)(?: (?:cause|reason|source))? ?[:=])"
    r" +(?P<text>\S.{0,60})",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?!0x)\b[A-Za-z]{2,}")
_RESET = re.compile(r"reset|\brst|power|\bpor\b|wdo?g|watchdog|brown", re.IGNORECASE)
_LEVEL = re.compile(r"^\s*[A-Z]{4,7}: *")

_DOG = re.compile(r"wdo?g|watchdog|wdt", re.IGNORECASE)
_CAUSES_TOLD = {  # by the cause of the boot that follows
    "watchdog": (_DOG, "its watchdog"),
    "brownout": (re.compile(r"brown|\bbor\b|under-?volt", re.IGNORECASE), "its supply dipped"),
    "power_on": (
        re.compile(r"\bpor\b|power-?on|power on|\bpwr\b", re.IGNORECASE),
        "a power-on",
    ),
}


def _decoded(case: Case, cause: Match) -> Decoded | None:
    """Return what `register-decode` made of the printed reset cause."""
    kind, code = ("rst", cause["code"]) if cause["code"] else ("rst_cause", cause["esp8266"])
    if not code:
        return None
    same = (d for d in case.decoded if d.name == kind and int(d.value, 16) == int(code, 0))
    return next(same, None)
