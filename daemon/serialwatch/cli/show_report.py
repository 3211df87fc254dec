"""A report for people: in a terminal, in a pipe, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from serialwatch.cli.markdown import fenced, inert
from serialwatch.cli.report_context import Stretch, context_lines
from serialwatch.cli.tables import KEPT_SPACE, SEVERITY_STYLES, safe, shorten, wrapped
from serialwatch.cli.times import clock, exact, local
from serialwatch.records import Conclusion, HitCount, NextStep, Outcome, Report, TimelineEntry

_LABEL = 17  # columns of "Not known        "
_IN_ORDER = "Next steps"  # the fact whose items have an order
_HYPOTHESES = 3  # of each kind that are named
_STATUSES = (("Points to", "confirmed"), ("Also possible", "open"), ("Ruled out", "refuted"))
_CAUSES = {
    "panic": " after the crash",  # whatever it was that reset it
    "commanded": " (by software)",  # for somebody, or by the firmware for itself
    "power_on": " (power-on)",
    "sleep_wake": " (wake-up from sleep)",
    "unknown": "",
}
_ALIGNED_TEXT = 60  # columns of text up to which notes stand below each other


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier incident of the same kind; an unknown port is "", an unknown time 0."""

    id: int
    port: str = ""
    opened_utc_ns: int = 0


@dataclass(frozen=True, slots=True)
class About:
    """What a reader wants to know of the incident that its report does not say."""

    port: str
    boot: int = 0  # 0: none seen
    fault_utc_ns: int = 0  # 0: no clock, e.g. a saved log without time stamps
    first_sign: HitCount | None = None  # another fault before it
    boot_started_utc_ns: int = 0  # 0: unknown
    outcome: Outcome | None = None
    outcome_cause: str = ""
    seen_before: tuple[Earlier, ...] = ()
    is_on_disk: bool = True
    shown: str = ""  # in place of the port, e.g. the file and the line


def report_lines(
    report: Report,
    about: About,
    now: datetime,
    width: int | None,
    context: Sequence[Stretch] = (),
) -> list[Text]:
    """Return the report as lines of at most `width` columns; None: nothing is cut or wrapped.

    `context` has the cited lines with those around them, if they are to be shown.
    """
    lines = [_heading(report, about, now), *_title(report, width)]
    if report.timeline:
        lines += [Text(), Text("What happened", "bold"), *_timeline(report, about, now, width)]
    if report.conclusions:
        lines += [Text(), Text("Conclusions", "bold")]
        for number, conclusion in enumerate(report.conclusions, 1):
            refs = f"[{_refs(conclusion, report, about.port)}]".replace(" ", KEPT_SPACE)
            words = f"{safe(conclusion.claim)}   {refs}"
            lines += wrapped(f"  {number}. ", words, width)
    if context:
        lines += [Text(), Text("Cited lines", "bold")]
        lines += context_lines(report, context, now, width)
    lines.append(Text())
    for label, items in _facts(report, about, now):
        name = label
        for mark, words in _listed(label, items):
            lines += wrapped(f"{name:<{_LABEL}}{mark}", words, width)
            name = ""
    return lines


def report_markdown(
    report: Report, about: About, now: datetime, context: Sequence[Stretch] = ()
) -> str:
    """Return the report as Markdown, for an issue tracker or a chat; see `markdown`."""
    out = [
        f"## {inert(report.title)}",
        "",
        f"{inert(_heading(report, about, now).plain)} · "
        f"confidence {report.confidence:.1f}, {report.verdict}",
        "",
    ]
    if report.timeline:
        out += ["### What happened", ""]
        out += fenced(line.plain.rstrip() for line in _timeline(report, about, now, None))
        out.append("")
    if report.conclusions:
        out += ["### Conclusions", ""]
        for number, conclusion in enumerate(report.conclusions, 1):
            refs = _refs(conclusion, report, about.port)
            out.append(f"{number}. {inert(conclusion.claim)} {inert(f'[{refs}]')}")
        out.append("")
    if cited := _cited_lines(report, context, now):
        out += ["### Cited lines", "", *fenced(cited), ""]
    for label, items in _facts(report, about, now):
        if len(items) == 1:
            out.append(f"- **{label}**: {inert(items[0])}")
        else:
            out.append(f"- **{label}**:")
            out += [
                f"  {mark.replace('·', '-')}{inert(item)}" for mark, item in _listed(label, items)
            ]
    return "\n".join(out) + "\n"


def _cited_lines(report: Report, context: Sequence[Stretch], now: datetime) -> list[str]:
    """Return the cited lines for whoever has no log at hand: those that were not shown above."""
    if context:
        return [line.plain.rstrip() for line in context_lines(report, context, now, None)]
    shown = {(entry.port, entry.seq) for entry in report.timeline}
    cited = {(e.port, e.seq): e for c in report.conclusions for e in c.evidence}
    return [f"{e.ref}  {safe(e.quote)}" for at, e in cited.items() if at not in shown]


def outcome_words(outcome: Outcome, cause: str = "") -> str:
    """Return what a board did after a fault; that it printed on does not say in which boot."""
    if outcome == "rebooted" and cause == "commanded":
        return "rebooted (by software)"
    return "went on printing" if outcome == "continued" else outcome


def _heading(report: Report, about: About, now: datetime) -> Text:
    line = Text(f"Incident {report.incident}" if report.incident else "Incident")
    line.append(f" · {about.shown or about.port} · ")
    line.append(report.severity, SEVERITY_STYLES[report.severity])
    if about.fault_utc_ns:
        line.append(f" · {clock(about.fault_utc_ns, now)}")
    if about.boot:
        since = ""
        if 0 < about.boot_started_utc_ns <= about.fault_utc_ns:
            after_s = (about.fault_utc_ns - about.boot_started_utc_ns) / 1e9
            since = f", {_long_span(after_s)} after its start"
        line.append(f" (boot #{about.boot}{since})")
    return line


def _title(report: Report, width: int | None) -> list[Text]:
    """Return the title with the verdict at the right edge, below it where there is no room."""
    title = safe(report.title)
    verdict = f"confidence {report.confidence:.1f}, {report.verdict}"
    room = (width or 100) - cell_len(title) - len(verdict)
    if room >= 2:
        return [Text.assemble((title, "bold"), " " * room, verdict)]
    return [*wrapped("", title, width, "bold"), Text(verdict)]


def _timeline(report: Report, about: About, now: datetime, width: int | None) -> Iterator[Text]:
    rows = [(*_place(entry, about, now), entry) for entry in report.timeline]
    widest_time = max(len(at) for at, _, _ in rows)
    widest_ref = max(len(ref) for _, ref, _ in rows)
    widest_text = max(min(cell_len(_text(entry)), _ALIGNED_TEXT) for _, _, entry in rows)
    for at, ref, entry in rows:
        line = Text("  ")
        if widest_time:
            line.append(f"{at:<{widest_time}}  ")
        line.append(f"{ref:<{widest_ref}}  ")
        start = cell_len(line.plain)
        text, note = _text(entry), _note(entry)
        line.append(text if width is None else shorten(text, max(8, width - start)))
        gap = max(2, widest_text - cell_len(text) + 2)
        if width is not None:
            gap = min(gap, width - cell_len(line.plain) - cell_len(note))
        if note and gap >= 2:
            yield line.append(" " * gap).append(note, "bold")
        else:
            yield line
            if note:  # no room beside the line, which matters more
                yield Text(" " * start).append(note, "bold")


def _text(entry: TimelineEntry) -> str:
    return safe(entry.text).replace("\t", " ")


def _place(entry: TimelineEntry, about: About, now: datetime) -> tuple[str, str]:
    at = exact(entry.utc_ns, now) if entry.utc_ns else ""
    ref = f"L{entry.seq}" if entry.port == about.port else f"{entry.port}:L{entry.seq}"
    return at, ref if entry.seq else ""


def _note(entry: TimelineEntry) -> str:
    note = safe(entry.note)
    return note if not note or note.startswith("boot ") else f"← {note}"


def _refs(conclusion: Conclusion, report: Report, port: str) -> str:
    lines = " ".join(
        f"L{evidence.seq}" if evidence.port == port else evidence.ref
        for evidence in conclusion.evidence
    )
    parts = [lines] if lines else []
    numbers = {other.id: n for n, other in enumerate(report.conclusions, 1)}
    parts += [f"from {numbers[name]}" for name in conclusion.rests_on if name in numbers]
    parts += [f"knowledge {safe(page)}" for page in conclusion.knowledge]
    parts += [f"result {safe(result)}" for result in conclusion.results]
    return ", ".join(parts) or "no evidence"


def _listed(label: str, items: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return each item with the mark before it: a number where there is an order, "" for one."""
    for number, item in enumerate(items, 1):
        mark = f"{number}. " if label == _IN_ORDER else "· "
        yield "" if len(items) == 1 else mark, item


def _facts(report: Report, about: About, now: datetime) -> Iterator[tuple[str, list[str]]]:
    """Return what stands below the conclusions: a label and one item or more."""
    if (first := about.first_sign) is not None:
        yield "First sign", [_first_sign(first, about)]
    if about.outcome:
        told = _CAUSES.get(about.outcome_cause, f" ({safe(about.outcome_cause)})")
        cause = told if about.outcome_cause else ""
        yield "Outcome", [f"the board {outcome_words(about.outcome)}{cause}"]
    claims = " ".join(conclusion.claim for conclusion in report.conclusions)
    for label, status in _STATUSES:
        texts = [h.text or h.fault_class for h in report.hypotheses if h.status == status]
        if found := [safe(text) for text in texts if text.rstrip(".") not in claims]:
            yield label, found[:_HYPOTHESES]
    if report.unknowns:
        yield "Not known", [*map(safe, report.unknowns)]
    if report.not_checked:
        yield "Not checked", [*map(safe, report.not_checked)]
    if about.seen_before:
        yield "Seen before", [_seen(about.seen_before, now)]
    if report.next_steps:
        yield _IN_ORDER, [*map(_step, report.next_steps)]
    if report.conclusions or report.claims.dropped:
        yield "Checked", [_checked(report)]
    yield "Made by", [_made_by(report)]
    if not about.is_on_disk:
        yield "Stored", ["not on disk yet: the log or the database cannot be written"]


def _first_sign(first: HitCount, about: About) -> str:
    """Tell what came before the fault; it need not have caused it."""
    place = f"L{first.first_seq}, " if first.first_seq else ""
    earlier_s = (about.fault_utc_ns - first.first_utc_ns) / 1e9
    since = f"{_long_span(earlier_s)} earlier, " if about.fault_utc_ns and earlier_s > 0 else ""
    return f"{since}{place}{safe(first.title)}"


def _step(step: NextStep) -> str:
    """Tell the risk where there is one; beside line numbers an `L1` would be taken for a line."""
    return safe(step.text) if step.risk == "L1" else f"{safe(step.text)} (risk {step.risk})"


def _seen(earlier: Sequence[Earlier], now: datetime) -> str:
    named = []
    for incident in earlier[:5]:
        facts = [incident.port] if incident.port else []
        if incident.opened_utc_ns:
            facts.append(_day(incident.opened_utc_ns, now))
        named.append(f"#{incident.id} ({', '.join(facts)})" if facts else f"#{incident.id}")
    more = f" and {len(earlier) - 5} more" if len(earlier) > 5 else ""
    times = "once" if len(earlier) == 1 else f"{len(earlier)} times"
    return f"{times} on this bench: {', '.join(named)}{more}"


def _checked(report: Report) -> str:
    """Tell what the verifier let pass, and what it did not."""
    kept, dropped = len(report.conclusions), report.claims.dropped
    words = "1 claim" if kept == 1 else f"{kept or 'no'} claims"
    has_lines = any(conclusion.evidence for conclusion in report.conclusions)
    words += f", against the {'lines' if has_lines or not kept else 'results'} cited"
    if dropped:
        verb = "is" if dropped == 1 else "are"
        words += f"; {dropped} more had no evidence there and {verb} left out"
    return words


def _made_by(report: Report) -> str:
    cost = report.cost
    parts = [f"the {report.made_by}" if report.made_by == "offline analyst" else report.made_by]
    parts.append(f"{cost.skills} skill{'' if cost.skills == 1 else 's'}")
    if cost.model_calls:
        calls = f"{cost.model_calls} model call{'' if cost.model_calls == 1 else 's'}"
        parts += [calls, f"{cost.tokens:,} tokens"]
        if cost.price:
            parts.append(f"price {cost.price:.4f}")
    parts.append(f"{cost.seconds:.1f} s")
    words = ", ".join(map(safe, parts))
    if not cost.model:
        reason = f" ({safe(cost.reason)})" if cost.reason else ""
        words += f"; the model gave no report{reason}" if cost.model_calls else (
            f"; no model was asked{reason}"
        )  # fmt: skip
    elif cost.reason:
        words += f"; {safe(cost.reason)}"
    return words + (f"; revision {report.revision}" if report.revision > 1 else "")


def _day(utc_ns: int, now: datetime) -> str:
    at = local(utc_ns)
    days = (now.astimezone().date() - at.date()).days
    if days < 2:
        return ("today", "yesterday")[max(0, days)]
    return at.strftime("%A") if days < 7 else f"{at:%Y-%m-%d}"


def _long_span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
