"""A board that started again while it was running."""

from __future__ import annotations

from serialwatch.agent.offline.case import Case, Story, name
from serialwatch.agent.offline.reflexes.general import LIKELY, WEAK, tell_loop, tell_without_line
from serialwatch.agent.offline.resets import cause_of_boot, meaning_of
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line

MAX_BEFORE = 2  # last words that are shown


def tell_unexpected_reboot(case: Case, story: Story) -> None:
    """Tell what a board says about a restart that nobody asked for."""
    story.headline = case.incident.title
    story.certainty = WEAK
    banner = case.fault
    if banner is None:
        tell_without_line(case, story)
        return
    said = [x for x in case.lines if x.seq < banner.seq and readable(x.raw).strip()]
    for line in said[-MAX_BEFORE:]:
        story.mark(line, "its last words before")
    story.conclude(
        "observation",
        "The board started anew here; no line before it announces that.",
        [*said[-1:], banner],
        knowledge=True,
    )
    cause = cause_of_boot(case, banner)
    if cause is not None and (text := cause["text"] or cause["name"]):
        story.mark(cause.line, "reset cause")
        meaning = meaning_of(text)
        words = f"The board itself names the reset: {name(text)}"
        story.conclude("inference", f"{words}{f', {meaning}' if meaning else ''}.", [cause.line])
        story.certainty = LIKELY if meaning else WEAK
        if not meaning:
            story.unknowns.append("what that reset cause means: it names several things")
    else:
        story.unknowns.append(
            "what reset the board: it prints no cause; a watchdog without a message, the supply "
            "and a reset button look alike here"
        )
    tell_loop(case, story)
    if cut := _cut_short(said):
        story.conclude("observation", "Its last line before was cut short.", [cut])


def _cut_short(said: list[Line]) -> Line | None:
    """Return the last line if it ended in the middle, None if it did not."""
    return said[-1] if said and not said[-1].is_complete else None
