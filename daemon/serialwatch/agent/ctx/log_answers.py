"""Answers about a port's log as a skill gets them: JSON, and the lines it has then read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.log_query import (
    MAX_CHARS,
    LineFilter,
    LogRange,
    LogView,
    Row,
    Shape,
    parse_match,
    parse_since,
    read_lines,
    read_stats,
)
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.records import Line, Severity
from serialwatch.store.boots import load_markers
from serialwatch.wire import Json, iso, utc_ns

MAX_GAPS = 20  # of one answer


@dataclass(frozen=True, slots=True)
class LogAsk:
    """Which lines of which port; what is None or empty does not narrow them."""

    port: str
    limit: int
    first: int | None = None
    last: int | None = None
    since: str | None = None
    until: str | None = None
    boot: int | None = None
    marker: int | str | None = None
    level: Severity | None = None
    match: str = ""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """What a skill gets, and the lines that count as read."""

    body: Json
    lines: tuple[Line, ...]


def answer_lines(archive: Archive, ask: LogAsk, now_utc_ns: int) -> LogAnswer:
    """Return the lines that `ask` means: the oldest of them if it says where to begin."""
    log = archive.log(ask.port)
    bounds, where = _where(archive, log, ask, now_utc_ns)
    if where is None:
        return LogAnswer({**_nothing(ask.port, log, bounds), "lines": [], "next": None}, ())
    read = read_lines(log, where, _filter(ask), ask.limit)
    after: Json | None = None
    if read.next_first is not None:
        after = {"first": read.next_first}
    elif read.next_last is not None:
        after = {"last": read.next_last}
    body: Json = {
        "port": ask.port,
        "first": read.rows[0].seq if read.rows else None,
        "last": read.rows[-1].last_seq if read.rows else None,
        "lines": _rows(read.rows),
        "scanned": read.scanned,
        "searched": [where.first, where.last],
        "next": after,
        "gaps": _gaps(log, read.lines[0].seq, read.lines[-1].seq) if read.lines else [],
        "log": list(bounds or ()),
        "no_data": not read.rows,
    }
    if not read.rows:
        body["why"] = f"no such line among L{where.first} to L{where.last}"
    return LogAnswer(body, read.lines)


def answer_stats(archive: Archive, ask: LogAsk, now_utc_ns: int) -> LogAnswer:
    """Return numbers about the lines that `ask` means, with their `limit` commonest shapes."""
    log = archive.log(ask.port)
    bounds, where = _where(archive, log, ask, now_utc_ns)
    if where is None:
        return LogAnswer({**_nothing(ask.port, log, bounds), "shapes": []}, ())
    found = read_stats(log, where, _filter(ask), ask.limit)
    body: Json = {
        "port": ask.port,
        "first": found.first,
        "last": found.last,
        "lines": found.lines,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "lines_per_s": round(found.lines / found.seconds, 2) if found.seconds else None,
        "peak": {"at": iso(found.peak_utc_ns), "lines_in_1_s": found.peak_lines},
        "longest_pause": {"seconds": found.silence_s, "after": found.silence_after},
        "levels": found.levels,
        "boots": [{"boot": boot, "first": seq} for boot, seq in found.boots],
        "shapes": [_shape(s) for s in found.shapes],
        "lines_of_other_shapes": found.lines - sum(s.count for s in found.shapes),
        "gaps": _gaps(log, found.first, found.last),
        "is_complete": found.is_complete,
        "log": list(bounds or ()),
        "no_data": not found.lines,
    }
    seen = {line.seq: line for s in found.shapes for line in (s.first, s.last)}
    return LogAnswer(body, tuple(seen.values()))


def _where(
    archive: Archive, log: LogView, ask: LogAsk, now_utc_ns: int
) -> tuple[tuple[int, int] | None, LogRange | None]:
    """Return the bounds of the log and the range that is meant, None for either if empty."""
    if (bounds := log.bounds()) is None:
        return None, None
    first, last = bounds
    if ask.boot is not None:
        first, last = boot_range(log, ask.boot, bounds)
    if ask.marker is not None:
        first = max(first, _marker(archive, ask))
    if ask.since is not None:
        since = log.seq_at(_moment(ask.since, now_utc_ns))
        first = last + 1 if since is None else max(first, since)
    if ask.until is not None:
        # Not up to the first line that is later: the clock may have been set back after that.
        until = log.last_seq_at(_moment(ask.until, now_utc_ns) - 1)
        last = first - 1 if until is None else min(last, until)
    first = max(first, ask.first or 0)
    last = min(last, last if ask.last is None else ask.last)
    begins = (ask.first, ask.since, ask.boot, ask.marker)
    is_backward = all(where is None for where in begins)
    return bounds, LogRange(first, last, is_backward) if first <= last else None


def boot_range(log: LogView, number: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """Return the lines of a boot; 0 is what came before the first one that was seen.

    Raises:
        RefusedError: there is no such boot in the log.

    """
    starts = [(boot, seq) for boot, seq, _ in log.boots()]
    if number == 0:
        return bounds[0], (starts[0][1] - 1 if starts else bounds[1])
    if number < 0:
        at = len(starts) + number
    else:
        at = next((i for i, (boot, _) in enumerate(starts) if boot == number), -1)
    if not 0 <= at < len(starts):
        known = f"boots {starts[0][0]} to {starts[-1][0]}" if starts else "no boot was seen"
        raise RefusedError("precondition", f"no boot {number} in the log of the port; {known}")
    return starts[at][1], (starts[at + 1][1] - 1 if at + 1 < len(starts) else bounds[1])


def _marker(archive: Archive, ask: LogAsk) -> int:
    known = load_markers(archive.database, ask.port) if archive.database else []
    for marker in sorted(known, key=lambda m: -m.id):
        if marker.id == ask.marker or (
            isinstance(ask.marker, str)
            and ask.marker.lower() in f"{marker.kind} {marker.text}".lower()
        ):
            return marker.seq
    raise RefusedError("precondition", f"{ask.port} has no marker {ask.marker!r}")


def _moment(when: str, now_utc_ns: int) -> int:
    try:
        return parse_since(when, now_utc_ns, utc_ns)
    except ValueError:
        raise RefusedError("invalid_args", f"{when!r}: a date in ISO 8601, or -10m") from None


def _filter(ask: LogAsk) -> LineFilter:
    return LineFilter(ask.level, parse_match(ask.match))


def _rows(rows: Sequence[Row]) -> list[Json]:
    """Return rows; a boot is given where it changes."""
    shown: list[Json] = []
    boot = None
    for row in rows:
        one: Json = {"seq": row.seq, "at": iso(row.utc_ns), "text": row.text}
        if row.last_utc_ns:
            one["last_byte_at"] = iso(row.last_utc_ns)
        if row.times > 1:
            one |= {"times": row.times, "last_seq": row.last_seq}
        if row.boot != boot:
            one["boot"] = boot = row.boot
        shown.append(one)
    return shown


def _gaps(log: LogView, first: int, last: int) -> list[Json]:
    """Return where bytes are missing between two lines."""
    return [
        {"seq": gap.seq, "lost_bytes": gap.lost_bytes or None, "where": gap.place}
        for gap in log.gaps()
        if first <= gap.seq <= last
    ][:MAX_GAPS]


def _shape(found: Shape) -> Json:
    return {
        "shape": found.text,
        "count": found.count,
        "first": found.first.seq,
        "last": found.last.seq,
        "example": shortened(readable(found.first.raw), MAX_CHARS),
    }


def _nothing(port: str, log: LogView, bounds: tuple[int, int] | None) -> Json:
    """Return that a range is empty, and what the log has instead."""
    body: Json = {"port": port, "first": None, "last": None, "log": list(bounds or ())}
    if bounds is None:
        return {**body, "no_data": True, "why": "nothing was recorded on this port yet"}
    ends = [next(log.lines(*bounds, 1, reverse=end), None) for end in (False, True)]
    times = " to ".join(iso(line.utc_ns) for line in ends if line is not None)
    why = f"the range is empty; the log has L{bounds[0]} to L{bounds[1]}, {times}"
    return {**body, "no_data": True, "why": why}
