"""What cables, terminal programs, loggers and people do to a log without changing what it says.

Each disguise is a function of the bytes. A log that was put into one says the same: the same
faults, the same starts, in the same lines, as `Disguise.lines` maps them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zlib import crc32

from serialwatch.saved.clock import LogClock

START = datetime(2026, 6, 22, 3, 58, 12, tzinfo=UTC)
LINES_PER_S = 20  # where the log itself tells no time
PROMPTS = (b"root@board:~# ", b"=> ", b"uart:~$ ")
OTHER_WRITERS = {
    "kernel": b"usb 1-1: new high-spe",
    "user": b"Starting Ser",
}

_S = 1_000_000_000
_MARK_LINES = 40
_LEAST_TORN = 8  # bytes of a line that is torn
_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_END = re.compile(rb"\r*\n?\Z")
_KERNEL_STAMP = re.compile(rb"^\[ *(\d+)\.(\d{6})\] ")
_STAMPED_LINE = re.compile(_KERNEL_STAMP.pattern, re.MULTILINE)
_WORD = re.compile(rb"[^ \r\n]+")


@dataclass(frozen=True, slots=True)
class Log:
    """A log and what is known of its lines."""

    data: bytes
    first_fault_line: int = 0  # 0: none
    telling: frozenset[int] = frozenset()  # lines in which something is found


Change = Callable[[Log], bytes]
Mapped = Callable[[Log, int], range]  # a log and the number of a line -> its lines now
Chosen = Callable[[Log, int, bytes], bool]  # a log, the number of a line, its text


def _same_line(_: Log, number: int) -> range:
    return range(number, number + 1)


@dataclass(frozen=True, slots=True)
class Disguise:
    """A change that changes nothing."""

    name: str
    put_on: Change
    lines: Mapped = _same_line
    is_live: bool = False  # compared as a port reads it, without all of the log before its eyes


def disguises() -> tuple[Disguise, ...]:
    """Return all of them."""
    by_line = {
        "crlf": lambda body, _: body + b"\r\n",
        "cr-cr-lf": lambda body, _: body + b"\r\r\n",
        "nuls": lambda body, _: b"\0\0" + body.replace(b" ", b"\0 ", 1) + b"\r\0\n",
        "colour-words": lambda body, _: _WORD.sub(b"\x1b[32m\\g<0>\x1b[m", body) + b"\r\n",
        "erased-line": lambda body, _: b"\r\x1b[K" + body + b"\r\n",
        "kernel-level": lambda body, _: b"<6>" + body + b"\n",
        "dmesg-x": lambda body, _: b"kern  :err   : " + body + b"\n",
    }
    return (
        *(Disguise(name, _each(change)) for name, change in by_line.items()),
        *(
            Disguise(f"prompt-{_name(prompt)}", _each(lambda b, _, p=prompt: p + b + b"\n"))
            for prompt in PROMPTS
        ),
        Disguise("prompt-to-every-third", _each(_every_third(PROMPTS[2]))),
        Disguise("cr-only", _cr_only, _without_blanks),
        Disguise("cr-only-live", _cr_only, _without_blanks, is_live=True),
        Disguise("doubled", _each(lambda body, _: (body + b"\n") * 2), _doubled),
        *(Disguise(f"writer-{name}", _written_into(text)) for name, text in OTHER_WRITERS.items()),
        Disguise("lost-end", _without_end_before, _one_up),
        *(Disguise(f"wrapped-{n}", _wrapped(n), _wrapped_lines(n)) for n in (80, 132)),
        Disguise("lost-characters", _lossy),
        *(
            Disguise(f"torn{name}", _torn(_one_of_thirty, stamp), _torn_lines(_one_of_thirty))
            for name, stamp in {"": None, "-by-putty": _putty, "-by-syslog": _console}.items()
        ),
        *(
            Disguise(f"telling-torn{name}", _torn(_telling, stamp), _torn_lines(_telling))
            for name, stamp in {"": None, "-by-putty": _putty}.items()
        ),
        *(
            Disguise(
                f"torn{which}-as-a-second-ends",
                _torn(chosen, _putty, pieces_s=1),
                _torn_lines(chosen),
            )
            for which, chosen in {"": _one_of_thirty, "-telling": _telling}.items()
        ),
        *(
            Disguise(
                f"torn{which}-in-three",
                _torn(chosen, None, pieces=3),
                _torn_lines(chosen, pieces=3),
            )
            for which, chosen in {"": _one_of_thirty, "-telling": _telling}.items()
        ),
        *(Disguise(name, _stamped(stamp)) for name, stamp in STAMPS.items()),
        Disguise("other-stamps", _by_one_of({n: _stamped(s) for n, s in OTHER_STAMPS.items()})),
        Disguise(
            "telling-torn-by-others",
            _by_one_of({n: _torn(_telling, s) for n, s in OTHER_STAMPS.items()}),
            _torn_lines(_telling),
        ),
        Disguise("conserver-marks", _with_marks, _with_marks_lines),
        Disguise("dmesg-e", _of_kernels(_dmesg_e)),
        Disguise("journalctl", _of_kernels(_stamped(_journal))),
        Disguise("journalctl-k", _of_kernels(_stamped(_journal, without_kernel_stamps=True))),
        Disguise("kern.log", _of_kernels(_stamped(_kern_log))),
        Disguise("dmesg-T", _stamped(_dmesg_t, without_kernel_stamps=True)),
        Disguise("cat-kern.log", _asked_again("cat /var/log/kern.log", _stamped(_kern_log))),
        Disguise("cat-messages", _asked_again("cat /var/log/messages", _stamped(_journal))),
        *(
            Disguise(
                f"then-{name}", _asked_again(name, _stamped(stamp, without_kernel_stamps=True))
            )
            for name, stamp in {"journalctl -k": _journal, "dmesg -T": _dmesg_t}.items()
        ),
    )


def _putty(at: datetime) -> bytes:
    return f"[{at:%Y-%m-%d %H:%M:%S}] ".encode()


def _minicom(at: datetime) -> bytes:
    return f"[{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}] ".encode()


def _tio(at: datetime) -> bytes:
    return f"[{at:%H:%M:%S}.{at.microsecond // 1000:03}] ".encode()


def _journal(at: datetime) -> bytes:
    return f"{at:%b %d %H:%M:%S} board kernel: ".encode()


def _kern_log(at: datetime) -> bytes:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 board kernel: ".encode()


def _console(at: datetime) -> bytes:
    return f"{at:%b %d %H:%M:%S} bench console[412]: ".encode()


def _ts(at: datetime) -> bytes:
    return f"{at:%b %d %H:%M:%S} ".encode()


def _arduino(at: datetime) -> bytes:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03} -> ".encode()


def _dmesg_t(at: datetime) -> bytes:
    return f"[{at:%a %b %d %H:%M:%S %Y}] ".encode()


def _tio_iso(at: datetime) -> bytes:
    return f"[{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z] ".encode()


def _tera_term(at: datetime) -> bytes:
    return f"[{at:%a %b %d %H:%M:%S}.{at.microsecond // 1000:03} {at:%Y}] ".encode()


def _conserver(at: datetime) -> bytes:
    return f"[{at:%a %b %d %H:%M:%S %Y}]".encode()


def _rfc_5424(at: datetime) -> bytes:
    return f"<13>1 {at:%Y-%m-%dT%H:%M:%S.%f}+00:00 bench console 412 - - ".encode()


def _journal_precise(at: datetime) -> bytes:
    return f"{at:%b %d %H:%M:%S.%f} bench console.service[412]: ".encode()


def _logcat(at: datetime) -> bytes:
    return f"{at:%m-%d %H:%M:%S}.{at.microsecond // 1000:03}   412   418 I console : ".encode()


def _ts_since(at: datetime) -> bytes:
    return f"{datetime.min + (at - START):%H:%M:%S} ".encode()


def _ts_unix(at: datetime) -> bytes:
    return f"{at.timestamp():.6f} ".encode()


def _grabserial(at: datetime) -> bytes:
    return f"[{(at - START).total_seconds() + 7:.6f} 0.012004] ".encode()


def _grabserial_t(at: datetime) -> bytes:
    return f"[{at:%Y-%m-%d %H:%M:%S.%f} 0.012004] ".encode()


def _riot(at: datetime) -> bytes:
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} # ".encode()


def _yat(at: datetime) -> bytes:
    return f"({at:%H:%M:%S}.{at.microsecond // 1000:03}) ".encode()


def _us(at: datetime) -> bytes:
    return f"{at.month}/{at.day}/{at.year} {at.hour % 12 or 12}:{at:%M:%S %p} ".encode()


OTHER_STAMPS: dict[str, Callable[[datetime], bytes]] = {
    "tio-iso": _tio_iso,
    "tera-term": _tera_term,
    "conserver": _conserver,
    "rfc-5424": _rfc_5424,
    "journalctl-precise": _journal_precise,
    "logcat": _logcat,
    "ts-s": _ts_since,
    "ts-unix": _ts_unix,
    "grabserial": _grabserial,
    "grabserial-T": _grabserial_t,
    "riot": _riot,
    "yat": _yat,
    "us": _us,
}
STAMPS: dict[str, Callable[[datetime], bytes]] = {
    "putty": _putty,
    "minicom": _minicom,
    "tio": _tio,
    "syslog": _console,
    "ts": _ts,
    "arduino": _arduino,
}


def _each(change: Callable[[bytes, int], bytes]) -> Change:
    """Return the change of each line: its text without the end, and its number."""

    def changed(log: Log) -> bytes:
        return b"".join(change(body, number) for number, body in enumerate(_bodies(log.data), 1))

    return changed


def _every_third(prompt: bytes) -> Callable[[bytes, int], bytes]:
    return lambda body, number: (b"" if number % 3 else prompt) + body + b"\n"


def _written_into(text: bytes) -> Change:
    """Return the change that puts another writer's bytes before the first fault line."""

    def changed(log: Log) -> bytes:
        bodies = list(_bodies(log.data))
        if log.first_fault_line:
            bodies[log.first_fault_line - 1] = text + bodies[log.first_fault_line - 1]
        return b"".join(body + b"\n" for body in bodies)

    return changed


def _lossy(log: Log) -> bytes:
    """Lose a character of every third line or so, but of none that tells something."""
    out = []
    for number, body in enumerate(_bodies(log.data), 1):
        luck = crc32(body)
        if luck % 3 == 0 and len(body) > 1 and number not in log.telling:
            at = luck // 3 % len(body)
            body = body[:at] + body[at + 1 :]
        out.append(body + b"\n")
    return b"".join(out)


def _torn(
    chosen: Chosen,
    stamp: Callable[[datetime], bytes] | None,
    pieces: int = 2,
    pieces_s: int = 0,
) -> Change:
    """Return the change that tears lines; a logger stamps each piece, so long after the first."""

    def changed(log: Log) -> bytes:
        out = bytearray()
        newest = START
        for number, (body, at_ns) in enumerate(_timed(log.data), 1):
            newest = max(newest, START + timedelta(microseconds=at_ns // 1000))
            for piece, text in enumerate(_pieces(log, number, body, chosen, pieces)):
                newest += timedelta(seconds=pieces_s if piece else 0)
                out += (stamp(newest) if stamp else b"") + text + b"\n"
        return bytes(out)

    return changed


def _torn_lines(chosen: Chosen, pieces: int = 2) -> Mapped:
    def lines(log: Log, number: int) -> range:
        counts = [
            len(_pieces(log, n, b, chosen, pieces)) for n, b in enumerate(_bodies(log.data), 1)
        ]
        first = sum(counts[: number - 1]) + 1
        return range(first, first + counts[number - 1])

    return lines


def _pieces(log: Log, number: int, body: bytes, chosen: Chosen, count: int) -> list[bytes]:
    if len(body) < _LEAST_TORN or not chosen(log, number, body):
        return [body]
    cuts = {1 + crc32(body[::-1], seed) % (len(body) - 1) for seed in range(count - 1)}
    return [body[start:end] for start, end in pairwise((0, *sorted(cuts), len(body)))]


def _one_of_thirty(_log: Log, number: int, body: bytes) -> bool:
    return crc32(body, number) % 30 == 0


def _telling(log: Log, number: int, _body: bytes) -> bool:
    return number in log.telling


def _without_end_before(log: Log) -> bytes:
    """Lose the end of the line before the first fault line."""
    bodies = list(_bodies(log.data))
    if (at := log.first_fault_line - 1) > 0:
        bodies[at - 1 : at + 1] = [bodies[at - 1] + bodies[at]]
    return b"".join(body + b"\n" for body in bodies)


def _one_up(_: Log, number: int) -> range:
    return range(number - 1, number + 1)


def _wrapped(columns: int) -> Change:
    """Return the change of a terminal that ends a line where its last column is."""
    return lambda log: b"".join(
        row + b"\r\n" for body in _bodies(log.data) for row in _rows(body, columns)
    )


def _wrapped_lines(columns: int) -> Mapped:
    def lines(log: Log, number: int) -> range:
        counts = [len(_rows(body, columns)) for body in _bodies(log.data)]
        first = sum(counts[: number - 1]) + 1
        return range(first, first + counts[number - 1])

    return lines


def _rows(body: bytes, columns: int) -> list[bytes]:
    return [body[at : at + columns] for at in range(0, len(body), columns)] or [b""]


def _cr_only(log: Log) -> bytes:
    return b"".join(body + b"\r" for body in _bodies(log.data))


def _without_blanks(log: Log, number: int) -> range:
    """Map a line to a log of CRs alone: a run of them ends one line, so blank ones go."""
    bodies = list(_bodies(log.data))
    starts = [n for n, body in enumerate(bodies, 1) if body or n == 1]
    now = max(bisect_right(starts, number), 1)
    return range(now, now + 1)


def _doubled(_: Log, number: int) -> range:
    return range(2 * number - 1, 2 * number + 1)


def _stamped(stamp: Callable[[datetime], bytes], *, without_kernel_stamps: bool = False) -> Change:
    """Return the change that puts a logger's time before each line."""

    def changed(log: Log) -> bytes:
        out = bytearray()
        for body, at_ns in _timed(log.data):
            if without_kernel_stamps:
                body = _KERNEL_STAMP.sub(b"", body)
            out += stamp(START + timedelta(microseconds=at_ns // 1000)) + body + b"\n"
        return bytes(out)

    return changed


def _by_one_of(changes: dict[str, Change]) -> Change:
    """Return the change that is one of these, as the log has it."""
    return lambda log: list(changes.values())[crc32(log.data) % len(changes)](log)


def _with_marks(log: Log) -> bytes:
    """Put a line of the logger before each fortieth line, and what it says when it begins."""
    out = [b"[-- Console up -- Mon Jun 22 03:58:12 2026]\r\n"]
    for number, body in enumerate(_bodies(log.data)):
        if number and number % _MARK_LINES == 0:
            out.append(b"[-- MARK -- Mon Jun 22 04:00:00 2026]\r\n")
        out.append(body + b"\r\n")
    return b"".join(out)


def _with_marks_lines(_: Log, number: int) -> range:
    now = number + 1 + (number - 1) // _MARK_LINES
    return range(now, now + 1)


def _dmesg_e(log: Log) -> bytes:
    """Put the minute before its first line, and before others how long after the last they came."""
    out = bytearray()
    before = START - timedelta(minutes=1)
    for body, at_ns in _timed(log.data):
        at = START + timedelta(microseconds=at_ns // 1000)
        same_minute = at.replace(second=0, microsecond=0) == before.replace(second=0, microsecond=0)
        passed = f"  +{(at - before).total_seconds():.6f}" if same_minute else f"{at:%b%d %H:%M}"
        out += f"[{passed}] ".encode() + _KERNEL_STAMP.sub(b"", body) + b"\n"
        before = at
    return bytes(out)


def _of_kernels(change: Change) -> Change:
    """Return the change for logs in which a kernel stamps its lines; others stay as they are."""
    return lambda log: change(log) if _STAMPED_LINE.search(log.data) else log.data


def _asked_again(command: str, listed: Change) -> Change:
    """Return the change that has the kernel's lines printed once more, by a command."""

    def changed(log: Log) -> bytes:
        kernels = b"".join(b + b"\n" for b in _bodies(log.data) if _KERNEL_STAMP.match(b))
        if not kernels:
            return log.data
        asked = PROMPTS[0] + command.encode() + b"\n"
        return log.data + asked + listed(Log(kernels)) + PROMPTS[0]

    return changed


def _timed(data: bytes) -> Iterable[tuple[bytes, int]]:
    """Return the lines with the time that passed up to each: the log's own, or a steady one."""
    clock = LogClock()
    at_ns = 0
    for body in _bodies(data):
        before_ns = clock.now_ns
        clock.look(body + b"\n")
        for _ in clock.passed(body + b"\n"):
            pass
        at_ns += clock.now_ns - before_ns if clock.is_known else _S // LINES_PER_S
        yield body, at_ns


def _bodies(data: bytes) -> Iterable[bytes]:
    for line in _LINE.findall(data):
        yield _END.sub(b"", line)


def _name(prompt: bytes) -> str:
    return {b"root@board:~# ": "shell", b"=> ": "uboot", b"uart:~$ ": "zephyr"}[prompt]
