"""Faults of the daemon itself: no line tells of them, its own state does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serialwatch.agent.offline.case import Case, OwnState, Story
from serialwatch.agent.offline.reflexes.general import LIKELY, SURE, tell_anything
from serialwatch.records import ConclusionKind

MAX_NAMED = 4  # ports or parts in one sentence
# What the system says when a file system takes nothing, as it is while that lasts and afterwards.
_READ_ONLY = "is read-only", "was read-only"
_REASONS: Mapping[str, tuple[str, str]] = {
    "No space left on device": ("is full", "was full"),
    "Disk quota exceeded": ("has no quota left", "had no quota left"),
    "Read-only file system": _READ_ONLY,
}


def tell_log_not_written(case: Case, story: Story) -> None:
    """Tell why logs could not be written, since when, until when, and what that has cost."""
    facts = case.own.facts
    if not facts.get("since"):
        tell_anything(case, story)
        return
    is_over = bool(facts["until"])
    said = facts["problem"].rpartition(": ")[2]
    logs = _joined([*facts["logs"][:MAX_NAMED], *_more(facts["logs_in_all"], "ports")])
    what = f"the log{'s' if facts['logs_in_all'] > 1 else ''} of {logs}"
    could = "could not" if is_over else "cannot"
    lasts = (
        f"from {_at(facts['since'])} to {_at(facts['until'])}, for {facts['lasted']}"
        if is_over
        else f"since {_at(facts['since'])}, for {facts['lasted']} when this was written"
    )
    _say(case, story, "observation", f"T{what[1:]} {could} be written {lasts}: {said}.")
    if facts["database"]:
        why = facts["database"].removeprefix("cannot be written: ")
        nor = "could" if is_over else "can"
        _say(case, story, "observation", f"Nor {nor} the database: {why}.")
    reasons = _REASONS.get(said)
    how = (
        reasons[is_over] if reasons else f"{'did' if is_over else 'does'} not take what is written"
    )
    story.headline = f"The disk {how}: {what} {could} be written"
    story.certainty = LIKELY
    disk = facts["disk"]
    if reasons:
        story.certainty = SURE
        _say(case, story, "cause", f"The file system {how}{_place(disk)}.")
    _tell_room(case, story, disk, is_over=is_over)
    if not is_over and how == _READ_ONLY[0]:
        story.step(f"look in the PC's own `dmesg` why {disk.get('mount') or 'it'} is read-only")
    elif not is_over and reasons:
        _tell_remedy(story, disk)
    _tell_cost(case, story, facts, is_over=is_over)


def knows_why(own: OwnState) -> bool:
    """Tell whether the daemon's own state names the cause: no page has to guess then."""
    return str(own.facts.get("problem", "")).rpartition(": ")[2] in _REASONS


def _tell_room(case: Case, story: Story, disk: Mapping[str, Any], *, is_over: bool) -> None:
    """Tell how full the file system is, and with what."""
    if "total" not in disk:
        story.unknowns.append("how full the disk is: nothing could be learned of its folder")
        return
    now = " by now" if is_over else ""
    words = f"{disk['free']} of {disk['total']} are free there{now} ({disk['used_percent']} % used)"
    if disk["free_files"] == 0:
        words += ", and it has no room for one more file"
    _say(case, story, "observation", f"{words}.")
    parts = [f"{part['name']} {part['size']}" for part in disk["parts"][:MAX_NAMED]]
    words = f"The largest parts of {disk['folder']}: {_joined(parts)}"
    if disk["others_bytes"]:
        words += f"; files of others take {disk['others']} of that file system"
    _say(case, story, "observation", f"{words}.")


def _tell_remedy(story: Story, disk: Mapping[str, Any]) -> None:
    """Tell where room can be made: in our own folder, or elsewhere on that file system."""
    if not disk.get("parts"):
        return
    largest = disk["parts"][0]
    where = disk["mount"] or disk["folder"]
    if largest["bytes"] >= disk["others_bytes"]:
        story.step(f"make room at {where}: {largest['name']} takes most, {largest['size']}")
    else:
        story.step(f"make room at {where}: most of it, {disk['others']}, is not serialwatch's")


def _tell_cost(case: Case, story: Story, facts: Mapping[str, Any], *, is_over: bool) -> None:
    """Tell what waits in memory, and what was given up."""
    if not is_over:
        held = _counts(facts["held"])
        words = f"Ports are still read: {facts['held_in_all']} wait in memory"
        words += f" ({held})" if held else ""
        if facts["unsaved"]:
            words += f", and {facts['unsaved']} incidents and reports"
        _say(case, story, "observation", f"{words}.")
    so_far = "in that time" if is_over else "so far"
    lost = _counts(facts["lost"], is_exact=True)
    if not lost:
        _say(case, story, "observation", f"No byte was given up {so_far}.")
        return
    words = f"Given up {so_far}, since memory was full: {lost}."
    _say(case, story, "observation", words + (" The logs mark the place." if is_over else ""))


def _say(case: Case, story: Story, kind: ConclusionKind, claim: str) -> None:
    story.conclude(kind, claim, [], results=[case.own.result])


def _place(disk: Mapping[str, Any]) -> str:
    if not disk.get("mount"):
        return f" on which {disk['folder']} is"
    return f": {disk['mount']} ({disk['type']})"


def _counts(rows: Sequence[Mapping[str, Any]], *, is_exact: bool = False) -> str:
    size = "{bytes} bytes of {port}" if is_exact else "{size} of {port}"
    named = [size.format_map(row) for row in rows[:MAX_NAMED]]
    return _joined([*named, *_more(len(rows), "ports")])


def _more(count: int, what: str) -> list[str]:
    return [f"other {what}"] if count > MAX_NAMED else []


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _at(iso: str) -> str:
    """Return a time of the daemon as people read it."""
    return f"{iso[:10]} {iso[11:19]} UTC"
