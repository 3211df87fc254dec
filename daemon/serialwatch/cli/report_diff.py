"""What one revision of a report says that the one before it did not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.text import Text

from serialwatch.cli.tables import safe, wrapped
from serialwatch.records import Conclusion, Report
from serialwatch.wire import Json

_LABEL = 15  # columns of what changed


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was; "" where there was, or is, none."""

    what: str
    before: str
    after: str


def changes(old: Report, new: Report) -> Iterator[Change]:
    """Return what changed from one revision to the next, the weightiest first."""
    for what, before, after in (
        ("title", old.title, new.title),
        ("class", old.fault_class, new.fault_class),
        ("severity", old.severity, new.severity),
        ("verdict", _verdict(old), _verdict(new)),
    ):
        if before != after:
            yield Change(what, before, after)
    yield from _conclusions(old.conclusions, new.conclusions)
    yield from _hypotheses(old, new)
    yield from _rows("not known", old.unknowns, new.unknowns)
    yield from _rows("not checked", old.not_checked, new.not_checked)
    yield from _rows(
        "next step",
        [f"{step.text} ({step.risk})" for step in old.next_steps],
        [f"{step.text} ({step.risk})" for step in new.next_steps],
    )
    yield from _rows("timeline", _entries(old), _entries(new))
    if old.made_by != new.made_by:
        yield Change("made by", old.made_by, new.made_by)
    if old.cost.reason != new.cost.reason:
        yield Change("model", old.cost.reason, new.cost.reason)


def diff_lines(reports: Sequence[Report], width: int | None) -> Iterator[Text]:
    """Return the changes from each report to the next as lines of at most `width` columns."""
    for old, new in itertools.pairwise(reports):
        yield Text(f"Revision {new.revision}, by {_made_by(new)}", "bold")
        found = list(changes(old, new))
        for change in found:
            name = f"  {change.what:<{_LABEL}}"
            if change.before and change.after:
                yield from wrapped(f"{name}- ", safe(change.before), width)
                yield from wrapped(f"{'':<{_LABEL + 2}}+ ", safe(change.after), width)
            elif change.after:
                yield from wrapped(f"{name}+ ", safe(change.after), width)
            else:
                yield from wrapped(f"{name}- ", safe(change.before), width)
        if not found:
            yield Text("  nothing but what it cost")
        yield Text()


def diff_json(reports: Sequence[Report]) -> list[Json]:
    """Return the changes from each report to the next as JSON."""
    return [
        {
            "from": old.revision,
            "to": new.revision,
            "made_by": new.made_by,
            "changes": [asdict(change) for change in changes(old, new)],
        }
        for old, new in itertools.pairwise(reports)
    ]


def _conclusions(old: Sequence[Conclusion], new: Sequence[Conclusion]) -> Iterator[Change]:
    before, after = ({c.claim: c for c in rows} for rows in (old, new))
    for claim, conclusion in after.items():
        earlier = before.get(claim)
        if earlier is None:
            yield Change("conclusion", "", _told(conclusion))
        elif _told(earlier) != _told(conclusion):
            yield Change("conclusion", _told(earlier), _told(conclusion))
    for claim, conclusion in before.items():
        if claim not in after:
            yield Change("conclusion", _told(conclusion), "")


def _told(conclusion: Conclusion) -> str:
    refs = " ".join(dict.fromkeys(evidence.ref for evidence in conclusion.evidence))
    return f"{conclusion.kind}: {conclusion.claim} [{refs}]"


def _hypotheses(old: Report, new: Report) -> Iterator[Change]:
    before = {h.text: h for h in old.hypotheses}
    after = {h.text: h for h in new.hypotheses}
    for text, hypothesis in after.items():
        earlier = before.get(text)
        if earlier is None:
            yield Change("hypothesis", "", f"{hypothesis.status}: {text}")
        elif earlier.status != hypothesis.status:
            yield Change("hypothesis", f"{earlier.status}: {text}", f"{hypothesis.status}: {text}")
    for text, hypothesis in before.items():
        if text not in after:
            yield Change("hypothesis", f"{hypothesis.status}: {text}", "")


def _rows(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    yield from (Change(what, "", row) for row in new if row not in old)
    yield from (Change(what, row, "") for row in old if row not in new)


def _entries(report: Report) -> list[str]:
    return [
        f"{entry.port}:L{entry.seq} {entry.text}{f' ({entry.note})' if entry.note else ''}"
        for entry in report.timeline
    ]


def _verdict(report: Report) -> str:
    return f"{report.verdict}, confidence {report.confidence:.1f}"


def _made_by(report: Report) -> str:
    who = "the offline analyst" if report.made_by == "offline analyst" else report.made_by
    return safe(who)
