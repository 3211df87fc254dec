"""The answer to `ctx.log.compare`: which boots are meant, and how they differ, as JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.boot_diff import (
    BootDiff,
    BootForms,
    Divergence,
    Form,
    Pair,
    Step,
    compare,
    duration_s,
    read_boot,
)
from serialwatch.agent.ctx.log_answers import LogAnswer, boot_range
from serialwatch.agent.ctx.log_query import LogView
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.text.device_text import shortened
from serialwatch.records import SEVERITIES, Line
from serialwatch.store.boots import BootRow, load_boots, load_markers
from serialwatch.store.incidents import load_incidents
from serialwatch.wire import Json, iso

_OF_FAULTS = ("watchdog", "brownout", "panic")  # causes of a start: the boot before failed
LOOKED_BACK = 50  # boots among which the last good one is looked for
MAX_TEXT = 200  # characters of a line
MAX_SLOWER = 5
MAX_COUNTS = 8
MAX_REWORDED = 8
SPAN_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True)
class BootAsk:
    """Which boots of which port are compared."""

    port: str
    boot: int | None  # None: the newest
    base: int | None  # None: the last good one before it
    limit: int


@dataclass(frozen=True, slots=True)
class _Chosen:
    number: int
    first: int
    last: int
    why: str
    is_good: bool | None = None  # None: nobody knows


def answer_compare(archive: Archive, ask: BootAsk) -> LogAnswer:
    """Return how a boot differs from another one of the same port."""
    log = archive.log(ask.port)
    bounds = log.bounds()
    starts = {number: seq for number, seq, _ in log.boots()}
    if bounds is None or not starts:
        body: Json = {"port": ask.port, "no_data": True, "why": "no boot was seen in this log"}
        return LogAnswer(body, ())
    number = _number(starts, -1 if ask.boot is None else ask.boot)
    rows = {row.number: row for row in _rows(archive, ask.port)}
    here = _Chosen(number, *boot_range(log, number, bounds), "as asked" if ask.boot else "newest")
    base = _base(archive, log, ask, number, rows)
    if base is None:
        why = f"boot {number} is the first one in this log: there is nothing to compare it with"
        return LogAnswer({"port": ask.port, "no_data": True, "why": why}, ())
    span = min(duration_s(log, here.first, here.last), duration_s(log, base.first, base.last))
    ours = read_boot(log, here.first, here.last, span + SPAN_MARGIN_S)
    theirs = read_boot(log, base.first, base.last, span + SPAN_MARGIN_S)
    diff = compare(ours, theirs)
    shown = _Shown(diff, ask.limit)
    body = {
        "port": ask.port,
        "boot": _about(here, ours, rows) | {"is_newest": number == max(starts)},
        "base": _about(base, theirs, rows),
        **shown.body(),
        "flashed_between": _flashed(archive, ask.port, *sorted((here.first, base.first))),
        "compared_s": round(span, 3),
        "no_data": False,
    }
    return LogAnswer(body, tuple({line.seq: line for line in shown.lines}.values()))


def _number(starts: dict[int, int], asked: int) -> int:
    numbers = sorted(starts, key=lambda number: starts[number])
    if asked in starts:
        return asked
    if asked < 0 and -asked <= len(numbers):
        return numbers[asked]
    known = f"boots {numbers[0]} to {numbers[-1]}"
    raise RefusedError("precondition", f"no boot {asked} in the log of the port; {known}")


def _rows(archive: Archive, port: str) -> list[BootRow]:
    return load_boots(archive.database, port, limit=LOOKED_BACK) if archive.database else []


def _base(
    archive: Archive, log: LogView, ask: BootAsk, number: int, rows: dict[int, BootRow]
) -> _Chosen | None:
    """Return the boot to compare with, None if there is no other one."""
    bounds = log.bounds()
    starts = {boot: seq for boot, seq, _ in log.boots()}
    if bounds is None:
        return None
    if ask.base is not None:
        base = _number(starts, ask.base)
        if base == number:
            raise RefusedError("invalid_args", f"boot {base} cannot be compared with itself")
        return _Chosen(base, *boot_range(log, base, bounds), "as asked")
    earlier = sorted((n for n in starts if starts[n] < starts[number]), key=lambda n: -starts[n])
    if not earlier:
        return None
    known = [rows[n] for n in earlier if n in rows]
    faulty = _faulty(archive, ask.port, known, starts)
    ended_badly = {n - 1 for n, row in rows.items() if row.cause in _OF_FAULTS}
    faulty |= ended_badly
    clean = [row for row in known if row.number not in faulty]
    ready = next((row for row in clean if row.ready_seq is not None), None)
    if ready is not None:
        where = boot_range(log, ready.number, bounds)
        return _Chosen(ready.number, *where, "the last one that became ready without a fault", True)
    if clean and not any(row.ready_seq is not None for row in rows.values()):
        where = boot_range(log, clean[0].number, bounds)
        why = "the last one without a fault (this board never says that it is ready)"
        return _Chosen(clean[0].number, *where, why, True)
    where = boot_range(log, earlier[0], bounds)
    why = "the one before; none is known to have gone well"
    return _Chosen(earlier[0], *where, why, False if known else None)


def _faulty(
    archive: Archive, port: str, rows: Sequence[BootRow], starts: dict[int, int]
) -> set[int]:
    """Return the boots with a fault; one incident may have hits in several of them."""
    if archive.database is None or not rows:
        return set()
    since = min(row.utc_ns for row in rows)
    found = load_incidents(
        archive.database, port=port, severity="warning", since_utc_ns=since, limit=1000
    )
    order = sorted(starts, key=lambda number: starts[number])
    begins = [starts[number] for number in order]
    hits = (h for i in found for h in i.hits if h.severity != "note")
    seqs = {seq for h in hits for seq in (h.first_seq, h.last_seq, *h.samples) if seq}
    places = (bisect_right(begins, seq) for seq in seqs)
    return {incident.boot for incident in found} | {order[at - 1] for at in places if at}


def _flashed(archive: Archive, port: str, first: int, last: int) -> list[Json]:
    """Return the flash markers between two boots: they may run different firmware."""
    if archive.database is None:
        return []
    return [
        {"seq": m.seq, "text": shortened(m.text, 80)}
        for m in load_markers(archive.database, port)
        if m.kind == "flash" and first < m.seq <= last
    ]


def _about(chosen: _Chosen, boot: BootForms, rows: dict[int, BootRow]) -> Json:
    row = rows.get(chosen.number)
    ready_s: float | None = None
    if row is not None and row.ready_utc_ns is not None:
        ready_s = round((row.ready_utc_ns - row.utc_ns) / 1e9, 3)
    return {
        "number": chosen.number,
        "why": chosen.why,
        "is_good": chosen.is_good,
        "first": boot.first,
        "last": boot.last,
        "lines": boot.lines,
        "seconds": round(boot.seconds, 3),
        "at": iso(boot.start_utc_ns) if boot.start_utc_ns else None,
        "ready_s": ready_s,
        "cause": row.cause if row else None,
        "is_complete": boot.is_complete,
    }


class _Shown:
    """The differences as JSON; `lines` are those whose text or number is in it."""

    def __init__(self, diff: BootDiff, limit: int) -> None:
        self.lines: list[Line] = []
        self._diff = diff
        self._limit = limit

    def body(self) -> Json:
        diff = self._diff
        new, missing = self._most_telling(diff.new), diff.missing[: self._limit]
        return {
            "divergence": self._divergence(diff.divergence),
            "new": [self._one(form) for form in new],
            "missing": [self._one(form, "base_seq", "base_at_s") for form in missing],
            "reworded": [self._reworded(pair) for pair in diff.reworded[:MAX_REWORDED]],
            "counts": [self._counts(pair) for pair in diff.counts[:MAX_COUNTS]],
            "slower": [self._step(step) for step in diff.slower[:MAX_SLOWER]],
            "last_common": self._pair(diff.last_common),
            "not_reached": {
                "shapes": len(diff.not_reached),
                "next": self._one(diff.not_reached[0], "base_seq", "base_at_s")
                if diff.not_reached
                else None,
            },
            "found": {
                "new": len(diff.new),
                "missing": len(diff.missing),
                "reworded": len(diff.reworded),
                "counts": len(diff.counts),
            },
        }

    def _most_telling(self, forms: Sequence[Form]) -> list[Form]:
        """Return the first of them and the worst of them, in order."""
        half = self._limit // 2
        kept = list(forms[:half])
        rest = sorted(forms[half:], key=lambda form: -SEVERITIES.index(form.level))
        return sorted(kept + rest[: self._limit - half], key=lambda form: form.line.seq)

    def _divergence(self, found: Divergence | None) -> Json | None:
        if found is None:
            return None
        return {
            "kind": found.kind,
            "after": self._pair(found.after),
            "here": self._one(found.here) if found.here else None,
            "base": self._one(found.there, "base_seq", "base_at_s") if found.there else None,
        }

    def _one(self, form: Form, seq: str = "seq", at: str = "at_s") -> Json:
        self.lines.append(form.line)
        body: Json = {
            seq: form.line.seq,
            "text": shortened(form.text, MAX_TEXT),
            at: round(form.at_s, 3),
        }
        if form.count > 1:
            body["count"] = form.count
        if form.level != "note":
            body["level"] = form.level
        return body

    def _pair(self, pair: Pair | None) -> Json | None:
        if pair is None:
            return None
        self.lines += [pair.here.line, pair.there.line]
        return {
            "text": shortened(pair.here.text, MAX_TEXT),
            "seq": pair.here.line.seq,
            "at_s": round(pair.here.at_s, 3),
            "base_seq": pair.there.line.seq,
            "base_at_s": round(pair.there.at_s, 3),
        }

    def _reworded(self, pair: Pair) -> Json:
        self.lines += [pair.here.line, pair.there.line]
        return {
            "seq": pair.here.line.seq,
            "text": shortened(pair.here.text, MAX_TEXT),
            "base_seq": pair.there.line.seq,
            "base_text": shortened(pair.there.text, MAX_TEXT),
        }

    def _counts(self, pair: Pair) -> Json:
        counts = {"count": pair.here.count, "base_count": pair.there.count}
        return {**(self._pair(pair) or {}), **counts}

    def _step(self, step: Step) -> Json:
        self.lines += [step.before.here.line, step.before.there.line]
        return {
            "after": shortened(step.before.here.text, MAX_TEXT),
            "after_seq": step.before.here.line.seq,
            "after_base_seq": step.before.there.line.seq,
            "until": self._pair(step.after),
            "took_s": round(step.here_s, 3),
            "base_took_s": round(step.there_s, 3),
        }
