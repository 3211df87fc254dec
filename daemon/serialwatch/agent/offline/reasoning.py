"""What code concludes beyond the dump: roots, trends, differences, neighbours, known causes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from serialwatch.agent.knowledge import Cause, Page
from serialwatch.agent.offline.architecture import architecture_of, fitted
from serialwatch.agent.offline.case import Case, Story, name
from serialwatch.agent.offline.reflexes.general import LIKELY, REGULAR, WEAK
from serialwatch.agent.offline.suspects import Link, Suspect, is_any, is_refuted_by, is_shown_by
from serialwatch.agent.offline.trends import trends_of
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import level_of, untimed
from serialwatch.records import HitCount, Hypothesis, Incident, Line

MAX_STEPS = 6
MAX_HYPOTHESES = 5
MAX_TOLD = 2  # differences of one kind, and refuted suspects
MAX_READINGS = 5  # of a trend that are cited
MIN_TIMES = 3  # that a fault came before its intervals tell anything
NEAR = 60  # lines before the fault in which a new line may have to do with it
SAME_SECOND_NS = 1_000_000_000


def tell_suspects(case: Case, story: Story, suspects: Sequence[Suspect]) -> None:
    """Tell which faults of the incident are not its root, and why."""
    main = suspects[0]
    if main.refuted:  # and so is every other
        story.certainty = min(story.certainty, WEAK)
    for suspect in [s for s in suspects if s.refuted][:MAX_TOLD]:
        verb = "may not be real" if suspect is main else "is not the root"
        story.conclude(
            "inference",
            f"{name(suspect.title, 90)} {verb}: {suspect.refuted}.",
            [*suspect.against, *([case.fault] if case.fault else [])],
            results=[suspect.result] if suspect.result else [],
        )
        story.mark(suspect.line, "seen, but not the root")
        text = f"{name(suspect.title, 90)}: {suspect.refuted}"
        story.hypotheses.append(Hypothesis(suspect.trigger, text, 0.05, "refuted"))


def tell_chain(case: Case, story: Story, main: Suspect, links: Sequence[Link]) -> None:
    """Tell what led to the fault, from what a page names as its cause and the lines show."""
    for link in links:
        lines = [x for x in (link.root.line, link.effect.line, main.line) if x is not None]
        story.mark(link.root.line, "came first" if link is links[-1] else "led to it")
        page = case.pages.get(link.effect.trigger)
        where = "" if link.root.port == case.incident.port else f" on {link.root.port}"
        story.conclude(
            "cause",
            f"{name(link.root.title, 90)}{where} came before and can lead to it: "
            f"{name(link.cause.text, 90)}.",
            lines,
            results=[link.root.result] if link.root.result else [],
            pages=[page.id] if page else [],
        )
    if links:
        story.certainty = max(story.certainty, LIKELY)
        story.headline = f"{name(story.headline, 62)}, after {name(links[-1].root.title, 44)}"


def follows(case: Case, hit: HitCount, root: Suspect) -> bool:
    """Tell whether a page knows a fault as a consequence of the root, which came before it."""
    page = case.pages.get(hit.trigger)
    if page is None or (root.port == case.incident.port and hit.first_seq < root.seq):
        return False
    return any(is_any(root.trigger, c.rules) for c in page.causes)


def tell_effects(case: Case, story: Story, root: Suspect) -> None:
    """Tell which other faults of the incident, not told yet, are consequences of the root."""
    told = {e.seq for c in story.conclusions for e in c.evidence if e.port == case.incident.port}
    for hit in case.incident.hits:
        line = case.line(hit.first_seq)
        if line is None or line.seq in told or root.line is None or hit.trigger == root.trigger:
            continue
        if follows(case, hit, root):
            story.mark(line, "a consequence")
            words = f"As a consequence of it: {name(hit.title, 160)}."
            story.conclude("inference", words, [line, root.line])


def tell_trends(case: Case, story: Story) -> None:
    """Tell which number the board printed went one way until the fault."""
    for trend in trends_of(case)[:1]:
        how = "fell" if trend.is_falling else "rose"
        readings = trend.readings
        cited = [readings[0], *readings[1:-1][: MAX_READINGS - 2], readings[-1]]
        for line in (readings[0], readings[-1]):
            story.mark(line, f"{trend.name} {how}")
        claim = f"Up to the fault {name(trend.name, 40)} {how} from {trend.first} to {trend.last}"
        story.conclude("inference", f"{claim} without going back once.", cited)


def tell_differences(case: Case, story: Story) -> None:
    """Tell which lines before the fault the last good boot did not have, and which are missing."""
    compared, fault = case.compared, case.fault
    if compared is None or fault is None or not compared.is_good:
        return
    if compared.parting is not None:
        here, there = compared.parting
        story.mark(here, "parts from the last good boot")
        ours, theirs = (name(untimed(readable(x.raw)), 70) for x in compared.parting)
        story.conclude(
            "observation",
            f"Where the last good boot went on with `{theirs}`, this one printed `{ours}`.",
            [here, there],
            results=[compared.result],
        )
    parted = {line.seq for line in compared.parting or ()}
    new = [
        line
        for line in compared.new
        if line.seq not in parted
        and (level_of(readable(line.raw)) != "note" or fault.seq - line.seq <= NEAR)
    ]
    for line in new[:MAX_TOLD]:
        story.mark(line, "not in the last good boot")
        said = name(untimed(readable(line.raw)), 110)
        story.conclude(
            "observation",
            f"The last good boot did not have this line: {said}.",
            [line],
            results=[compared.result],
        )
    for line in [line for line in compared.missing if line.seq not in parted][:1]:
        said = name(untimed(readable(line.raw)), 110)
        story.mark(line, "only in the last good boot")
        story.conclude(
            "observation",
            f"The last good boot had a line that is missing here: {said}.",
            [line],
            results=[compared.result],
        )


def tell_intervals(case: Case, story: Story) -> None:
    """Tell in how many boots the same fault has come, and at what intervals."""
    recurrence, fault = case.history.recurrence, case.fault
    if recurrence is None or fault is None:
        return
    if recurrence.boots_with:
        words = f"It came in {recurrence.boots_with} of {recurrence.boots_of} boots, this one"
        results = [case.history.result]
        story.conclude("observation", f"{words} included.", [fault], results=results)
    if recurrence.times < MIN_TIMES:
        return
    shortest, longest = recurrence.shortest_s, recurrence.longest_s
    is_regular = longest - shortest <= REGULAR * max(recurrence.median_s, 1.0)
    meaning = (
        "regular, as a timer or a watchdog makes them"
        if is_regular
        else "irregular, so no timer alone"
    )
    story.conclude(
        "inference",
        f"It came {recurrence.times} times, {shortest} to {longest} s apart: {meaning}.",
        [fault],
        results=[case.history.result],
    )


# Boards beside it


@dataclass(frozen=True, slots=True)
class _Shared:
    triggers: tuple[str, ...]  # ends of the triggers that point there
    what: str
    check: str


_SHARED = (
    _Shared(
        (".port_vanished", ".flapping", ".usb_enum_fail", ".usb_overcurrent"),
        "the USB hub or the cable that their adapters share",
        "see whether the ports that failed hang on one hub, and check its supply and cable",
    ),
    _Shared(
        (".brownout", ".unexpected_reboot", ".undervoltage"),
        "their supply: a rail, a power strip, a fuse",
        "measure the supply that these boards share, at the moment when a large load starts",
    ),
    _Shared(
        (".nfs_no_answer", ".net_link_unstable", ".netdev_watchdog", ".net_link_flap"),
        "the network: a switch, a server",
        "check the switch and the server that these boards share",
    ),
)


def tell_neighbours(case: Case, story: Story) -> None:
    """Tell which other boards failed in the same second or nearly, and what they may share."""
    fault = case.fault
    lines = [x for i in case.around.neighbours if (x := case.neighbour_lines.get(i.id))]
    if not lines:
        return
    for line in lines:
        story.mark(line, f"another board, {_when(line.utc_ns - _shown_ns(case))}")
    own = [fault] if fault else []
    alike = [
        i
        for i in case.around.neighbours
        if i.id in case.neighbour_lines and _have_a_common_cause(case.incident, i)
    ]
    others = ", ".join(dict.fromkeys(line.port for line in lines))
    if not alike:
        near = _how_near(case, case.around.neighbours)
        text = f"{others} failed {near}, but in another way: perhaps by chance."
        story.conclude("observation", text, [*own, *lines])
        return
    theirs = [case.neighbour_lines[i.id] for i in alike]
    others = ", ".join(dict.fromkeys(line.port for line in theirs))
    story.conclude(
        "inference",
        f"It was not this board alone: {others} failed {_how_near(case, alike)}.",
        [*own, *theirs],
    )
    shared = _shared_by([case.incident, *alike])
    what = shared.what if shared else "supply, hub, network or a test that drives them all"
    text = f"something the boards share: {what}"
    story.hypotheses.append(Hypothesis(case.incident.trigger, text, 0.7 if shared else 0.5, "open"))
    if shared is not None:
        story.certainty = max(story.certainty, LIKELY)
        story.step(shared.check)


def _shown_ns(case: Case) -> int:
    """Return the time at which the fault is shown."""
    return case.fault.utc_ns if case.fault else case.incident.fault_utc_ns


def _when(later_ns: int) -> str:
    """Return when something came against the fault, by the times that are shown of both."""
    if abs(later_ns) <= SAME_SECOND_NS:
        return "same second"
    return f"{abs(later_ns) / 1e9:.1f} s {'later' if later_ns > 0 else 'earlier'}"


def _how_near(case: Case, others: Sequence[Incident]) -> str:
    """Return how near to the fault those of other boards came.

    Incidents are linked by when they began; what leads one of them may have come later. And a line
    is shown with the time of its first byte, which may be long before it told of a fault.
    """
    known = [(i, line) for i in others if (line := case.neighbour_lines.get(i.id))]
    apart_ns = max(abs(i.fault_utc_ns - case.incident.fault_utc_ns) for i, _ in known)
    shown_ns = max(abs(line.utc_ns - _shown_ns(case)) for _, line in known)
    if max(apart_ns, shown_ns) <= SAME_SECOND_NS:
        return "within the same second"
    if case.fault is None:  # without its line no number of seconds can be checked
        return "at nearly the same time"
    if shown_ns <= SAME_SECOND_NS:
        return "in lines that began within the same second"
    if apart_ns <= SAME_SECOND_NS:
        return f"within the same second, in lines that began {shown_ns / 1e9:.1f} s apart"
    return f"within {shown_ns / 1e9:.1f} s of it"


def _have_a_common_cause(one: Incident, other: Incident) -> bool:
    """Tell whether two boards failed alike, or both in a way that their surroundings explain."""
    return one.trigger == other.trigger or all(
        i.trigger.startswith("link.") or i.trigger.endswith(_FROM_OUTSIDE) for i in (one, other)
    )


_FROM_OUTSIDE = (".unexpected_reboot", ".brownout", ".undervoltage")


def _shared_by(incidents: Sequence[Incident]) -> _Shared | None:
    for shared in _SHARED:
        if all(i.trigger.endswith(shared.triggers) for i in incidents):
            return shared
    return None


# Known causes

_LIKELY = {"high": 0.5, "medium": 0.3, "low": 0.1}
_SHOWN = 0.35  # that a line which shows a cause adds to it
_SURELY = 0.8  # of one that the dump itself shows


def tell_causes(
    case: Case, story: Story, main: Suspect, links: Sequence[Link], *, is_confirmed: bool
) -> None:
    """Add the known causes, ranked anew by what the lines show, and what to do next."""
    found: list[Hypothesis] = []
    cause = next((c for c in story.conclusions if c.kind == "cause"), None)
    if cause is not None and is_confirmed:
        found.append(Hypothesis(main.trigger, cause.claim, round(story.certainty, 2), "confirmed"))
    for link in reversed(links):
        text = f"{name(link.root.title, 90)}: {name(link.cause.text, 90)}"
        score = 0.8 if link is links[-1] else 0.7
        found.append(Hypothesis(link.root.trigger, text, score, "open"))
    page = case.page
    root = links[-1].root if links and links[-1].root.trigger in case.pages else main
    root_page = case.pages.get(root.trigger, page)
    checks: list[str] = []
    if root_page is None:
        story.unknowns.append("what usually causes this: there is no knowledge page for it")
    else:
        told = [link.cause for link in links]
        known = _ranked(case, story, root, root_page, told, is_confirmed=is_confirmed)
        found += known.hypotheses
        checks = known.checks
    story.hypotheses[:] = sorted(
        [*found, *story.hypotheses], key=lambda h: (h.status == "refuted", -h.score)
    )[: MAX_HYPOTHESES + 1]
    _advise(story, root_page, page, checks, _architecture(case))


def _architecture(case: Case) -> str:
    return architecture_of(readable(line.raw) for line in case.block)


@dataclass(frozen=True, slots=True)
class _Known:
    hypotheses: list[Hypothesis]
    checks: list[str]  # of those that are not refuted, likeliest first


def _ranked(
    case: Case,
    story: Story,
    root: Suspect,
    page: Page,
    told: Sequence[Cause],
    *,
    is_confirmed: bool,
) -> _Known:
    """Return the causes of a page in the order in which the lines make them likely."""
    fault = case.fault or root.line
    boot = fault.boot if fault else case.incident.boot
    said = [(line, readable(line.raw)) for line in case.lines if line.boot == boot]
    said += [(d.line, d.meaning) for d in case.decoded if d.line.boot == boot]
    rows: list[tuple[float, Hypothesis, str]] = []
    architecture = _architecture(case)
    for cause in page.causes:
        if cause in told or not fitted(cause.text, architecture):
            continue
        score = _LIKELY.get(cause.likely, 0.2)
        check = _check_of(cause, said)
        if cause.check and not check:
            score *= _NOT_SEEN
        if against := is_refuted_by(cause, said):
            text = f"{cause.text}: L{against.seq} speaks against it"
            rows.append((0.0, Hypothesis(root.trigger, text, 0.05, "refuted"), ""))
            story.mark(against)
            continue
        known = Hypothesis(root.trigger, cause.text, round(score, 2), "open")
        if shown := is_shown_by(cause, said):
            is_sure = is_confirmed and shown in case.block  # the dump itself says so
            score = max(round(score + _SHOWN, 2), _SURELY if is_sure else 0.0)
            known = replace(
                known,
                text=f"{cause.text}: L{shown.seq} speaks for it",
                score=score,
                status="confirmed" if is_sure else "open",
            )
            _tell_sign(case, story, cause, shown, page)
            check = "" if cause.check.startswith("`") else check  # those words were found
        rows.append((score, known, check))
    rows.sort(key=lambda row: -row[0])
    return _Known([h for _, h, _ in rows][:MAX_HYPOTHESES], [check for *_, check in rows if check])


def _check_of(cause: Cause, said: Sequence[tuple[Line, str]]) -> str:
    """Return what a person can do to find out; "" where that is to look for words in the log.

    A hint without a verb stands beside the cause that it is for.
    """
    sought = _SOUGHT.match(cause.check)
    if sought and not any(sought["words"] in text for _, text in said):
        return ""
    if not cause.check or _INSTRUCTS.match(cause.check):
        return cause.check
    return f"for \u201c{name(cause.text)}\u201d: {cause.check}"


_NOT_SEEN = 0.6  # of the odds of a cause, where words that would show it are not in the log
_SOUGHT = re.compile(r"(?:check|look) for `(?P<words>[^`]+)`")
_INSTRUCTS = re.compile(
    r"(?:add|ask|boot|build|call|capture|change|check|compare|confirm|connect|count|decode|diff"
    r"|disable|disconnect|do|drop|dump|enable|erase|examine|exchange|feel|fetch|fill|find"
    r"|flash|follow|forbid|format|get|give|go|hold|insert|inspect|install|keep|leave|let|limit"
    r"|list|load|log|look|lower|make|map|mask|measure|mount|move|note|open|pin|ping|power"
    r"|press|print|probe|pull|push|put|query|r|raise|read|rebuild|record|reduce|remove|repeat"
    r"|replace|reset|run|scan|scope|search|see|set|shorten|show|start|stop|store|subtract|swap"
    r"|switch|symbolize|take|test|time|trace|try|turn|type|unplug|update|use|verify|wait|watch"
    r"|write)(?=[ ,:;]|$)"
)


def _tell_sign(case: Case, story: Story, cause: Cause, shown: Line, page: Page) -> None:
    story.mark(shown, "speaks for a cause")
    causes = [c for c in story.conclusions if c.kind == "cause"]
    if any((e.port, e.seq) == (shown.port, shown.seq) for c in causes for e in c.evidence):
        return  # what the line shows is told
    lines = [shown, *([case.fault] if case.fault else [])]
    claim = f"A line speaks for a known cause: {name(cause.text, 160)}."
    story.conclude("inference", claim, lines, pages=[page.id])


_DECODED = ("decode ", "read CFSR", "read EXCCAUSE", "read MCAUSE", "read mcause")  # that is done


def _advise(
    story: Story, root: Page | None, page: Page | None, checks: Sequence[str], architecture: str
) -> None:
    """Add the next steps: what separates the open causes, what the pages say, what not to do."""
    is_decoded = any(re.search(r" 0x[0-9a-f]+ says: ", c.claim) for c in story.conclusions)
    if root is None:
        return

    def fitting(texts: Sequence[str]) -> list[str]:
        return [words for text in texts if (words := fitted(text, architecture))]

    do, checks = fitting(root.do), fitting(checks)
    advice = [*do[:1], *checks[:2], *do[1:3], *checks[2:3]]  # checks that tell the open ones apart
    if page is not None and page is not root:
        advice += fitting(page.do)[:2]
    for text in advice:
        if text and not (is_decoded and text.startswith(_DECODED)):
            story.step(text)
    del story.steps[MAX_STEPS - 1 :]
    never = (text for each in (root, page) if each is not None for text in each.never)
    for text in list(never)[:1]:
        story.step(f"do not {text}")
