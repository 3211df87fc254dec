"""Which of the faults that are seen is the root: each is held against lines, boots and pages.

The rules name an incident by its first sharp fault. That is not its cause where the fault is in
every boot, where the board plainly went on after it, or where a known cause of it came before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from serialwatch.agent.knowledge import Cause, Page
from serialwatch.agent.offline.case import Case, Earlier
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import kernel_s
from serialwatch.records import SEVERITIES, HitCount, Incident, Line
from serialwatch.triggers.patience import Patience

LEADS_NS = 900 * 1_000_000_000  # an earlier fault of the same boot may have led to this one
MAX_CHAIN = 3
OTHER = "another fault"  # fingerprint of one that its incident is not named after
MAX_CHARS = 500  # of a line that a page's pattern is held against
AROUND = 40  # lines to each side in which the clock of a board is looked for


@dataclass(frozen=True, slots=True)
class Suspect:
    """A fault that may be the root of the incident."""

    trigger: str
    title: str
    seq: int  # its first line, 0 where no line carries it
    port: str
    at_utc_ns: int
    line: Line | None  # that line, if it was read
    incident: int = 0  # id of the one it is of, 0: the one that is judged
    refuted: str = ""  # why it is not the root, "" if it may be
    against: tuple[Line, ...] = ()  # lines that refute it
    result: str = ""  # id of the result that shows it


@dataclass(frozen=True, slots=True)
class Link:
    """One fault as the cause of another."""

    cause: Cause  # as the page of the effect has it
    root: Suspect
    effect: Suspect


def suspects_of(case: Case) -> list[Suspect]:
    """Return the faults of the incident, the likeliest root first; the refuted last."""
    own = [_refuted(case, suspect) for suspect in _own(case)]
    found = [s for s in own if not s.refuted]
    return found + [s for s in own if s.refuted]


def focused(case: Case, suspect: Suspect) -> Case:
    """Return the case as one about another of its faults."""
    incident = case.incident
    hit = next((h for h in incident.hits if h.trigger == suspect.trigger), None)
    if hit is None or hit.trigger == incident.trigger:
        return case
    about = replace(
        incident,
        trigger=hit.trigger,
        severity=hit.severity,
        tier=hit.tier,
        title=hit.title,
        fields=hit.fields,
        first_seq=hit.first_seq,
        block_first=min(hit.first_seq, incident.last_seq),
        count=hit.count,
        fingerprint=OTHER,
        seen_before=(),
        hits=(hit, *(h for h in incident.hits if h is not hit)),
        knowledge=page.id if (page := case.pages.get(hit.trigger)) else "",
    )
    history = replace(case.history, recurrence=None)  # it is that of the other fault
    return replace(case, incident=about, page=case.pages.get(hit.trigger), history=history)


def chain_of(case: Case, suspect: Suspect) -> list[Link]:
    """Return how a fault came about, as far as pages and lines tell: nearest cause first."""
    links: list[Link] = []
    effect = suspect
    seen = {suspect.trigger}
    while len(links) < MAX_CHAIN:
        page = case.pages.get(effect.trigger)
        link = _leads_to(case, effect, page, seen) if page else None
        if link is None:
            break
        links.append(link)
        effect = link.root
        seen.add(effect.trigger)
    return links


def leading(case: Case) -> list[Earlier]:
    """Return the earlier incidents of the boot that a page names as a cause, newest first."""
    rules = [rule for page in case.pages.values() for c in page.causes for rule in c.rules]
    return [e for e in case.history.earlier if _is_recent(case, e) and is_any(e.trigger, rules)]


def is_shared(trigger: str) -> bool:
    """Tell whether a fault of one board may be that of the boards beside it, too."""
    return trigger.endswith((".brownout", ".undervoltage", ".usb_overcurrent"))


def is_any(trigger: str, rules: Iterable[str]) -> bool:
    """Tell whether a trigger is one of `rules`, of which `pack.*` is a whole pack."""
    return any(
        trigger == rule or (rule.endswith(".*") and trigger.startswith(rule[:-1])) for rule in rules
    )


def is_shown_by(cause: Cause, said: Iterable[tuple[Line, str]]) -> Line | None:
    """Return the first line that shows a cause of a page, None if there is none.

    `said` are lines, each with its text or with what a register in it means.
    """
    return _first(cause.lines, said)


def is_refuted_by(cause: Cause, said: Iterable[tuple[Line, str]]) -> Line | None:
    """Return the first line that speaks against a cause of a page, None if there is none."""
    return _first(cause.unless, said)


def _first(patterns: Sequence[str], said: Iterable[tuple[Line, str]]) -> Line | None:
    searches = [(re.compile(pattern).search, Patience()) for pattern in patterns]
    if not searches:
        return None
    for line, text in said:
        if any(patience.search(search, text[:MAX_CHARS]) for search, patience in searches):
            return line
    return None


# The faults of the incident


def _own(case: Case) -> Iterator[Suspect]:
    incident = case.incident
    hits = [h for h in incident.hits if h.severity != "note"]
    rest = sorted(hits[1:], key=lambda h: (_is_consequence(h), -SEVERITIES.index(h.severity)))
    for hit in (*hits[:1], *rest):
        yield _of_hit(case, hit)
    if not hits:
        yield Suspect(
            incident.trigger,
            incident.title,
            incident.first_seq,
            incident.port,
            incident.opened_utc_ns,
            case.fault,
        )


def _of_hit(case: Case, hit: HitCount) -> Suspect:
    port = case.incident.port
    line = case.line(hit.first_seq)
    return Suspect(hit.trigger, hit.title, hit.first_seq, port, hit.first_utc_ns, line)


def _is_consequence(hit: HitCount) -> bool:
    return hit.trigger.startswith(("boot.", "link.silence")) or hit.tier == "generic"


def _refuted(case: Case, suspect: Suspect) -> Suspect:
    """Return the suspect with what speaks against it, if anything does."""
    line = suspect.line
    if line is None:
        return suspect
    if _restarts(suspect.trigger) and (clock := _clock_across(case, line)):
        before, after = clock
        why = "the board's own clock goes on across it, so nothing restarted there"
        return replace(suspect, refuted=why, against=(before, line, after))
    if worse := _unrelated(case, suspect):
        why = "it is of another device than the worse fault that follows"
        return replace(suspect, refuted=why, against=(line, worse))
    if back := _recovered(case, suspect):
        why = "it was over before the worse fault came"
        return replace(suspect, refuted=why, against=(line, back))
    if _has_worse(case.incident, suspect) and (old := _in_earlier_boots(case, suspect)):
        ids = ", ".join(f"#{e.id}" for e in old[:3])
        why = f"the same came in an earlier boot that went on ({ids})"
        return replace(suspect, refuted=why, against=(line,), result=case.history.result)
    return suspect


def _unrelated(case: Case, suspect: Suspect) -> Line | None:
    """Return the line of a worse fault that this kind may cause, but of another device did not."""
    severity = {hit.trigger: SEVERITIES.index(hit.severity) for hit in case.incident.hits}
    for hit in case.incident.hits:
        page, line = case.pages.get(hit.trigger), case.line(hit.first_seq)
        is_worse = severity[hit.trigger] > severity.get(suspect.trigger, 0)
        rules = [rule for cause in page.causes for rule in cause.rules] if page else []
        if is_worse and is_any(suspect.trigger, rules):
            return line if _are_of_other_devices(suspect.line, line) else None
    return None


def _recovered(case: Case, suspect: Suspect) -> Line | None:
    """Return the line that tells that a device works again, before a worse fault came."""
    line = suspect.line
    severity = {hit.trigger: SEVERITIES.index(hit.severity) for hit in case.incident.hits}
    own = severity.get(suspect.trigger, 0)
    worse = [
        h.first_seq
        for h in case.incident.hits
        if severity[h.trigger] > own and not _is_consequence(h) and h.first_seq > suspect.seq
    ]
    if line is None or not worse:
        return None
    devices = set(_DEVICE.findall(readable(line.raw)))
    for later in case.lines:
        text = readable(later.raw)
        is_between = line.seq < later.seq < min(worse) and later.boot == line.boot
        if is_between and _WORKS_AGAIN.search(text) and devices & set(_DEVICE.findall(text)):
            return later
    return None


_DEVICE = re.compile(r"\b[a-z]{2,8}\d{1,2}\b")
_WORKS_AGAIN = re.compile(
    r"(?i)\b(?:recovered|restarted|bus[ -]on|back (?:on|up|online)|re-?connected|re-?established"
    r"|is up|works again|resumed)\b"
)


def _has_worse(incident: Incident, suspect: Suspect) -> bool:
    """Tell whether the incident has a worse fault than this one."""
    severity = {hit.trigger: SEVERITIES.index(hit.severity) for hit in incident.hits}
    own = severity.get(suspect.trigger, 0)
    return any(severity[hit.trigger] > own for hit in incident.hits if not _is_consequence(hit))


def _restarts(trigger: str) -> bool:
    """Tell whether a board cannot go on after such a fault."""
    return trigger in _RESTARTS


_RESTARTS = frozenset({
    "esp.brownout", "esp.guru", "esp.abort", "esp.int_wdt", "esp.rom_wdt_reset", "esp.cpu_lockup",
    "esp.assert", "esp8266.exception", "esp8266.soft_wdt", "esp8266.wdt_reset", "pico.panic",
    "nrf.app_fatal", "micropython.fatal", "circuitpython.safe_mode",
})  # fmt: skip


def _clock_across(case: Case, line: Line) -> tuple[Line, Line] | None:
    """Return lines of the same boot around one, if the board's own clock runs on over it."""
    near = [x for x in case.lines if abs(x.seq - line.seq) <= AROUND and x.boot == line.boot]
    stamped = [(x, s) for x in near if (s := kernel_s(readable(x.raw))) is not None]
    before = [(x, s) for x, s in stamped if x.seq < line.seq]
    after = [(x, s) for x, s in stamped if x.seq > line.seq]
    if before and after and 0 < before[-1][1] <= after[0][1]:
        return before[-1][0], after[0][0]
    return None


def _in_earlier_boots(case: Case, suspect: Suspect) -> list[Earlier]:
    """Return earlier incidents of this very fault, each in a boot of its own that went on."""
    boot = suspect.line.boot if suspect.line else case.incident.boot
    return [
        e
        for e in case.history.earlier
        if e.trigger == suspect.trigger
        and e.title == suspect.title
        and 0 < e.boot < boot
        and e.outcome not in ("halted", "rebooted")
    ]


# What led to a fault


def _leads_to(case: Case, effect: Suspect, page: Page, seen: set[str]) -> Link | None:
    """Return the known cause of a fault that is seen before it, the likeliest first."""
    for cause in page.causes:
        for root in _before(case, effect):
            if root.trigger in seen or not is_any(root.trigger, cause.rules):
                continue
            if not _are_of_other_devices(root.line, effect.line):
                return Link(cause, root, effect)
    return None


def _are_of_other_devices(one: Line | None, other: Line | None) -> bool:
    """Tell whether two lines name devices of one kind, but not the same: mmc0 and mmcblk2."""
    if one is None or other is None:
        return False
    for pattern in _DEVICES:
        ours, theirs = (set(pattern.findall(readable(x.raw))) for x in (one, other))
        if ours and theirs and not ours & theirs:
            return True
    return False


_DEVICES = (
    re.compile(r"\bmmc(?:blk)?(\d+)"),
    re.compile(r"\bnvme(\d+)"),
    re.compile(r"\b(sd[a-z])\d*\b"),
    re.compile(r"\bubi(\d+)"),
    re.compile(r"\b((?:eth|end|lan|wan|can)\d+)"),
)


def _before(case: Case, effect: Suspect) -> Iterator[Suspect]:
    """Yield the faults before another: of the incident, of earlier ones, of boards beside it."""
    for hit in sorted(case.incident.hits, key=lambda h: h.first_seq or h.first_utc_ns):
        if hit.trigger == effect.trigger:
            continue
        if hit.first_seq and effect.seq:
            is_before = hit.first_seq <= effect.seq
        else:
            is_before = hit.first_utc_ns <= effect.at_utc_ns
        suspect = _refuted(case, _of_hit(case, hit))
        if is_before and suspect.line is not None and not suspect.refuted:
            yield suspect
    for one in case.history.earlier:
        line = case.earlier_lines.get(one.id)
        if line is not None and _is_recent(case, one):
            yield Suspect(
                one.trigger,
                one.title,
                one.first_seq,
                case.incident.port,
                one.opened_utc_ns,
                line,
                one.id,
                result=case.history.result,
            )
    for other in case.around.neighbours:
        for hit in other.hits:
            line = case.neighbour_lines.get(other.id)
            if line is not None and line.seq == hit.first_seq and is_shared(hit.trigger):
                at = hit.first_utc_ns
                yield Suspect(
                    hit.trigger,
                    hit.title,
                    hit.first_seq,
                    other.port,
                    at,
                    line,
                    other.id,
                    result=case.neighbour_results.get(other.id, ""),
                )


def _is_recent(case: Case, earlier: Earlier) -> bool:
    incident: Incident = case.incident
    is_same_boot = earlier.boot == incident.boot
    return is_same_boot and incident.opened_utc_ns - earlier.opened_utc_ns <= LEADS_NS
