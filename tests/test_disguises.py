"""Logs of which the same must be told whatever cables, loggers and terminal programs did to them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import pytest

from disguises import PROMPTS, Disguise, Log, disguises
from live_port import LivePort
from own_streams import STREAMS, Stream
from serialwatch.bundled import bundled_dir
from serialwatch.records import SEVERITIES, Incident
from serialwatch.saved.analysis import Pipeline
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules

S = 1_000_000_000
BURST = 512  # bytes that a live port reads at once
ERROR = SEVERITIES.index("error")

# Where a disguise does change something, and why it cannot be otherwise.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "torn-telling-in-three": {
        "crazyflie-crtp-assert": (
            "of `SYS: Cr`, `azy`, `flie 2.1 is up and running!` the name may be any words; only that "
            "whole lines have a tag tells that it is one, and most lines before it are pieces, too"
        ),
        "linux-foreign-rootfs": (
            "a panic is told at once, and that of `No working in` may have any reason: a program for "
            "another processor leads to one without an init"
        ),
        "rtthread-fault-mqtt": (
            "`h`, `ard fault` is a crash of any firmware and told at once; ` on thread: mqtt0` comes "
            "too late to make it RT-Thread's"
        ),
    },
}


@dataclass(frozen=True)
class Told:
    """What a log led to."""

    boots: int
    severities: dict[str, int]  # the highest of each trigger of an incident
    first_lines: dict[str, frozenset[int]]
    telling: frozenset[int]  # lines in which something was found


@cache
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


def told(data: bytes) -> Told:
    """Return what is told of a saved log; many a disguise leaves many a log as it is."""
    digest = sha256(data).digest()
    if digest not in _told:
        _told[digest] = _told_anew(data)
    return _told[digest]


_told: dict[bytes, Told] = {}


def _told_anew(data: bytes) -> Told:
    pipeline = Pipeline(matcher())
    pipeline.read(io.BytesIO(data), lambda _: None)
    incidents = [pipeline.in_file(incident) for incident in pipeline.incidents()]
    starts = {
        n for n in range(1, pipeline.next_seq) if pipeline.boot_of(n) > pipeline.boot_of(n - 1)
    }
    hits = {line for i in incidents for hit in i.hits for line in hit.samples}
    return Told(pipeline.boots, *_by_trigger(incidents), frozenset(starts | hits))


def told_live(data: bytes) -> Told:
    """Return what is told of bytes as they come: 10 kB/s in bursts, and the board stays silent."""
    port = LivePort(matcher())
    for at in range(0, len(data), BURST):
        port.passes(S // 20)
        port.prints(data[at : at + BURST])
    port.passes(S // 4, times=60)
    incidents = list(port.incidents.values())
    return Told(port.boots, *_by_trigger(incidents), frozenset())


def _by_trigger(incidents: list[Incident]) -> tuple[dict[str, int], dict[str, frozenset[int]]]:
    severities: dict[str, int] = {}
    first_lines: dict[str, frozenset[int]] = {}
    for i in incidents:
        severity = SEVERITIES.index(i.severity)
        severities[i.trigger] = max(severities.get(i.trigger, 0), severity)
        first_lines[i.trigger] = first_lines.get(i.trigger, frozenset()) | {i.first_seq}
    return severities, first_lines


@cache
def undisguised(stream: Stream) -> tuple[Log, Told]:
    before = told(stream.data)
    return Log(stream.data, stream.first_fault_line, before.telling), before


@pytest.mark.parametrize("disguise", disguises(), ids=lambda disguise: disguise.name)
def test_a_disguise_changes_nothing(disguise: Disguise) -> None:
    exceptions = {
        stream
        for name, streams in EXCEPTIONS.items()
        if disguise.name == name
        for stream in streams
    }
    changed = {
        stream.id: changes
        for stream in STREAMS
        if stream.id not in exceptions and (changes := list(_changes(stream, disguise)))
    }

    assert changed == {}


def _changes(stream: Stream, disguise: Disguise) -> Iterator[str]:
    """Yield what differs; a warning may come or go."""
    log, before = undisguised(stream)
    if disguise.is_live:
        before, now = told_live(log.data), told_live(disguise.put_on(log))
    else:
        now = told(disguise.put_on(log))
    if now.boots != before.boots:
        yield f"{now.boots} boots, not {before.boots}"
    for trigger in before.severities.keys() | now.severities.keys():
        was, severity = before.severities.get(trigger, 0), now.severities.get(trigger, 0)
        if max(was, severity) >= ERROR and not (was and severity):
            yield f"{trigger} is {'lost' if was else 'new'}"
        elif was >= ERROR:
            for line in before.first_lines[trigger]:
                if not now.first_lines[trigger].intersection(disguise.lines(log, line)):
                    lines = sorted(now.first_lines[trigger])
                    yield f"{trigger} is in line {lines}, not {line}"


def test_every_exception_is_a_stream() -> None:
    named = {stream for streams in EXCEPTIONS.values() for stream in streams}

    assert named <= {stream.id for stream in STREAMS}


def test_a_listing_that_is_followed_is_news() -> None:
    oops = b"Jun 22 03:58:12 board kernel: BUG: kernel NULL pointer dereference, address: 0000\n"
    listed = told(b"a\n" + PROMPTS[0] + b"journalctl -k\n" + oops)
    followed = told(b"a\n" + PROMPTS[0] + b"journalctl -kf\n" + oops)

    assert "linux.oops" not in listed.severities
    assert "linux.oops" in followed.severities
