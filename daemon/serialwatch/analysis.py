"""A saved log through the same pipeline as a live port: bytes, lines, hits, incidents, report."""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from serialwatch.agent.analyst import investigate
from serialwatch.agent.direct import DirectTools
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.skills import Registry
from serialwatch.incidents import Incidents
from serialwatch.lines import AUTO_CR_AFTER, MAX_LINE, Eol, Splitter
from serialwatch.records import (
    SEVERITIES,
    Boot,
    Finding,
    Incident,
    IncidentChange,
    Line,
    Lines,
    Report,
)
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.watch import PortWatch

PORT = "log"  # the name of the port in a report on a saved log
CHUNK = 64 * 1024  # bytes
NOMINAL_BIT_RATE = 115200  # bit/s: how fast time passes where no stamp tells it
BEFORE_LINES = 400  # of an incident that its report may read
AFTER_LINES = 300

_PACKERS = {  # the first bytes of what each of them makes
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_S = 1_000_000_000
_BYTE_NS = 10 * _S // NOMINAL_BIT_RATE
_STAMP = re.compile(
    rb"^(?:\x1b\[[0-9;]*m)*(?:"
    rb"\[ *(?P<s>\d{1,7})\.(?P<us>\d{6})\]"  # Linux
    rb"|[EWIDV] \((?P<ms>\d{1,10})\) "  # ESP-IDF
    rb"|\[(?P<h>\d\d):(?P<m>\d\d):(?P<sec>\d\d)\.(?P<z>\d{3})[,.]\d{3}\]"  # Zephyr
    rb")",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in one log; line numbers are the file's own."""

    lines: int
    size: int  # bytes
    boots: int  # first-stage starts, commanded ones and sleep wake-ups included
    ecosystems: tuple[str, ...]
    incidents: tuple[Incident, ...]  # in the order of their first line
    report: Report | None  # on the most severe one
    seconds: float


@dataclass(slots=True)
class _Clock:
    """Time as the log tells it: by stamps in its lines, else by its bytes at a nominal rate."""

    now_ns: int = _S
    _stamp_ns: int | None = None

    def passed(self, text: bytes) -> Iterator[tuple[bytes, int]]:
        """Cut `text` where a stamp says that time went by; give each piece its time."""
        start = 0
        for match in _STAMP.finditer(text):
            stamp_ns = _stamp_ns(match)
            before, self._stamp_ns = self._stamp_ns, stamp_ns
            if before is not None and stamp_ns - before > _S // 5:
                at = match.start()
                if at > start:
                    yield text[start:at], self._step(text[start:at])
                    start = at
                self.now_ns += stamp_ns - before
        if start < len(text):
            yield text[start:], self._step(text[start:])

    def _step(self, text: bytes) -> int:
        self.now_ns += len(text) * _BYTE_NS
        return self.now_ns


@dataclass(slots=True)
class _Numbers:
    """Which line of the file a numbered piece stands in: pieces of a cut line share one."""

    cuts: list[int] = field(default_factory=list)  # numbers of pieces that continue a line

    def line_of(self, seq: int) -> int:
        """Return the line of the file."""
        return seq - sum(cut <= seq for cut in self.cuts)


class Pipeline:
    """Reads one log from front to back."""

    def __init__(self, matcher: Matcher, first_id: int = 1) -> None:
        self._watch = PortWatch(PORT, matcher)
        self._incidents = Incidents(first_id)
        self._clock = _Clock()
        self._found: dict[int, Incident] = {}
        self._splitter = Splitter("lf")
        self._numbers = _Numbers()
        self.next_seq = 1
        self.size = 0
        self._starts: list[int] = []  # numbers of the lines that began a boot

    def read(self, source: BinaryIO, progress: Callable[[int], None]) -> None:
        """Read all of it; `progress` gets the number of bytes of each step."""
        first = source.read(CHUNK)
        self._splitter = Splitter(eol_of(first))
        chunk = first
        while chunk:
            self.size += len(chunk)
            self._feed(chunk)
            progress(len(chunk))
            chunk = source.read(CHUNK)
        if rest := self._splitter.partial():
            self._take(rest + b"\n", 1)
        self._end()

    def incidents(self) -> tuple[Incident, ...]:
        """Return what was found, numbered as the pieces are, in order."""
        return tuple(sorted(self._found.values(), key=lambda i: (i.block_first, i.id)))

    def in_file(self, incident: Incident) -> Incident:
        """Return the incident with the file's own line numbers."""
        line_of = self._numbers.line_of
        hits = tuple(
            replace(
                h,
                first_seq=line_of(h.first_seq),
                last_seq=line_of(h.last_seq),
                samples=tuple(map(line_of, h.samples)),
            )
            for h in incident.hits
        )
        return replace(
            incident,
            first_seq=line_of(incident.first_seq),
            block_first=line_of(incident.block_first),
            last_seq=line_of(incident.last_seq),
            outcome_seq=line_of(incident.outcome_seq),
            hits=hits,
        )

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return self._numbers.line_of(self.next_seq - 1)

    @property
    def boots(self) -> int:
        """How many first-stage starts it shows."""
        return len(self._starts)

    def boot_of(self, seq: int) -> int:
        """Return the number of the boot that a line belongs to, 0 before the first."""
        return bisect_right(self._starts, seq)

    @property
    def ecosystems(self) -> tuple[str, ...]:
        """What the banners in the log show."""
        return tuple(sorted(self._watch.ecosystems))

    def _feed(self, chunk: bytes) -> None:
        """Feed a chunk; line by line where a line may be so long that it is cut."""
        longest = max(map(len, chunk.split(b"\n")))
        if self._splitter.partial_bytes + longest < MAX_LINE:
            text, count = self._splitter.feed(chunk)
            if count:
                self._take(text, count)
            return
        for part in chunk.splitlines(keepends=True):
            text, count = self._splitter.feed(part)
            if not count:
                continue
            ends = part.endswith((b"\n", b"\r")) and not self._splitter.partial_bytes
            first_of_line = self.next_seq
            self._take(text, count)
            pieces = count if ends else count + 1
            self._numbers.cuts += range(first_of_line + 1, first_of_line + pieces)

    def _take(self, text: bytes, count: int) -> None:
        for part, mono_ns in self._clock.passed(text):
            lines = part.count(b"\n")
            self._tell(self._watch.tick(mono_ns, mono_ns))
            fed = Lines(self.next_seq, lines, part, mono_ns, mono_ns)
            self._tell(self._watch.fed(fed))
            self._incidents.lines(PORT, lines, mono_ns)
            self._note(self._incidents.tick(mono_ns, mono_ns))
            self.next_seq += lines

    def _end(self) -> None:
        """Let what is open settle; what the board did after the end of the log is not known."""
        for step in range(1, 8):
            now_ns = self._clock.now_ns + step * _S
            self._tell(self._watch.tick(now_ns, now_ns))
            self._note(self._incidents.tick(now_ns, now_ns))

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            if isinstance(finding, Boot):
                self._starts.append(finding.seq)
            self._note(self._incidents.found(finding))

    def _note(self, changes: list[IncidentChange]) -> None:
        for change in changes:
            self._found[change.incident.id] = change.incident


def eol_of(first: bytes) -> Eol:
    """Return how the lines of a log end, judged by its first bytes."""
    is_cr = b"\r" in first and b"\n" not in first[: max(AUTO_CR_AFTER, first.find(b"\r") + 2)]
    return "cr" if is_cr and first.count(b"\r") > first.count(b"\n") else "lf"


async def analyze(
    source: BinaryIO,
    matcher: Matcher,
    registry: Registry,
    knowledge: Knowledge,
    progress: Callable[[int], None] = lambda _: None,
) -> Analysis:
    """Analyze a log that can be read twice; memory does not grow with its size."""
    began_s = time.monotonic()
    pipeline = Pipeline(matcher)
    pipeline.read(source, progress)
    found = pipeline.incidents()
    report = None
    if chosen := most_severe(found):
        source.seek(0)
        lines = _window(source, chosen, pipeline)
        async with DirectTools(PORT, lines, registry, knowledge) as tools:
            report = await investigate(chosen, tools.open("analyze"), "settled", None)
    return Analysis(
        lines=pipeline.lines,
        size=pipeline.size,
        boots=pipeline.boots,
        ecosystems=pipeline.ecosystems,
        incidents=tuple(map(pipeline.in_file, found)),
        report=report,
        seconds=time.monotonic() - began_s,
    )


def most_severe(incidents: tuple[Incident, ...]) -> Incident | None:
    """Return the incident to report on: the most severe one, the first of them."""
    return max(incidents, key=lambda i: SEVERITIES.index(i.severity), default=None)


def _window(source: BinaryIO, incident: Incident, pipeline: Pipeline) -> list[Line]:
    """Return the lines around an incident, read again from the start of the log."""
    first = max(1, incident.block_first - BEFORE_LINES)
    last = max(incident.last_seq, incident.outcome_seq) + AFTER_LINES
    found: list[Line] = []
    chunk = source.read(CHUNK)
    splitter = Splitter(eol_of(chunk))
    seq = 1
    while chunk and seq <= last:
        text, count = splitter.feed(chunk)
        if seq + count > first:
            found += _lines(text, seq, first, last, pipeline.boot_of)
        seq += count
        chunk = source.read(CHUNK)
    if not chunk and splitter.partial_bytes and seq <= last:
        found += _lines(splitter.partial() + b"\n", seq, first, last, pipeline.boot_of)
    return found


def _lines(
    text: bytes, seq: int, first: int, last: int, boot_of: Callable[[int], int]
) -> Iterator[Line]:
    for number, raw in enumerate(text.split(b"\n")[:-1], seq):
        if first <= number <= last:
            yield Line(PORT, number, raw.rstrip(b"\r"), boot_of(number), 0, 0, 0)


def _stamp_ns(match: re.Match[bytes]) -> int:
    if match["s"]:
        return int(match["s"]) * _S + int(match["us"]) * 1000
    if match["ms"]:
        return int(match["ms"]) * 1_000_000
    seconds = (int(match["h"]) * 60 + int(match["m"])) * 60 + int(match["sec"])
    return seconds * _S + int(match["z"]) * 1_000_000


def open_log(path: str | Path) -> BinaryIO:
    """Open a saved log so that it can be read twice, unpacked if it is a gzip file.

    Raises:
        OSError: missing, not readable, or packed in a way that is not unpacked here.

    """
    return readable_twice(open(path, "rb"))


def readable_twice(source: BinaryIO) -> BinaryIO:
    """Return what an open log, pipe or gzip file holds as a file; raises as `open_log`."""
    if not source.seekable():
        with source:
            source = _kept(source)
    start = source.read(max(map(len, _PACKERS)))
    source.seek(0)
    packer = next((name for magic, name in _PACKERS.items() if start.startswith(magic)), None)
    if packer == "gzip":
        return _Gzip(source)  # type: ignore[return-value]  # reads and seeks
    if packer is not None:
        source.close()
        raise OSError(
            f"packed by {packer}: unpack it first: {packer} -dc FILE | serialwatch analyze -"
        )
    return source


def _kept(source: BinaryIO) -> BinaryIO:
    kept = tempfile.TemporaryFile()  # noqa: SIM115 -- its reader closes it
    shutil.copyfileobj(source, kept, 1 << 20)
    kept.seek(0)
    return kept


class _Gzip(gzip.GzipFile):
    """A gzip file whose damage is an OSError, whichever part of it is damaged."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except EOFError as exc:
            raise OSError("damaged: the file ends before its gzip data does") from exc
        except (zlib.error, gzip.BadGzipFile) as exc:
            raise OSError(f"damaged gzip data: {exc}") from exc

    def close(self) -> None:
        super().close()
        self._packed.close()  # GzipFile closes only what it opened itself
