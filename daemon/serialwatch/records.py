"""What moves through serialwatch: lines, hits, boots, incidents and reports.

Everything here is frozen and holds no behaviour beyond small derived values. `*_ns` fields are
nanoseconds: `mono_ns` of CLOCK_MONOTONIC, `utc_ns` since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from serialwatch.line import Line as Line  # noqa: PLC0414 -- apart, for `logs` needs no other

OWN_PORT = "serialwatch"  # the pseudo-port of faults of the daemon itself: nobody's neighbour

Severity = Literal["note", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = ("note", "warning", "error", "critical")  # mildest first

Tier = Literal["generic", "family", "specific"]
TIERS: tuple[Tier, ...] = ("generic", "family", "specific")  # vaguest first

BootCause = Literal[
    "power_on", "commanded", "sleep_wake", "watchdog", "panic", "brownout", "unknown"
]
State = Literal["open", "investigating", "reported", "resolved", "muted"]
Outcome = Literal["halted", "rebooted", "continued"]
Verdict = Literal["confirmed", "likely", "inconclusive"]
ConclusionKind = Literal["observation", "inference", "cause"]
Risk = Literal["L1", "L2", "L3"]
PortState = Literal["absent", "opening", "up", "busy", "denied", "released", "flapping", "broken"]


@dataclass(frozen=True, slots=True)
class Lines:
    """Complete lines of one port as they came, in one block.

    `text` holds exactly `count` LF bytes, each the end of one line: where a line was cut, or ended
    by CR on a CR console, an LF stands in its place. CRs before an LF are still there.
    """

    first_seq: int
    count: int
    text: bytes
    mono_ns: int  # when the last byte of the block was read
    utc_ns: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule or a detector recognised something."""

    port: str
    trigger: str  # id of the rule or detector
    severity: Severity
    tier: Tier
    title: str  # readable, fields filled in, no control characters
    key: str  # hits with equal trigger and key are the same fault
    seq: int  # the fault line; 0 where no line carries the fault
    block_first: int  # first line of the evidence, at most `seq`
    boot: int
    mono_ns: int
    utc_ns: int
    raw: bytes = b""  # the line, at most 4 KiB
    fields: Mapping[str, str] = field(default_factory=dict)
    ecosystem: str = ""
    knowledge: str = ""  # page id, "" for none
    parent: str = ""  # the vaguer rule this one sharpens
    holdoff_s: float = 300.0
    opens_block: bool = False
    continues: bool = False  # only adds to what is open
    # Of a crash: the lesser faults that may have led to it, `pack.*` is any of one, `*` any at all;
    # after any other one it leads. None: whatever came before it leads.
    led_by: tuple[str, ...] | None = None
    count: int = 1  # lines up to `seq` that hit; above 1 in a flood, where most are only counted


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """The lines of a fault are complete."""

    port: str
    trigger: str  # of the hit that opened the block
    first_seq: int
    last_seq: int
    mono_ns: int
    utc_ns: int
    reason: Literal["end", "boot", "prompt", "length", "quiet"]


@dataclass(frozen=True, slots=True)
class Boot:
    """A first-stage start of a device."""

    port: str
    number: int  # counts from 1 per port
    seq: int
    ecosystem: str
    cause: BootCause
    marker: str  # the text that told, no control characters
    mono_ns: int
    utc_ns: int
    is_expected: bool = False  # commanded, asleep, or inside a window of a marker


@dataclass(frozen=True, slots=True)
class Ready:
    """A device finished its boot (a login prompt, a shell, ...), or works after a fault."""

    port: str
    seq: int
    boot: int
    mono_ns: int
    utc_ns: int


Finding = Hit | BlockEnd | Boot | Ready


@dataclass(frozen=True, slots=True)
class HitCount:
    """All hits of one trigger in one incident."""

    trigger: str
    severity: Severity
    tier: Tier
    title: str
    first_seq: int
    last_seq: int
    first_utc_ns: int
    last_utc_ns: int
    count: int
    samples: tuple[int, ...]  # seqs, oldest first, at most 20
    fields: Mapping[str, str] = field(default_factory=dict)
    knowledge: str = ""  # page id, "" for none


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of one port, with everything that belongs to it."""

    id: int
    port: str
    state: State
    trigger: str  # the primary rule or detector
    severity: Severity
    tier: Tier
    title: str
    key: str
    fingerprint: str  # the same fault on another day or board has the same one
    ecosystem: str
    knowledge: str
    fields: Mapping[str, str]
    boot: int
    first_seq: int  # the fault line; 0 where no line carries the fault
    block_first: int
    last_seq: int
    opened_mono_ns: int
    opened_utc_ns: int
    last_mono_ns: int
    last_utc_ns: int
    count: int  # hits of the primary key
    hits: tuple[HitCount, ...]  # primary first, then by first_seq
    is_settled: bool = False
    outcome: Outcome | None = None
    outcome_cause: str = ""  # of a reboot: its BootCause
    outcome_seq: int = 0
    linked: tuple[int, ...] = ()  # incidents of other ports within the same second
    seen_before: tuple[int, ...] = ()  # earlier incidents with the same fingerprint, newest first
    firmware: str = ""
    muted_until_utc_ns: int | None = None  # 0: until unmuted
    resolved_by: str = ""

    @property
    def fault_utc_ns(self) -> int:
        """Return when the fault came that it is named after; another may have opened it."""
        lead = next((h for h in self.hits if h.trigger == self.trigger), None)
        return lead.first_utc_ns if lead else self.opened_utc_ns

    @property
    def first_sign(self) -> HitCount | None:
        """Return the first other fault before the one that it is named after, None without."""
        at = self.block_first or self.first_seq, self.fault_utc_ns
        earlier = (
            h
            for h in self.hits
            if h.trigger != self.trigger
            and h.severity != "note"
            and not h.trigger.startswith(("boot.", "link."))
            and not h.trigger.endswith(".unexpected_reboot")
            and h.tier != "generic"
            and (h.first_seq < at[0] if h.first_seq and at[0] else h.first_utc_ns < at[1])
        )
        return min(earlier, key=lambda h: (h.first_utc_ns, h.first_seq), default=None)

    @property
    def end_seq(self) -> int:
        """Return the last line that is known to belong to it, also since it has settled."""
        return max([self.last_seq, *(h.last_seq for h in self.hits if h.severity != "note")])


IncidentWhat = Literal["opened", "changed", "settled", "outcome", "resolved", "muted"]


@dataclass(frozen=True, slots=True)
class Lead:
    """What an incident was named after, and how severe it was."""

    trigger: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """An incident was opened or changed; `incident` is how it stands now."""

    what: IncidentWhat
    incident: Incident
    was: Lead | None = None  # as it was told before, if it is more severe or has another lead now


@dataclass(frozen=True, slots=True)
class Marker:
    """A named point of a port's log."""

    id: int
    port: str
    seq: int  # the line it stands before
    kind: str  # note, reset, flash, attach, send, open
    text: str
    who: str
    mono_ns: int
    utc_ns: int
    is_on_disk: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line that a claim rests on."""

    port: str
    seq: int
    quote: str  # a part of the line, at least 8 characters or the whole of it

    @property
    def ref(self) -> str:
        """Return the line as people write it, e.g. `dut1:L48211`."""
        return f"{self.port}:L{self.seq}"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One claim of a report and what it rests on."""

    id: str  # c1, c2, ...
    kind: ConclusionKind
    claim: str
    evidence: tuple[Evidence, ...] = ()
    knowledge: tuple[str, ...] = ()  # page ids
    results: tuple[str, ...] = ()  # ids of skill results
    rests_on: tuple[str, ...] = ()  # ids of other conclusions


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A possible class of the fault and how it fared."""

    fault_class: str  # a rule or detector id, or "unknown"
    text: str
    score: float  # 0..1
    status: Literal["confirmed", "refuted", "open"]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line worth seeing in the order of time."""

    port: str
    seq: int
    utc_ns: int
    text: str  # sanitised line
    note: str = ""  # e.g. "first fault line", "boot #7"


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something a person could do next."""

    text: str
    risk: Risk = "L1"


@dataclass(frozen=True, slots=True)
class Claims:
    """How many claims the verifier let pass and how many it dropped."""

    verified: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a report took."""

    skills: int = 0  # calls
    model_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    model: str = ""  # "" if none was asked
    reason: str = ""  # why no model was asked, or why its answer was not used
    price: float = 0.0  # in the currency of the configured prices, 0 if they are not known


@dataclass(frozen=True, slots=True)
class Report:
    """Report v1: what is known of one incident."""

    incident: int
    revision: int  # counts from 1 per incident
    made_by: str  # "offline analyst" or "model NAME"
    title: str
    fault_class: str  # "class" in JSON: a rule or detector id, or "unknown"
    severity: Severity
    verdict: Verdict
    confidence: float  # 0..1
    hypotheses: tuple[Hypothesis, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    unknowns: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    not_checked: tuple[str, ...] = ()
    claims: Claims = Claims(0, 0)
    cost: Cost = Cost()
    v: int = 1


SkillStatus = Literal["success", "failure", "require_more"]


@dataclass(frozen=True, slots=True)
class SkillResult:
    """What a skill answers; every value in it is JSON."""

    status: SkillStatus
    output: Mapping[str, Any]
    new_memories: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class PortStats:
    """Counters of one port since the daemon started; written by the loop alone."""

    rx_bytes: int = 0
    rx_lines: int = 0
    invalid_bytes: int = 0  # of those read: no part of any UTF-8 character
    tx_bytes: dict[str, int] = field(default_factory=dict)  # by source: attach, send, reset
    opens: dict[str, int] = field(default_factory=dict)  # by result: ok, absent, busy, ...
    boots: int = 0
    reconnects: int = 0
    lost_bytes: dict[str, int] = field(default_factory=dict)  # by place: uart, tty, log, client
    uart_errors: dict[str, int] = field(default_factory=dict)  # by kind, supported kinds only
    log_bytes: int = 0
    last_rx_utc_ns: int = 0


class LogCalls(Protocol):
    """`ctx.log`: the lines of a port. Each line served is noted as read in this run."""

    async def lines(
        self,
        port: str = "",  # "": the port of the run
        *,
        first: int | None = None,  # line number
        last: int | None = None,
        since: str | None = None,  # ISO 8601, or `-10m` (s, m, h, d) before now
        until: str | None = None,
        boot: int | None = None,  # -1: the newest, -2: the one before it
        marker: int | str | None = None,  # id, or a part of its text: from there on
        level: Severity | None = None,  # lines that look at least so severe
        match: str | None = None,  # words that must all occur; `|` between alternatives
        limit: int = 100,  # lines of the answer; repeats are folded into one
    ) -> dict[str, Any]:
        """Return lines of a range."""
        ...

    async def stats(
        self,
        port: str = "",
        *,
        first: int | None = None,
        last: int | None = None,
        since: str | None = None,
        until: str | None = None,
        boot: int | None = None,
        marker: int | str | None = None,
        level: Severity | None = None,
        match: str | None = None,
        limit: int = 20,  # shapes of the answer
    ) -> dict[str, Any]:
        """Return rates, levels, boots and the most frequent shapes of a range."""
        ...

    async def compare(
        self,
        port: str = "",
        *,
        boot: int | None = None,  # None: that of the incident, or the newest
        base: int | None = None,  # None: the last good one before it
        limit: int = 20,  # shapes of each kind in the answer
    ) -> dict[str, Any]:
        """Return how one boot differs from another: new and missing lines, times, counts."""
        ...


class KnowledgeCalls(Protocol):
    """`ctx.knowledge`: the pages that explain faults."""

    async def search(
        self, query: str, *, ecosystem: str | None = None, limit: int = 3
    ) -> dict[str, Any]:
        """Return the pages that fit some words best."""
        ...

    async def get(self, id: str) -> dict[str, Any]:
        """Return one page."""
        ...


class MemoryCalls(Protocol):
    """`ctx.memory`: what the bench learned earlier; `write` from L2 on."""

    async def search(
        self, query: str, *, port: str | None = None, type: str | None = None, limit: int = 5
    ) -> dict[str, Any]:
        """Return the memories that fit some words best."""
        ...

    async def write(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Store a memory if it passes the gate."""
        ...


class ResultCalls(Protocol):
    """`ctx.results`: answers of earlier calls in this run, whole."""

    async def read(
        self, id: str, *, start: int = 0, limit: int = 4000, match: str | None = None
    ) -> dict[str, Any]:
        """Return a part of a result."""
        ...


class ReportCalls(Protocol):
    """`ctx.report`, from L2 on."""

    async def submit(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Hand in a draft; the answer says what the verifier refused."""
        ...


class SnapshotCalls(Protocol):
    """`ctx.snapshot`: states of a port that were kept; `write` from L2 on."""

    async def read(
        self, name: str | None = None, *, port: str = "", id: int | None = None, limit: int = 2
    ) -> dict[str, Any]:
        """Return the snapshots under a name, newest first; without a name, the names."""
        ...

    async def write(self, name: str, body: Mapping[str, Any], *, port: str = "") -> dict[str, Any]:
        """Keep a state under a name beside the earlier ones; return its id."""
        ...


class HumanCalls(Protocol):
    """`ctx.human`: the people of the bench."""

    async def ask(
        self, question: str, *, known: str = "", missing: str = "", options: Sequence[str] = ()
    ) -> NoReturn:
        """End the skill with a question; the answer comes to a later run."""
        ...


class ModelCalls(Protocol):
    """`ctx.model`: the cheap model, for mechanical work on text."""

    async def complete(self, prompt: str, *, max_tokens: int = 300) -> dict[str, Any]:
        """Return `{"text": ...}`; it counts in the budget of the run."""
        ...


class ConsoleCalls(Protocol):
    """`ctx.console`, L3: each call is one step of an action that a person approves first."""

    async def send(self, text: str, *, port: str = "") -> dict[str, Any]:
        """Send exactly this text; return `before_seq`, the line it may be answered from.

        `before_text` is what stood in that line already, such as a prompt: no answer.

        While an action is proposed nothing is sent, and `is_rehearsal` is true: do not wait then.
        """
        ...


class BoardPort(str):
    """`ctx.port`: the name of the run's port, and as L3 what can be done to it; as `ConsoleCalls`.

    "" if the run is about no port.
    """

    __slots__ = ()

    async def reset(self, *, port: str = "") -> dict[str, Any]:
        """Reset the board in the way its configuration says."""
        raise NotImplementedError

    async def set_lines(
        self, *, dtr: bool | None = None, rts: bool | None = None, port: str = ""
    ) -> dict[str, Any]:
        """Set modem lines; None leaves one alone."""
        raise NotImplementedError

    async def send_break(self, ms: int, *, port: str = "") -> dict[str, Any]:
        """Send a break of so many milliseconds."""
        raise NotImplementedError


class SkillContext(Protocol):
    """What `ctx` is to a skill: the only way from its process to the bench.

    A call that the skill's risk does not allow, or that makes no sense, raises; left alone, the
    exception becomes the failure that the caller sees.
    """

    run_id: str
    step: int
    port: BoardPort
    incident: int | None
    deadline_s: float  # time.monotonic() at which the skill is killed
    data_dir: Path | None  # of the session; the only place where a skill may write
    skill_dir: Path
    elf: Path | None  # firmware of the port that `port` of the parameters, or the run, names
    log: LogCalls
    knowledge: KnowledgeCalls
    memory: MemoryCalls
    results: ResultCalls
    report: ReportCalls
    snapshot: SnapshotCalls
    human: HumanCalls
    model: ModelCalls
    console: ConsoleCalls

    async def ports(self) -> dict[str, Any]:
        """Return the state of every port."""
        ...

    async def incidents(
        self,
        *,
        id: int | None = None,
        port: str | None = None,
        state: str | None = None,
        trigger: str | None = None,
        fingerprint: str | None = None,
        since: str | None = None,  # ISO 8601, or `-10m` (s, m, h, d) before now
        until: str | None = None,
        reports: bool | None = None,  # with what the newest report of each concludes
        limit: int = 10,
    ) -> dict[str, Any]:
        """Return incidents, the newest first."""
        ...

    async def mark(self, text: str, *, port: str = "") -> dict[str, Any]:
        """Set a marker before the next line of a port, from L2 on; return its id and place."""
        ...

    async def accept(self, what: str) -> dict[str, Any]:
        """Say that this is a long job: the caller goes on at once, the result comes later."""
        ...

    async def call(self, skill: str, params: Mapping[str, Any]) -> SkillResult:
        """Run another skill, never above this one's risk."""
        ...
