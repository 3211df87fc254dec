"""The offline analyst: the same skills by a fixed plan, and reasoning in code. Always a report."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from serialwatch.agent.offline.case import Case, Story, Surroundings, name
from serialwatch.agent.offline.reading import NOWHERE, read_case
from serialwatch.agent.offline.reasoning import (
    MAX_STEPS,
    follows,
    tell_causes,
    tell_chain,
    tell_differences,
    tell_effects,
    tell_intervals,
    tell_neighbours,
    tell_suspects,
    tell_trends,
)
from serialwatch.agent.offline.reflexes.choose import reflex_for
from serialwatch.agent.offline.reflexes.general import LIKELY, SURE, tell_anything, tell_line_before
from serialwatch.agent.offline.resets import tell_the_end
from serialwatch.agent.offline.suspects import Suspect, chain_of, focused, suspects_of
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.queue import Phase
from serialwatch.agent.recall import tell_memories, tell_what_settles_it
from serialwatch.agent.skills.results import why_not
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import untimed
from serialwatch.agent.workers.tools import Call, Tools
from serialwatch.records import (
    SEVERITIES,
    Claims,
    Cost,
    HitCount,
    Incident,
    Report,
    Verdict,
)

OFFLINE = "offline analyst"

MIN_ECHO = 12  # characters of a line that a command must hold
MAX_OTHERS = 3  # other rules of the incident that are told of

log = logging.getLogger(__name__)


async def investigate(
    incident: Incident,
    tools: Tools,
    phase: Phase,
    previous: Report | None,
    around: Surroundings = NOWHERE,
) -> Report:
    """Return a verified report on `incident`; `previous` is its last one.

    A skill that fails makes the report poorer, never absent.
    """
    began_s = time.monotonic()
    case = await read_case(incident, tools, phase, around)
    draft = reason(case)
    checked = verify(draft, tools.ledger, tools.results, incident, tools.pages)
    for no in checked.dropped:
        log.warning(
            "incident %d: our own claim fails: %s %s: %s", incident.id, no.id, no.code, no.why
        )
    return replace(
        checked.report,
        revision=previous.revision + 1 if previous else 1,
        not_checked=(*checked.report.not_checked, *_failures(tools.calls)),
        cost=Cost(skills=len(tools.calls), seconds=round(time.monotonic() - began_s, 3)),
    )


def reason(case: Case) -> Report:
    """Return what the lines of a case tell, not verified yet."""
    incident = case.incident
    suspects = suspects_of(case)
    main = suspects[0]
    case = focused(case, main)
    story = _told_by_reflex(case)
    _name_panic(case, story)
    tell_suspects(case, story, suspects)
    links = chain_of(case, main)
    root = links[-1].root if links else main
    tell_chain(case, story, main, links)
    _tell_old_words(case, story)
    _tell_echo(case, story)
    told = _cited(case, story)
    end = tell_the_end(case, story)
    if end != "silent":  # that it was the last one tells nothing else of a line
        told = _cited(case, story)
    tell_line_before(case, story)
    tell_trends(case, story)
    tell_differences(case, story)
    _tell_before(case, story)
    _tell_other_hits(case, story, told, root)
    tell_effects(case, story, root)
    _tell_recurrence(case, story)
    tell_intervals(case, story)
    tell_neighbours(case, story)
    verdict, confidence = _verdict(case, story)
    if verdict == "inconclusive":
        words = "the cause: there is not enough information, no line that was read shows it"
        story.unknowns.append(words)
    tell_causes(case, story, main, links, is_confirmed=verdict == "confirmed")
    tell_what_settles_it(case, story)
    _tell_limits(case, story)
    return Report(
        incident=incident.id,
        revision=0,
        made_by=OFFLINE,
        title=_title(story.headline, end),
        fault_class=root.trigger,
        severity=incident.severity,
        verdict=verdict,
        confidence=confidence,
        hypotheses=tuple(story.hypotheses),
        conclusions=tuple(story.conclusions),
        timeline=story.timeline,
        unknowns=tuple(dict.fromkeys(story.unknowns)),
        next_steps=tuple(story.steps[:MAX_STEPS]),
        not_checked=tuple(dict.fromkeys(story.not_checked)),
    )


def _told_by_reflex(case: Case) -> Story:
    """Return the story as the reflex for its fault tells it."""
    incident = case.incident
    story = _begun(case)
    try:
        reflex_for(case)(case, story)
    except Exception:  # a reflex met lines that its author did not think of
        log.exception("incident %d: the reflex for %s failed", incident.id, incident.trigger)
        story = _begun(case)
        tell_anything(case, story)
    return story


def _begun(case: Case) -> Story:
    """Return a story that begins with what is remembered."""
    story = Story(case)
    is_silence = case.incident.trigger == "link.silence"
    story.mark(case.fault, "last line" if is_silence else "first fault line")
    tell_memories(case, story)
    return story


def bare_report(incident: Incident, previous: Report | None, why: str) -> Report:
    """Return the report that is left when the analysis itself failed: what is known without it."""
    return Report(
        incident=incident.id,
        revision=previous.revision + 1 if previous else 1,
        made_by=OFFLINE,
        title=incident.title,
        fault_class=incident.trigger,
        severity=incident.severity,
        verdict="inconclusive",
        confidence=0.1,
        not_checked=(f"everything but the rule that matched: {why}",),
        claims=Claims(0, 0),
    )


def _name_panic(case: Case, story: Story) -> None:
    """Say in the title that a fault of another name ended in a kernel panic."""
    later = (h for h in case.incident.hits[1:] if h.first_seq > case.incident.first_seq)
    if "panic" not in story.headline.lower() and any(h.trigger in _PANICS for h in later):
        story.headline += ", then panic"


_PANICS = frozenset({
    "linux.panic", "linux.panic_init_killed", "linux.panic_vfs_root", "linux.panic_no_init",
})  # fmt: skip


def _tell_old_words(case: Case, story: Story) -> None:
    """Tell that the lines were printed by a command that shows logs or files."""
    fault, shown = case.fault, case.shown_by
    if fault is None or shown is None:
        return
    story.certainty = min(story.certainty, LIKELY)
    story.mark(shown.line, "the command")
    claim = (
        f"`{name(shown['command'])}` was typed before it: these lines may be a record of an "
        "earlier fault."
    )
    story.conclude("observation", claim, [shown.line, fault])


def _tell_echo(case: Case, story: Story) -> None:
    """Tell that the fault's words were typed: then they show no more than that."""
    fault, command = case.fault, case.command
    if fault is None or command is None or command.line.seq >= fault.seq:
        return
    said = " ".join(untimed(readable(fault.raw)).split())
    if len(said) < MIN_ECHO or said not in " ".join(command["command"].split()):
        return
    story.certainty = min(story.certainty, LIKELY)
    words = "The command that was typed before it holds the very words of this line: an echo."
    story.conclude("observation", words, [command.line, fault])


def _tell_before(case: Case, story: Story) -> None:
    """Show the last words before the fault, unless a reflex showed better ones."""
    first = case.incident.first_seq
    own = {seq for hit in case.incident.hits for seq in (hit.first_seq, *hit.samples)}
    if any(entry.seq < first for entry in story.timeline if entry.port == case.incident.port):
        return
    before = [
        x
        for x in case.lines
        if x.seq < first and x.seq not in own and _says_something(readable(x.raw))
    ]
    for line in before[-1:]:
        story.mark(line, "the line before")


def _says_something(text: str) -> bool:
    """Tell whether a line has words, other than those of a line that only divides."""
    is_divider = re.search(r"-{3}.*\bcut here\b", text, re.IGNORECASE)
    return not is_divider and re.search(r"[A-Za-z]{2}", untimed(text)) is not None


def _cited(case: Case, story: Story) -> set[int]:
    """Return the lines of the incident's port that conclusions cite."""
    return {e.seq for c in story.conclusions for e in c.evidence if e.port == case.incident.port}


def _tell_other_hits(case: Case, story: Story, told: set[int], root: Suspect) -> None:
    """Tell what other rules of this incident matched, but for lines that were `told` of."""
    others = [hit for hit in case.incident.hits[1:] if _is_worth(case, hit, told)]
    worst = sorted(others, key=lambda hit: -SEVERITIES.index(hit.severity))[:MAX_OTHERS]
    for hit in others:
        line = case.line(hit.first_seq)
        if line is None or hit not in worst:
            continue
        story.mark(line, hit.trigger)
        # The others may name another unit or another address: only the first has this title.
        more = f": the first of {hit.count} such lines" if hit.count > 1 else ""
        told_of = f"{name(hit.title, 160)}{more}."
        if root.line is not None and follows(case, hit, root):
            words = f"As a consequence of it: {told_of}"
            story.conclude("inference", words, [line, root.line])
        else:
            story.conclude("observation", f"Also: {told_of}", [line])
    if len(others) > len(worst):
        rest = dict.fromkeys(hit.trigger for hit in others if hit not in worst)
        story.not_checked.append(f"what else was recognised here: {name(', '.join(rest), 200)}")


def _is_worth(case: Case, hit: HitCount, cited: set[int]) -> bool:
    """Tell whether another rule's match says something that no conclusion has yet."""
    if case.line(hit.first_seq) is None or hit.first_seq in cited:
        return False
    if hit.severity == "note" or hit.tier == "generic":
        return False
    is_near = case.incident.block_first <= hit.first_seq <= case.incident.last_seq
    return is_near or hit.severity in {"error", "critical"}


def _tell_recurrence(case: Case, story: Story) -> None:
    """Tell how often the same fault was there before."""
    incident = case.incident
    fault = case.fault or next((x for x in case.lines if readable(x.raw).strip()), None)
    if fault is None:
        return
    if incident.count > 1:
        # One fault may be told by several lines: their number is not how often it happened.
        words = f"{incident.count} lines of this incident tell of it."
        if case.fault is None:  # a detector's, which no line carries
            words = f"It was reported {incident.count} times in this incident."
        story.conclude("observation", words, [fault])
    if incident.seen_before:
        ids = ", ".join(f"#{earlier}" for earlier in incident.seen_before[:5])
        times = len(incident.seen_before)
        story.conclude(
            "observation",
            f"Seen before: {times} {'time' if times == 1 else 'times'} on this bench ({ids}).",
            [fault],
            results=[case.recalled_result],
        )


def _tell_limits(case: Case, story: Story) -> None:
    """Say what this report did not look at."""
    first = case.incident.block_first or case.incident.first_seq
    if first and not any(line.seq >= first for line in case.lines):
        story.not_checked.append("the lines of the fault: the log could not be read")
    holes = [(a, b) for a, b in pairwise(case.block) if b.seq - a.seq > 1]
    if holes:
        story.not_checked.append(
            f"the middle of the fault's lines (L{holes[0][0].seq} to L{holes[0][1].seq})"
        )
    if not case.incident.is_settled:
        story.not_checked.append("what follows: the fault was still going on")


def _title(headline: str, end: str) -> str:
    """Return what happened and what became of the board, in one line."""
    is_told = "over and over" in headline or (
        end in {"halted", "silent"} and re.search(r"\b(?:halt|stop|silent|silence)", headline)
    )
    if end and not is_told:
        joined = " and " if " took " in headline or ", then " in headline else ", then "
        headline = f"{name(headline, 119 - len(joined + end))}{joined}{end}"
    return name(headline, 120)


def _verdict(case: Case, story: Story) -> tuple[Verdict, float]:
    has_cause = any(c.kind == "cause" for c in story.conclusions)
    if has_cause and story.certainty >= SURE and case.incident.is_settled:
        return "confirmed", SURE
    if has_cause or story.certainty >= LIKELY:
        return "likely", min(story.certainty, 0.75 if has_cause else LIKELY)
    return "inconclusive", min(story.certainty, 0.4)


def _failures(calls: Sequence[Call]) -> list[str]:
    failed = dict.fromkeys(
        f"what {call.skill} would have told: {why_not(call.result)}"
        for call in calls
        if not call.is_good
    )
    return list(failed)
