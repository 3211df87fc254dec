"""What the API asks of the service behind it, and how ports look in JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from serialwatch.records import Incident, Marker, PortState, Report, Severity, State
from serialwatch.store.approvals import ApprovalState
from serialwatch.store.memory_gate import MemoryFilter, NewMemory
from serialwatch.verdict import judged
from serialwatch.wire import Json, iso, utc_ns

T = TypeVar("T")

ErrorCode = Literal[
    "not_found",  # 404
    "not_allowed",  # 403: the configuration forbids it
    "not_now",  # 409: the port is not up, the incident is resolved already, ...
    "bad_request",  # 400
    "failed",  # 502: the device or the disk did not do it
    "echo_mismatch",  # 502: the board did not show what was sent to it
]


WriteSource = Literal["attach", "send", "pty"]
AuditAction = Literal[
    "release", "take_back", "pty",
    "send", "attach", "lines", "break", "reset", "mark", "resolve", "mute", "unmute", "answer",
    "remember", "correct", "forget", "approve", "deny",
]  # fmt: skip


class BenchError(Exception):
    """The bench does not do what was asked; `hint` says what would help, "" if nothing does.

    `sent` counts the bytes that reached the device before a write failed.
    """

    def __init__(self, code: ErrorCode, message: str, hint: str = "", sent: int = 0) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.hint = hint
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Who:
    """The person or program that asks, as others and the audit see it."""

    uid: int
    user: str
    pid: int


@dataclass(frozen=True, slots=True)
class HostMessage:
    """What the PC's own kernel said about a port's adapter or the socket it is plugged into."""

    utc_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class PortView:
    """How a port stands now."""

    name: str
    device: str  # as it was configured
    state: PortState
    since_utc_ns: int  # of the state
    bit_rate: int | None  # None where the device has none (a program, a network socket)
    may_write: bool  # the port's configuration allows it
    boot: int  # 0: none seen
    next_seq: int  # number of the next line; 0 while numbers are not known yet
    open_incidents: int
    problem: str = ""  # why it is not up, with what to do about it
    holder: str = ""  # of a busy port
    opened: str = ""  # path that was opened, links resolved
    far_end: str = ""  # of `pty:`: what the other side may open
    eol: str = "auto"
    last_rx_utc_ns: int = 0  # 0: nothing yet
    rx_bytes: int = 0  # these count since the daemon started
    rx_lines: int = 0
    tx_bytes: Mapping[str, int] = field(default_factory=dict)  # by source
    boots: int = 0
    reconnects: int = 0
    lost_bytes: Mapping[str, int] = field(default_factory=dict)  # by place
    uart_errors: Mapping[str, int] = field(default_factory=dict)  # by kind, counted ones only
    log_problem: str = ""  # why nothing is written to the log; "" while it is
    tty: str = ""  # what a terminal program may open
    back_utc_ns: int = 0  # when a released port is taken back; 0: when its borrower is done
    others: str = ""  # programs that have the open device open too: they take bytes
    board: str = ""  # that is on it, as the configuration says
    host_messages: Sequence[HostMessage] = ()  # what the PC's kernel said of it lately
    modem_lines: Mapping[str, bool] = field(default_factory=dict)  # while it is silent
    is_stopped: bool = False  # the last byte sent to it is XOFF
    unended: str = ""  # the end of what was sent to it without an Enter


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents are wanted; the newest come first."""

    port: str = ""  # "" for all
    states: frozenset[State] = frozenset({"open", "investigating", "reported", "muted"})
    severity: Severity = "note"  # at least
    since_utc_ns: int = 0  # opened at or after
    limit: int = 100


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident and what only the service knows of it."""

    incident: Incident
    boot_started_utc_ns: int = 0  # 0: unknown
    revisions: int = 0  # reports so far
    is_on_disk: bool = True


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset that was done."""

    before_seq: int  # the first line that the board may have printed after it
    how: str  # e.g. "RTS for 100 ms"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Somebody changed something: `result` is "ok" or what went wrong."""

    who: Who
    action: AuditAction
    port: str
    bytes: int  # that reached the device's driver
    detail: Mapping[str, str]
    result: str


class Loan(Protocol):
    """A port that is lent: closed here, so that another program may open it."""

    @property
    def device(self) -> str:
        """Return the path or address that was open, links resolved."""

    @property
    def ended(self) -> asyncio.Event:
        """Return what is set when the port is taken back."""

    @property
    def ended_by(self) -> str:
        """Return who took it back before it was given back, "" if nobody did."""


class Runs(Protocol):
    """The agent's runs as the API sees them. Coroutines raise BenchError."""

    async def list_runs(self, port: str, incident: int | None, limit: int) -> Sequence[Json]:
        """Return runs in short, the newest first."""

    async def trace(self, run_id: str) -> Json | None:
        """Return all that is stored of a run, None if there is none."""

    async def answer(self, run_id: str, text: str, who: Who) -> Json:
        """Give the answer for which a run waits; it goes on then."""


class OpenQuestion(Protocol):
    """A question that is being answered."""

    @property
    def session_id(self) -> str:
        """Return the id of its session."""

    @property
    def messages(self) -> asyncio.Queue[Json]:
        """Return what is told of it: steps, then an answer or an error."""


class AskedQuestions(Protocol):
    """People's questions as the API sees them."""

    def ask(self, text: str, port: str, who: Who, utc_offset_s: int) -> OpenQuestion:
        """Take a question in; raises BenchError if too many are open."""

    async def stored(self, session_id: str, limit: int) -> list[Json]:
        """Return answers, the newest first; of one session, or all."""

    def leave(self, question: Any) -> None:
        """Note that nobody waits for the answer any more."""


class Memories(Protocol):
    """What the bench remembers, as the API sees it. Coroutines raise BenchError."""

    async def find(self, words: str, wanted: MemoryFilter) -> Sequence[Json]:
        """Return memories, those that fit the words best first; "" lists them all."""

    async def why(self, id: int) -> Json | None:
        """Return where a memory comes from, None if there is none of that number."""

    async def add(self, memory: NewMemory, who: Who) -> Json:
        """Remember what a person says."""

    async def correct(self, id: int, text: str, who: Who) -> Json:
        """Let a person's words take the place of a memory."""

    async def forget(self, id: int, who: Who) -> Json:
        """Delete a memory and return it."""


class Approvals(Protocol):
    """Actions that wait for a person, as the API sees them. Coroutines raise BenchError."""

    async def find(
        self, states: Collection[ApprovalState], port: str, incident: int | None, limit: int
    ) -> Sequence[Json]:
        """Return actions, the newest first."""

    async def get(self, id: str) -> Json | None:
        """Return one, None if there is none."""

    async def decide(
        self, id: str, decision: Literal["approve", "deny"], note: str, who: Who
    ) -> Json:
        """Note what a person says of one; what is approved is done at once."""


class Bench(Protocol):
    """The service as the API sees it. Every method is called on the event loop.

    Plain methods answer at once and do not block; coroutines raise BenchError.
    """

    @property
    def log_dir(self) -> Path:
        """Where the logs lie: one folder a port."""

    @property
    def runs(self) -> Runs:
        """Return the agent's runs."""

    @property
    def memories(self) -> Memories:
        """Return what the bench remembers."""

    @property
    def approvals(self) -> Approvals:
        """Return the actions that wait for people."""

    @property
    def questions(self) -> AskedQuestions:
        """Return people's questions."""

    def ports(self) -> Sequence[PortView]:
        """Return every port, in the order of the configuration."""

    def port(self, name: str) -> PortView | None:
        """Return one port, None if there is none of that name."""

    def recent(self, port: str) -> bytes:
        """Return the newest bytes of a port, at most 256 KiB: all that `on_bytes` told so far."""

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the daemon itself; empty while it is healthy."""

    def lost_at_client(self, port: str, lost_bytes: int) -> None:
        """Count bytes that an attached client was too slow for."""

    async def render(self, work: Callable[[], T]) -> T:
        """Run `work`, which may read files and take its time, in the thread for large answers."""

    async def metrics(self) -> tuple[bytes, str]:
        """Return the metrics and their content type, rendered off the loop."""

    async def incidents(self, wanted: IncidentFilter) -> Sequence[IncidentView]:
        """Return incidents, the newest first, those not on disk yet among them."""

    async def incident(self, incident_id: int) -> IncidentView | None:
        """Return one incident, None if there is none."""

    async def report(self, incident_id: int, revision: int | None) -> Report | None:
        """Return a report of an incident, the newest revision for None."""

    async def write(self, port: str, data: bytes, source: WriteSource) -> int:
        """Send `data` to the device; return the number of the line it may be answered from."""

    async def set_lines(self, port: str, *, dtr: bool | None, rts: bool | None) -> None:
        """Set modem lines; None leaves one alone."""

    async def send_break(self, port: str, duration_s: float) -> None:
        """Send a break condition."""

    async def reset(self, port: str, who: Who) -> Reset:
        """Reset the board in the way its configuration says."""

    async def release(self, port: str, who: Who, words: str, ttl_s: float | None) -> Loan:
        """Close a port and keep it closed: for `ttl_s`, or until `give_back`."""

    def note_command(self, port: str, who: Who, pid: int) -> None:
        """Note the command of a borrower: the port stays closed while it lives, even alone."""

    def give_back(self, loan: Any) -> None:
        """Note that a borrower is done: the port is opened again."""

    def leave(self, loan: Any) -> None:
        """Note that a borrower is out of sight, not done: the daemon or its API stops."""

    async def take_back(self, port: str, who: Who) -> None:
        """Open a released port again, whoever has it."""

    async def mark(self, port: str, kind: str, text: str, who: Who) -> Marker:
        """Set a marker before the next line."""

    async def resolve(self, incident_id: int, who: Who) -> IncidentView:
        """Mark an incident as resolved."""

    async def mute(self, incident_id: int, until_utc_ns: int | None, who: Who) -> IncidentView:
        """Count this fault silently from now on; None: until unmuted."""

    async def unmute(self, incident_id: int, who: Who) -> IncidentView:
        """Undo `mute`."""

    def audit(self, entry: AuditEntry) -> None:
        """Store durably who did what."""


def port_to_json(port: PortView) -> Json:
    """Return the port as `GET /v1/ports`, events and attach have it."""
    body: Json = {name: getattr(port, name) for name in PortView.__dataclass_fields__}
    body = {k: dict(v) if isinstance(v, Mapping) else v for k, v in body.items()}
    for name, short in _TIMES.items():
        at = body.pop(name)
        body[short] = iso(at) if at else None
    body["host_messages"] = [{"at": iso(m.utc_ns), "text": m.text} for m in port.host_messages]
    return body | {"verdict": judged(body)}


def port_from_json(body: Mapping[str, Any]) -> PortView:
    """Return the port that `port_to_json` wrote; keys of a newer daemon are ignored."""
    plain = {k: body[k] for k in PortView.__dataclass_fields__ if k in body}
    for name, short in _TIMES.items():
        at = body.get(short)
        plain[name] = utc_ns(at) if at else 0
    plain["host_messages"] = tuple(
        HostMessage(utc_ns(told["at"]), told["text"]) for told in body.get("host_messages", ())
    )
    return PortView(**plain)


_TIMES = {  # names in JSON
    "since_utc_ns": "since",
    "last_rx_utc_ns": "last_rx_at",
    "back_utc_ns": "back_at",
}
