"""A live port whose bytes and clock are ours: the real reader, the rules and the incidents."""

from __future__ import annotations

from collections.abc import Iterable

from serialwatch.capture.reader import Reader, Sink
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.incidents.incidents import Incidents
from serialwatch.records import Boot, Finding, Incident, IncidentChange, Lines
from serialwatch.store.log_format import Cut
from serialwatch.store.log_items import NewFile
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.watch import PortWatch
from serialwatch_drivers.port import PortOptions, UartCounters

S = 1_000_000_000
NAME = "dut1"


def cut(parts: Iterable[bytes]) -> tuple[list[Lines], bytes]:
    """Return the lines that a port makes of bytes that come at one time, and the unfinished one."""
    port = CutPort()
    for part in parts:
        port.prints(part)
    return port.lines, port.reader.partial()


class LivePort:
    """A port with all that follows it; what it finds is in `boots` and `incidents`."""

    def __init__(self, matcher: Matcher) -> None:
        self.boots = 0
        self.incidents: dict[int, Incident] = {}
        self._watch = PortWatch(NAME, matcher)
        self._made = Incidents(1)
        self._now_ns = S
        self._reader = _reader(Ring(NAME, RingBudget()), self)

    def prints(self, data: bytes) -> None:
        """Read bytes, all at one time."""
        self._reader._take(data, self._now_ns, self._now_ns)

    def passes(self, step_ns: int, times: int = 1) -> None:
        """Let time pass."""
        for _ in range(times):
            self._now_ns += step_ns
            self._reader.tick(self._now_ns)
            self._tell(self._watch.tick(self._now_ns, self._now_ns))
            self._note(self._made.tick(self._now_ns, self._now_ns))

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None:
        pass

    def on_lines(self, reader: Reader, lines: Lines) -> None:
        self._tell(self._watch.fed(lines, may_wait=True))
        self._made.lines(NAME, lines.count, lines.mono_ns)

    def on_partial(self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> None:
        self._tell(self._watch.partial(seq, text, mono_ns, utc_ns))

    def on_state(self, reader: Reader) -> None:
        pass

    def on_counters(self, reader: Reader, counters: UartCounters) -> None:
        pass

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            self.boots += isinstance(finding, Boot)
            self._note(self._made.found(finding))

    def _note(self, changes: list[IncidentChange]) -> None:
        for change in changes:
            self.incidents[change.incident.id] = change.incident


class CutPort:
    """A port of which only the lines matter."""

    def __init__(self) -> None:
        self.lines: list[Lines] = []
        self.partials: list[tuple[int, bytes]] = []
        self.ring = Ring(NAME, RingBudget())
        self.reader = _reader(self.ring, self)
        self._now_ns = S

    @property
    def texts(self) -> list[bytes]:
        return [text for block in self.lines for text in block.text.split(b"\n")[:-1]]

    @property
    def files(self) -> list[tuple[Cut, str, int]]:
        """Why each file ended, how lines of the next end, its first; that forgets what is queued."""
        return [(i.why, i.eol, i.seq) for i in self.ring.take() if isinstance(i, NewFile)]

    def prints(self, data: bytes) -> None:
        self.reader._take(data, self._now_ns, self._now_ns)

    def passes(self, step_ns: int) -> None:
        self._now_ns += step_ns
        self.reader.tick(self._now_ns)

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None:
        pass

    def on_lines(self, reader: Reader, lines: Lines) -> None:
        self.lines.append(lines)

    def on_partial(self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> None:
        self.partials.append((seq, text))

    def on_state(self, reader: Reader) -> None:
        pass

    def on_counters(self, reader: Reader, counters: UartCounters) -> None:
        pass


def _reader(ring: Ring, sink: Sink) -> Reader:
    reader = Reader(NAME, "exec:", PortOptions(), "auto", ring, sink)
    reader.number_from(1, 0)
    return reader
