"""What rules look up to answer a question: skills that tell, and lines that can be cited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from serialwatch.agent.archive import Archive
from serialwatch.agent.offline.case import name
from serialwatch.agent.questions.answer_draft import AnswerDraft
from serialwatch.agent.questions.question import Question
from serialwatch.agent.questions.question_forms import Event
from serialwatch.agent.questions.time_words import in_utc
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.workers.tools import Call, Tools
from serialwatch.records import SEVERITIES, ConclusionKind, Incident, Line, NextStep, Report
from serialwatch.store.boots import BootRow, load_boots
from serialwatch.store.incidents import load_incident
from serialwatch.store.reports import load_report
from serialwatch.wire import Json, iso, utc_ns

T = TypeVar("T")

MAX_TOLD = 5  # incidents that are told one by one
MAX_PORTS = 6  # whose logs are read for one answer
MAX_PAGES = 8  # of incidents: what fits into one result is 7 to 20
MAX_CITED = 12  # lines that `log-expand` takes at once
MAX_BOOTS = 200  # counted
MAX_SEARCHED = 60  # incidents whose own lines are searched for a word
USUAL_HOURS = 24  # where no time is named
USUAL_DAYS = 30  # where it matters what was last

ANY_FAULT = re.compile(
    r"(?:new |any |open )?(?:errors?|incidents?|faults?|problems?|issues|failures|trouble)"
)
_OF_EVENT: Mapping[Event, re.Pattern[str]] = {
    "reset": re.compile(r"reset|reboot|watchdog|brownout|boot[._]|power"),
    "hang": re.compile(r"hang|hung|silence|lockup|stall|stuck|not_finished|watchdog|deadlock"),
    "crash": re.compile(r"panic|oops|abort|crash|fault|guru|overflow|assert|exception|fatal"),
}
EVENT_NAMES: Mapping[Event, str] = {
    "": "incident",
    "reset": "reset",
    "hang": "hang",
    "crash": "crash",
}


class Lookup:
    """One question while rules answer it: the ports it is about, and the answer as it grows."""

    def __init__(
        self,
        question: Question,
        ports: Sequence[str],
        tools: Tools,
        archive: Archive,
        draft: AnswerDraft,
    ) -> None:
        self.asked = question
        self.ports = tuple(question.ports or ports)
        self.tools = tools
        self.archive = archive
        self.draft = draft
        self.last_id = ""  # of the last call's result, those that only fetch lines left out
        self.told_in: dict[int, str] = {}  # the result that tells of an incident, by its id
        self.status_id = ""  # of the result that told how a port stands

    async def call(self, skill: str, params: Mapping[str, Any]) -> Call:
        """Call a skill."""
        call = await self.tools.call(skill, params)
        self.last_id = call.id
        return call

    async def past(self, work: Callable[[Archive], T]) -> T | None:
        """Return what the database or a log says, None if it cannot be read."""
        try:
            return await self.archive.ask(work)
        except RefusedError:
            self.draft.not_checked.append("what the database has: it cannot be read now")
            return None

    def reply(self, word: str) -> None:
        """Begin the answer with a word if the question wants a yes or a no."""
        if self.asked.asks:
            self.draft.reply = word

    @property
    def is_of_a_time(self) -> bool:
        """Return whether the question names the time that it is about."""
        return self._is_bound

    def say_bare(self, claim: str) -> None:
        """Say what the last call shows by having found nothing."""
        calls = [call.id for call in self.tools.calls if call.is_good]
        self.draft.say(claim, results=calls[-1:])

    def when(self, usual: str) -> str:
        """Return the time that is meant, as a part of a sentence; `usual` if none was named."""
        asked = self.asked
        if asked.span is not None:
            self.draft.know(asked.span.told)
            return f" {asked.span.told}"
        if asked.marker:
            return f" since the {asked.marker}"
        if asked.boot is not None:
            self.draft.know(asked.boot)
            word = "since" if asked.is_from_boot else "in"
            which = {-1: "the last boot", -2: "the boot before"}.get(
                asked.boot, f"boot {asked.boot}"
            )
            return f" {word} {which}"
        if self.is_all:
            return " as far back as is known"
        self.draft.know(USUAL_HOURS, USUAL_DAYS)
        return f" {usual}" if usual else ""

    @property
    def usual(self) -> str:
        """Return the time that is looked at where none is named, as a part of a sentence."""
        return f"in the last {f'{USUAL_DAYS} days' if self.is_long else f'{USUAL_HOURS} hours'}"

    @property
    def is_long(self) -> bool:
        """Return whether no time is named, and it matters what was last, however long ago."""
        asked = self.asked
        if self._is_bound:
            return False
        is_one = asked.kind == "what_happened" and bool(asked.event)
        return is_one or asked.kind in ("why", "knowledge")

    @property
    def is_all(self) -> bool:
        """Return whether all that is known counts, however old."""
        return (self.asked.is_ever or self.asked.turn == "first") and not self._is_bound

    @property
    def _is_bound(self) -> bool:
        """Return whether the question names the time that it is about."""
        asked = self.asked
        return asked.span is not None or asked.boot is not None or bool(asked.marker)

    def leading(self, rows: Sequence[Json]) -> Json | None:
        """Return the incident of the moment or the turn that is asked for, None if none is."""
        if not rows:
            return None
        if self.moment is not None:
            return min(rows, key=self.distance_s)
        by_time = sorted(rows, key=lambda row: utc_ns(row["fault_at"]))
        return {"first": by_time[0], "last": by_time[-1]}.get(self.asked.turn)

    @property
    def moment(self) -> datetime | None:
        """Return the moment that is asked about, None for a span or no time."""
        return None if self.asked.span is None else self.asked.span.at

    def distance_s(self, row: Json) -> float:
        """Return how far an incident is from the moment, which is a minute long."""
        return self.seconds_from_moment(utc_ns(row["fault_at"]))

    def seconds_from_moment(self, at_utc_ns: int) -> float:
        """Return how far a time is from the moment that is asked about."""
        assert self.moment is not None
        after_s = at_utc_ns / 1e9 - self.moment.timestamp()
        return max(-after_s, after_s - 60, 0.0)

    async def about(self, rows: Sequence[Json], word: str) -> list[Json]:
        """Return the incidents that are about a topic by their name or by their own lines."""
        others = [int(row["id"]) for row in rows if not is_about(row, word)]
        if len(others) > MAX_SEARCHED:
            self.draft.not_checked.append("whether older incidents have it in their lines")
        search = partial(_with_lines, numbers=others[:MAX_SEARCHED], word=word)
        own = await self.past(search) or frozenset()
        return [row for row in rows if is_about(row, word) or row["id"] in own]

    def where(self) -> str:
        """Return the boards that are meant, as a part of a sentence."""
        if len(self.ports) == 1:
            return f"on {self.ports[0]}"
        return f"on {' and '.join(self.ports)}" if self.asked.is_named else "on the bench"

    def leave_out_ports(self) -> None:
        """Say which logs were not read, for there are too many."""
        if rest := self.ports[MAX_PORTS:]:
            self.draft.not_checked.append(f"the log of {', '.join(rest)}: ask for them by name")

    def leave_out_incidents(self, rows: Sequence[Json]) -> None:
        """Say which incidents were counted and not told, by how bad they are."""
        if not rows:
            return
        counts = Counter(row["severity"] for row in rows)
        told = ", ".join(f"{counts[s]} {s}" for s in reversed(SEVERITIES) if counts[s])
        self.draft.not_checked.append(
            f"{self.draft.count(len(rows), 'more incident')} ({told}): "
            "`serialwatch incidents --all` has them"
        )
        self.draft.know(told)

    def point_to_reports(self, rows: Sequence[Json]) -> None:
        """Say where there is more to read about incidents."""
        self.draft.know(*(row["id"] for row in rows))
        for row in sorted(rows, key=gravity, reverse=True)[:2]:
            self.draft.steps.append(NextStep(f"`serialwatch report {row['id']}` has the details"))

    def tell_incident(self, row: Json, line: Line | None, call: Call, before: str = "") -> None:
        """Tell of an incident in a sentence that begins so, and its cause in another."""
        draft = self.draft
        at = draft.at(utc_ns(row["fault_at"]))
        board = "" if len(self.ports) == 1 else f"{row['port']}: "
        outcome = f"; then it {row['outcome']}" if row.get("outcome") else ""
        title = concluded(row)
        if row.get("outcome") and re.search(r"\b(?:reset|reboot\w*|halted|silent)\b", title):
            outcome = ""
        results = [self.told_in.get(row["id"], call.id)]
        draft.know(row["id"])
        claim = f"{before}{at}: {board}{title}{outcome} (#{row['id']})."
        draft.say(claim, [line], results=results)
        causes = (row.get("report") or {}).get("causes") or ()
        for cause in causes[:1]:
            is_sure = row["report"].get("verdict") == "confirmed"
            kind: ConclusionKind = "cause" if is_sure else "inference"
            draft.say(cause, [line], results=results, kind=kind)

    async def incidents(self, *, only: str = "", is_event: bool = True) -> tuple[list[Json], Call]:
        """Return the incidents that are meant, newest first, and the call that told them."""
        asked = self.asked
        ports = (only,) if only else self.ports
        params: Json = {"limit": 30}
        if len(ports) == 1:
            params["port"] = ports[0]
        if asked.span is not None:
            params["since"] = in_utc(asked.span.since)
        elif not self._is_bound and not self.is_all:
            params["since"] = self._ago(USUAL_DAYS * 24 if self.is_long else USUAL_HOURS)
        elif asked.marker and (since := await self.marker_time(ports[0])):
            params["since"] = since
        found, call = await self._history(params)
        rows = [r for r in found if r["port"] in ports]
        if asked.span is not None:
            until = in_utc(asked.span.until)
            rows = [r for r in rows if utc_ns(r["opened_at"]) < utc_ns(until)]
        if asked.boot is not None:
            number = await self.boot_number(ports[0])
            rows = [
                r for r in rows
                if (r["boot"] >= number if asked.is_from_boot else r["boot"] == number)
            ]  # fmt: skip
        if is_event and asked.event:
            rows = [r for r in rows if fits(r, asked.event)]
        return rows, call

    async def _history(self, params: Json) -> tuple[list[Json], Call]:
        """Return incidents page by page, newest first, and the call that told the first of them."""
        call = first = await self.call("incident-history", params)
        rows: dict[int, Json] = {}
        for page in range(1, MAX_PAGES + 1):
            output = call.result.output
            told = output.get("incidents") or ()
            for row in told:
                rows.setdefault(row["id"], row)
                self.told_in.setdefault(row["id"], call.id)
            if not told or (output.get("found", 0) <= len(told) and output.get("is_all", True)):
                break
            oldest_ns = utc_ns(told[-1]["opened_at"])
            if page == MAX_PAGES or len({row["opened_at"] for row in told}) == 1:
                at = self.draft.at(oldest_ns)
                self.draft.not_checked.append(f"incidents before {at}: there are too many")
                break
            # Two may have opened in the same moment: the last one is told again.
            until = iso(oldest_ns + 1_000)
            call = await self.call("incident-history", {**params, "until": until})
        return list(rows.values()), first

    def _ago(self, hours: int) -> str:
        """Return a time before the question was asked; it may be answered much later."""
        return in_utc(self.draft.now - timedelta(hours=hours))

    async def first_lines(self, rows: Sequence[Json]) -> dict[int, Line]:
        """Return the fault line of each incident, read so that it can be cited."""
        found: dict[int, Line] = {}
        by_port: dict[str, list[Json]] = {}
        for row in rows:
            # A detector's fault has no line of its own: the one that it stands at must do.
            if seq := row.get("first_seq") or row.get("last_seq"):
                by_port.setdefault(row["port"], []).append({"id": row["id"], "seq": seq})
        for port, wanted in by_port.items():
            lines = {x.seq: x for x in await self.read(port, [w["seq"] for w in wanted])}
            found |= {w["id"]: lines[w["seq"]] for w in wanted if w["seq"] in lines}
        return found

    async def cited_lines(
        self, incident: Incident, report: Report | None
    ) -> dict[tuple[str, int], Line]:
        """Read the lines on which a report rests, as many as one call takes from each port."""
        wanted: dict[str, list[int]] = {incident.port: [incident.first_seq or incident.last_seq]}
        for told in report.conclusions[:6] if report else ():
            for evidence in told.evidence[:3]:
                wanted.setdefault(evidence.port, []).append(evidence.seq)
        wanted[incident.port].append(incident.outcome_seq)
        found: dict[tuple[str, int], Line] = {}
        for port, seqs in list(wanted.items())[:3]:
            found |= {(port, line.seq): line for line in await self.read(port, seqs)}
        return found

    async def read(self, port: str, seqs: Iterable[int]) -> list[Line]:
        """Return lines by number, read by a skill unless they were before."""
        wanted = [seq for seq in dict.fromkeys(seqs) if seq > 0]
        ledger = self.tools.ledger
        fresh = [seq for seq in wanted if (port, seq) not in ledger][:MAX_CITED]
        if fresh:
            last_id = self.last_id
            await self.call("log-expand", {"port": port, "lines": fresh, "before": 0, "after": 0})
            self.last_id = last_id or self.last_id
        return [line for seq in wanted if (line := ledger.get((port, seq))) is not None]

    async def window(self, port: str) -> Json:
        """Return the span that is meant as the parameters of a skill that reads the log."""
        asked = self.asked
        if asked.span is not None:
            return {"since": in_utc(asked.span.since), "until": in_utc(asked.span.until)}
        if asked.marker:
            return {"marker": asked.marker}
        if asked.boot is None:
            return {}
        if not asked.is_from_boot:
            return {"boot": asked.boot}
        number = await self.boot_number(port)
        starts = await self.past(partial(_starts, port=port)) or {}
        return {"first": starts[number]} if number in starts else {"boot": asked.boot}

    async def stats(self, port: str, word: str = "", usual: str = "") -> Json | None:
        """Return the numbers of a port's log in the span that is meant, None if it has none."""
        params: Json = {"port": port, "limit": 20, **await self.window(port)}
        if len(params) == 2 and not usual and not self.is_all:
            params["since"] = self._ago(USUAL_HOURS)
        if word:
            params["match"] = matched(word)
        call = await self.call("log-stats", params)
        output = dict(call.result.output)
        return output if call.is_good and not output.get("no_data") else None

    async def boots(self, port: str) -> list[BootRow]:
        """Return the boots in the span that is meant, the newest first."""
        asked = self.asked
        rows = await self.past(partial(_boot_rows, port=port)) or []
        if asked.span is not None:
            first, last = (int(x.timestamp() * 1e9) for x in (asked.span.since, asked.span.until))
            rows = [row for row in rows if first <= row.utc_ns < last]
        elif asked.marker and (since := await self.marker_time(port)):
            rows = [row for row in rows if row.utc_ns >= utc_ns(since)]
        elif asked.boot is not None:
            number = await self.boot_number(port)
            rows = [
                r
                for r in rows
                if (r.number >= number if asked.is_from_boot else r.number == number)
            ]
        return rows

    async def boot_number(self, port: str) -> int:
        """Return the number of the boot that is meant, -1 if there is none."""
        boot = self.asked.boot or 0
        if boot >= 0:
            return boot
        starts = await self.past(partial(_starts, port=port)) or {}
        numbers = sorted(starts)
        return numbers[boot] if len(numbers) >= -boot else -1

    async def marker_time(self, port: str) -> str:
        """Return when the marker was set since which is asked, "" if there is none."""
        call = await self.call("log-read", {"port": port, "marker": self.asked.marker, "limit": 1})
        rows = call.result.output.get("lines") or []
        return str(rows[0]["at"]) if rows else ""

    async def tell_boots(self, port: str) -> None:
        """Tell how often a board booted in the span, if it did."""
        found = await self.boots(port)
        if not found or not (self.asked.span or self.asked.marker or self.asked.is_from_boot):
            return
        if self.moment is not None:
            found.sort(key=lambda boot: self.seconds_from_moment(boot.utc_ns))
        boots = sorted(found[:MAX_TOLD], key=lambda boot: boot.number)
        draft = self.draft
        lines = await self.read(port, [boot.seq for boot in boots])
        for boot, line in zip(boots, lines, strict=False):
            draft.mark(line, f"boot #{boot.number}")
        draft.know(*(boot.number for boot in boots))
        times = ", ".join(f"{draft.at(b.utc_ns)} (boot {b.number})" for b in boots)
        if more := len(found) - len(boots):
            those = "these and others" if self.moment is None else "these next to it, and others"
            draft.not_checked.append(f"{draft.count(more, 'more boot')}: {those} were seen")
        draft.say(f"It booted at {times}.", lines)

    def any_line_of(self, port: str, boot: int) -> list[Line]:
        """Return a line of a boot that was read: who names a boot must have seen it."""
        lines = (x for x in self.tools.ledger.values() if x.port == port and x.boot == boot)
        return [line] if (line := next(lines, None)) is not None else []


def ends_of(stats: Json) -> list[int]:
    """Return the first and the last line of counted ones."""
    return [int(stats[key]) for key in ("first", "last") if stats.get(key)]


def told_of(boot: BootRow) -> str:
    """Return a boot by its number and, where the board says it, its cause."""
    cause = "" if boot.cause == "unknown" else f", {boot.cause.replace('_', ' ')}"
    return f"(boot {boot.number}{cause})"


def concluded(row: Json) -> str:
    """Return an incident in one sentence: as its report has it, else its title."""
    report = row.get("report") or {}
    return name(str(report.get("title") or row["title"]), 110).rstrip(".")


def fits(row: Json, event: Event) -> bool:
    """Tell whether an incident is what is asked about."""
    if not event:
        return True
    if event == "reset" and row.get("outcome") == "rebooted":
        return True
    if event == "hang" and row.get("outcome") == "halted":
        return True
    if event == "crash" and row["severity"] == "critical":
        return True
    return _OF_EVENT[event].search(row["trigger"]) is not None


def is_about(row: Json, word: str) -> bool:
    """Tell whether an incident has all words of a topic."""
    text = f"{row['trigger']} {row['title']} {(row.get('report') or {}).get('title', '')}".lower()
    return all(part in text for part in word.split())


def stem(topic: str) -> str:
    """Return a topic such as "overruns" in the form that lines have."""
    return " ".join(_PLURAL.sub("", word) for word in topic.split())


_PLURAL = re.compile(r"(?<=ps|ss|sh|ch)es$|(?<=[a-z]{3})(?<![su])(?<!\boop)s$")


def gravity(row: Json) -> tuple[int, bool, bool, int]:
    """Return how bad an incident is; of those alike the newest is the worst."""
    return (
        SEVERITIES.index(row["severity"]),
        _OF_EVENT["crash"].search(row["trigger"]) is not None,
        row.get("outcome") in ("rebooted", "halted"),
        utc_ns(row["fault_at"]) if row.get("fault_at") else int(row["id"]),
    )


def plural(word: str) -> str:
    """Return the plural of a noun."""
    return f"{word}es" if word.endswith("sh") else f"{word}s"


def matched(topic: str) -> str:
    """Return what `match` of the log's skills takes; `|` would be read as an "or"."""
    return stem(topic.replace("|", " "))[:200]


def incident_of(archive: Archive, number: int) -> Incident | None:
    """Return an incident, None if there is none."""
    return load_incident(archive.database, number) if archive.database is not None else None


def report_of(archive: Archive, number: int) -> Report | None:
    """Return the newest report of an incident, None if there is none."""
    return load_report(archive.database, number) if archive.database is not None else None


def _boot_rows(archive: Archive, port: str) -> list[BootRow]:
    """Return the boots of a port, newest first, as the database has them, else as the log has."""
    rows = load_boots(archive.database, port, limit=MAX_BOOTS) if archive.database else []
    known = {row.number: row for row in rows}
    try:
        starts = archive.log(port).boots()
    except RefusedError:
        return rows
    for number, seq, at in starts:
        if number not in known:
            known[number] = BootRow(port, number, seq, at, "", "unknown", False, "", None, None)
    return sorted(known.values(), key=lambda row: -row.number)[:MAX_BOOTS]


def _with_lines(archive: Archive, numbers: Sequence[int], word: str) -> frozenset[int]:
    """Return the incidents of which a line of their own has a word."""
    found = set()
    for number in numbers:
        incident = incident_of(archive, number)
        if incident is None:
            continue
        seqs = {incident.first_seq, *(seq for hit in incident.hits for seq in hit.samples)} - {0}
        try:
            log = archive.log(incident.port)
        except RefusedError:
            continue
        lines = (line for seq in sorted(seqs) for line in log.lines(seq, seq))
        if any(word in readable(line.raw).lower() for line in lines):
            found.add(number)
    return frozenset(found)


def _starts(archive: Archive, port: str) -> dict[int, int]:
    try:
        return {number: seq for number, seq, _ in archive.log(port).boots()}
    except RefusedError:
        return {}
