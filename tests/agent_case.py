"""Cases of the offline analyst: what boards print over time, and what a report must say about it.

A case is a folder of `agent_cases/` with `case.toml` and what each port prints, `log.txt` for dut1
and `<port>.txt` for others. It is played through the real triggers, incidents, database and skills;
no clock is waited for. A line that begins with `@@` is an order to the player:

    @@ at 12.5          the next line comes 12.5 s after the start
    @@ wait 240         nothing for so many seconds
    @@ every 500        from here on a line takes so many milliseconds (20 at first)
    @@ repeat 90 TEXT   so many lines; {n} counts from 0, {t} is the time in seconds
    @@ noise 400        so many bytes that are no text, as of a wrong bit rate
    @@ lost / @@ back   the port goes away, and comes back
    @@ overrun 7        the PC's UART has counted so many overruns by now (framing: likewise)
    @@ mark flash       somebody put a marker
    @@ sent ada         ada sent the next line through serialwatch
"""

from __future__ import annotations

import random
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench_analysis import S, knowledge, matcher, skills
from bench_incident import START_UTC_NS
from serialwatch.agent.archive import Archive
from serialwatch.agent.offline.analyst import investigate
from serialwatch.agent.offline.case import Surroundings
from serialwatch.agent.workers.direct import DirectTools, LineLog
from serialwatch.agent.workers.tools import RunTools
from serialwatch.incidents.incidents import Incidents
from serialwatch.records import Boot, Finding, Incident, Line, Lines, Marker, Ready, Report
from serialwatch.store.boots import save_boot, save_marker, save_ready
from serialwatch.store.incidents import save_change
from serialwatch.store.memories import write_memory
from serialwatch.store.memory_gate import memory_from_json
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.watch import PortWatch, WatchOptions
from skill_run import opened_database

CASES = Path(__file__).parent / "agent_cases"
AFTER_S = 130  # that the bench is watched after the last line
TICK_NS = S // 2


@dataclass(frozen=True, slots=True)
class Case:
    """One case as it is written down."""

    name: str
    title: str
    tags: tuple[str, ...]
    about: str  # trigger of the incident that is judged, "" for the most severe one
    port: str
    prints: Mapping[str, str]  # by port
    devices: Mapping[str, str]  # by port
    memories: tuple[Mapping[str, Any], ...]
    expect: Mapping[str, Any]


@dataclass(slots=True)
class Played:
    """What came of a case."""

    lines: dict[str, list[Line]] = field(default_factory=dict)  # by port
    incidents: dict[int, Incident] = field(default_factory=dict)  # as they stand in the end
    boots: list[Boot] = field(default_factory=list)
    readies: list[Ready] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    sent: dict[str, dict[int, str]] = field(default_factory=dict)  # by port and line: who

    def judged(self, case: Case) -> Incident | None:
        """Return the incident that the case is about, None if there is none."""
        own = [i for i in self.incidents.values() if i.port == case.port]
        own = [i for i in own if i.severity != "note"]
        if case.about:
            own = [i for i in own if i.trigger == case.about]
        order = ("note", "warning", "error", "critical")
        return max(own, key=lambda i: (order.index(i.severity), i.id), default=None)


@dataclass(frozen=True, slots=True)
class Told:
    """The report on a case's incident; `report` is None where there is no incident."""

    case: Case
    played: Played
    incident: Incident | None
    report: Report | None
    tools: RunTools | None
    seconds: float  # from the wake to the report


def load_cases(pattern: str = "*") -> list[Case]:
    """Return the cases whose folder has that name."""
    return [_case(path.parent) for path in sorted(CASES.glob(f"{pattern}/case.toml"))]


def _case(folder: Path) -> Case:
    told = tomllib.loads((folder / "case.toml").read_text())
    port = told.get("port", "dut1")
    prints = {
        "dut1" if path.stem == "log" else path.stem: path.read_text("utf-8")
        for path in sorted(folder.glob("*.txt"))
    }
    return Case(
        name=folder.name,
        title=told["title"],
        tags=tuple(told["tags"]),
        about=told.get("about", ""),
        port=port,
        prints=prints,
        devices=told.get("devices", {}),
        memories=tuple(told.get("memory", ())),
        expect=told["expect"],
    )


async def told(case: Case, folder: Path) -> Told:
    """Play a case, with its database in `folder`, and return what the analyst reports."""
    played = play(case)
    incident = played.judged(case)
    if incident is None:
        return Told(case, played, None, None, None, 0.0)
    path = folder / f"{case.name}.db"
    _store(case, played, incident, path)
    linked = [played.incidents[i] for i in incident.linked if i in played.incidents]
    around = Surroundings(neighbours=tuple(linked), writer="", sent=played.sent.get(case.port, {}))
    async with _Bench(case, played, path) as bench:
        tools = bench.open("run-1", incident.id)
        began_s = time.monotonic()
        report = await investigate(incident, tools, "settled", None, around)
        took_s = time.monotonic() - began_s
    return Told(case, played, incident, report, tools, took_s)


def play(case: Case) -> Played:
    """Return what the daemon would have seen, and two minutes more."""
    played = Played()
    incidents = Incidents(next_id=17)
    watches = {
        port: PortWatch(port, matcher(), WatchOptions(bit_rate=115_200, can_vanish=True))
        for port in case.prints
    }
    seqs = dict.fromkeys(case.prints, 0)
    events = sorted(
        (event for port, text in case.prints.items() for event in _events(port, text, case)),
        key=lambda event: event.at_ns,
    )
    end_ns = events[-1].at_ns + AFTER_S * S
    now_ns = 0

    def take(findings: Sequence[Finding]) -> None:
        for finding in findings:
            if isinstance(finding, Boot):
                played.boots.append(finding)
            elif isinstance(finding, Ready):
                played.readies.append(finding)
            for change in incidents.found(finding):
                played.incidents[change.incident.id] = change.incident

    def pass_time(until_ns: int) -> None:
        nonlocal now_ns
        while now_ns < until_ns:
            now_ns = min(now_ns + TICK_NS, until_ns)
            for watch in watches.values():
                take(watch.tick(now_ns, START_UTC_NS + now_ns))
            for change in incidents.tick(now_ns, START_UTC_NS + now_ns):
                played.incidents[change.incident.id] = change.incident

    for port, watch in watches.items():
        device = case.devices.get(port, f"/dev/ttyUSB-{port}")
        take(watch.port_state("up", "", device, 0, START_UTC_NS))
    pass_time(12 * S)  # a boot right after an open is nobody's fault
    for event in events:
        pass_time(event.at_ns)
        watch, utc_ns = watches[event.port], START_UTC_NS + event.at_ns
        match event.kind:
            case "line":
                seqs[event.port] += 1
                seq = seqs[event.port]
                line = Line(
                    event.port, seq, event.raw.rstrip(b"\r"), 0, utc_ns, utc_ns, event.at_ns
                )
                played.lines.setdefault(event.port, []).append(line)
                if event.who:
                    played.sent.setdefault(event.port, {})[seq] = event.who
                take(watch.fed(Lines(seq, 1, event.raw + b"\n", event.at_ns, utc_ns)))
                incidents.lines(event.port, 1, event.at_ns)
            case "lost":
                take(watch.port_state("absent", "unplugged", "", event.at_ns, utc_ns))
            case "back":
                device = case.devices.get(event.port, f"/dev/ttyUSB-{event.port}")
                take(watch.port_state("up", "", device, event.at_ns, utc_ns))
            case "mark":
                watch.marked(event.who, event.at_ns)
                number = len(played.markers) + 1
                played.markers.append(
                    Marker(number, event.port, seqs[event.port] + 1, event.who, event.who, "ada",
                           event.at_ns, utc_ns)
                )  # fmt: skip
            case "overrun" | "framing":
                told = Counters(**{event.kind: int(event.who)})
                take(watch.counters(told, event.at_ns, utc_ns))
    pass_time(end_ns)
    for port, lines in played.lines.items():
        boots = [b for b in played.boots if b.port == port]
        played.lines[port] = [
            replace(x, boot=max((b.number for b in boots if b.seq <= x.seq), default=0))
            for x in lines
        ]
    return played


@dataclass(frozen=True, slots=True)
class _Event:
    at_ns: int
    port: str
    kind: str
    raw: bytes = b""
    who: str = ""


def _events(port: str, text: str, case: Case) -> Iterator[_Event]:
    at_s, step_s, who = 15.0, 0.02, ""
    chance = random.Random(f"{case.name} {port}")
    for given in text.rstrip("\n").split("\n"):
        word, _, rest = given.removeprefix("@@ ").partition(" ")
        if not given.startswith("@@ "):
            word = ""
        raws: list[bytes] = []
        match word:
            case "at":
                at_s = max(at_s, 15.0 + float(rest))
            case "wait":
                at_s += float(rest)
            case "every":
                step_s = float(rest) / 1000
            case "repeat":
                count, _, form = rest.partition(" ")
                raws = [
                    form.replace("{n}", str(n)).replace("{t}", f"{at_s + n * step_s:.6f}").encode()
                    for n in range(int(count))
                ]
            case "noise":
                raws = _noise(int(rest), chance)
            case "sent":
                who = rest
            case "lost" | "back":
                yield _Event(round(at_s * S), port, word)
            case "mark" | "overrun" | "framing":
                yield _Event(round(at_s * S), port, word, who=rest)
            case _:
                raws = [given.replace("\\e", "\x1b").encode()]
        for raw in raws:
            at_s += step_s
            yield _Event(round(at_s * S), port, "line", raw, who)
            who = ""


def _noise(count: int, chance: random.Random) -> list[bytes]:
    """Return bytes as they come at a wrong bit rate, cut where one of them is an LF."""
    data = bytes(
        chance.choice(b"\x00\x80\xe0\xf8\xfe\x1c\x8c\xc7\xff\x9e\xf0\n") for _ in range(count)
    )
    return data.split(b"\n")


def _store(case: Case, played: Played, judged: Incident, path: Path) -> None:
    with opened_database(path) as db:
        for incident in played.incidents.values():
            save_change(db, incident)
        for boot in played.boots:
            save_boot(db, boot)
        for ready in played.readies:
            save_ready(db, ready)
        for marker in played.markers:
            save_marker(db, marker)
        for memory in case.memories:
            body = dict(memory)
            days = body.pop("days_ago", 9)
            if body.pop("is_same", False):
                body["fingerprint"] = judged.fingerprint
            write_memory(db, memory_from_json(body), judged.opened_utc_ns - days * 24 * 3600 * S)


class _Bench(DirectTools):
    """Skills over the logs and the database of a case."""

    def __init__(self, case: Case, played: Played, db_path: Path) -> None:
        super().__init__(case.port, (), skills(), knowledge())
        self._archive.close()
        logs = {port: LineLog(lines) for port, lines in played.lines.items()}
        self._archive = Archive(logs.get, db_path)
