"""Feed random streams in random chunks: the findings must be those of one big chunk.

    python tests/fuzz_chunks.py [CHUNKINGS] [SEED]

Without pauses, that is: all bytes carry one time. Ends with 1 and the way to see the failure again.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import Literal

from live_port import cut
from serialwatch.bundled import bundled_dir
from serialwatch.lines import Splitter
from serialwatch.records import BlockEnd, Boot, Finding, Hit, Lines, Ready
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.watch import PortWatch

CHUNKINGS_PER_STREAM = 40
NOW_NS = 5_000_000_000

Feeds = tuple[tuple[tuple[bytes, int], ...], bytes]  # lines and their count, and the rest

# What consoles print and what lines make of it, in pieces; not all of them end a line.
PIECES = (
    b"\n",
    b"\r\n",
    b"\r\r\n",
    b"\n\r",
    b"\r",
    b"\x00",
    b"\x1b[0m",
    b"\x1b[1;31m",
    b"^[[0;32m",
    b"\x1b[",
    b"\x1b]0;t\x07",
    b"\x1b]0;",
    b"\xff\xfe",
    "°ü€".encode(),
    b"\x08 \x08",
    b" ",
    b"] ",
    b"> ",
    b": ",
    b"[   71.402118] ",
    b"[    0.000000][    T0] ",
    b"<3>",
    b"[00:00:00.006,713] <err> os: ",
    b"E (312) ",
    b"2015-08-24 10:34:52,280 - INFO # ",
    b"12:00:01 ",
    b"12:00:02 ",
    b"[7.120004 0.012004] ",
    b"[10.130004 0.012004] ",
    b"Jun 22 03:58:12 bench console[412]: ",
    b"Kernel pan",
    b"ic - not sync\x1b",
    b"[0ming: x\r\n",
    b"\x1b[0;3\n2mplain text\n",
    b"!!!\n",
    b"!!!!!!! Excep\n",
    b"tion  !!!!!!!!!!\n",
    b"H\nAL\n_SD_Init failed\n",
    b"SYS: Self test passed!\r\n",
    b"SYS: Cr\nazyflie 2.1 is up and running!\n",
    b"[CRASH][Serv\noTest\ner] furi_check failed\n",
    b"reboot: Restartng system\r\n",
    b"[-- MARK -- Mon Jun 22 04:00:00 2026]\r\n",
    b"21:00:32.457 -> ",
    b"[tio 10:57:51] ",
    b"Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\r\n",
    b"/init: 384: .: [  271.400000] Kernel panic - not syncing: VFS: Unable to mount root fs\n",
    b"------------[ cut here ]------------\r\n",
    b"---[ end trace 0000000000000000 ]---\r\n",
    b"Unable to handle kernel NULL pointer dereference at virtual address 00000014\r\n",
    b"Internal error: Oops: 5 [#1] PREEMPT SMP ARM\r\n",
    b'irq 33: nobody cared (try booting with the "irqpoll" option)\r\n',
    b"Disabling IRQ #33\r\n",
    b"[\x1b[1;31mFAILED\x1b[0m] Failed to start Network.\r\n",
    b"ets Jun  8 2016 00:22:57\r\n\r\nrst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)\r\n",
    b"rst:0x5 (DEEPSLEEP_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)\r\n",
    b"Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Exception was unhandled.\r\n",
    b"abort() was called at PC 0x400d1234 on core 0\r\n",
    b"Rebooting...\r\n",
    b"U-Boot SPL 2023.01 (Jun 22 2026 - 08:38:07 +0000)\r\n",
    b"U-Boot 2023.01 (Jun 22 2026)\r\n",
    b"=> version\r\n",
    b"=> reset\r\n",
    b"resetting ...\r\n",
    b"Resetting CPU ...\r\n",
    b'"Synchronous Abort" handler, esr 0x96000004\r\n',
    b"data abort\r\n",
    b"pc : [<87f6c000>] lr : [<8>]\r\n",
    b"NOTICE:  BL31: v2.8(release)\r\n",
    b"[    0.000000] Linux version 6.1.20 (b@h) #1\r\n",
    b"root@dut:~# dmesg\r\n",
    b"[  900.000000] usb 1-1: new device\r\n",
    b"board login: ",
    b"reboot: Restarting system\r\n",
    b"*** Booting Zephyr OS build v3.4.0 ***\r\n",
    b"***** BUS FAULT *****\r\n",
    b">>> ZEPHYR FATAL ERROR 25: Bus error on CPU 0\r\n",
    b"mcuboot: Starting bootloader\n",
    b"mmc0: Timeout waiting for hardware interrupt.\r\n",
    b"spl: mmc init failed with error: -17\r\n",
    b"r0=20001f48 r1=00000000 r2=40013800\r\n",
    b"lr=08004c1f pc=08002a10\r\n",
    b"irq 37: 1234567\r\n",
    b"### ERROR ### Please RESET the board ###\r\n",
    b"assertion failed: x, file y.c, line 3\r\n",
    b"Kernel command line: console=ttyS0 panic=5 oops=panic\r\n",
    b"watchdog: watchdog0: watchdog did not stop!\r\n",
    b"fatal error",
    b"0 errors\r\n",
    b"plain text of an application 23.4 C\r\n",
    b"x" * 300,
    b"Trying to boot from MMC1\r\n",
)


# Rules with short memories: in a stream of a few lines their waits and blocks run out, too.
SHORT_RULES = r"""
[[rule]]
id = "fuzz.dump"
title = "pump died"
severity = "critical"
match = ['^pump died', 'pump .{1,9} burnt$']
block = { start = '^== dump', back_lines = 3, end = '^== end', max_lines = 4 }

[[rule]]
id = "fuzz.more"
title = "more"
severity = "error"
match = 'says more'
continues = true
block = { max_lines = 3 }

[[rule]]
id = "fuzz.needs"
title = "exception"
severity = "error"
match = '^exception'
needs = { match = '^EPC', within_lines = 2 }

[[rule]]
id = "fuzz.near"
title = "timeout"
severity = "error"
match = 'timeout of pump'
unless_near = { match = 'scanning', before = 1, after = 2 }

[[rule]]
id = "fuzz.count"
title = "flap"
severity = "warning"
match = 'pump flaps'
count = { n = 2, in_s = 0.1 }

[[rule]]
id = "fuzz.gated"
title = "wdt"
severity = "critical"
ecosystem = ["fuzzy"]
match = '^wdt$'

[[boot]]
ecosystem = "fuzzy"
match = '^FUZZ ROM'
stage = 1
unless_after = ['> version']

[[boot]]
ecosystem = "fuzzy"
match = '^FUZZ APP'
stage = 2
alone = true
window_s = 0.2

[[cause]]
ecosystem = "fuzzy"
match = '^why: '
fields = 'why: (?P<cause>.*)'
causes = { 'dog' = "watchdog", 'soft' = "software" }

[[shutdown]]
ecosystem = "fuzzy"
match = '^bye'
leads_to = "restart"
after = ['> bye']
"""
SHORT_PIECES = (
    b"pump died\r\n",
    b"pump \x1b[31mis\x1b[0m burnt\r\n",
    b"== dump\n",
    b"== end\n",
    b"it says more\n",
    b"exception 4\r\n",
    b"EPC 80\r\n",
    b"timeout of pump\n",
    b"scanning\n",
    b"pump flaps\n",
    b"wdt\r\n",
    b"FUZZ ROM\r\n",
    b"FUZZ APP\r\n",
    b"why: dog\r\n",
    b"why: soft\r\n",
    b"bye\n",
    b"> bye\n",
    b"> version\n",
    b"x\n",
    b"\n\n\n",
    b"x\r\n" * 17,
    b"pump",
    b"\x1b]0;t\npump died\n\x07",
    b"[  9.000000] pump died\n",
    b"[  99.000000] x\n> dmesg\n[   9.000000] pump died\n",
)


def main() -> int:
    """Run as many chunkings as asked for."""
    chunkings = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    started, findings, done = time.monotonic(), 0, 0
    matcher = fuzz_matcher()
    while done < chunkings:
        seed = first + done // CHUNKINGS_PER_STREAM
        found, wrong = run_stream(matcher, seed, min(CHUNKINGS_PER_STREAM, chunkings - done))
        if wrong:
            print(
                f"{wrong}\nto see it again: python tests/fuzz_chunks.py {CHUNKINGS_PER_STREAM} {seed}"
            )
            return 1
        findings += found
        done += CHUNKINGS_PER_STREAM
    took_s = time.monotonic() - started
    print(
        f"{done:,} chunkings gave the same {findings:,} findings as one big chunk in {took_s:.0f} s"
    )
    return 0


def fuzz_matcher() -> Matcher:
    """Return all rules that ship, and the ones with short memories."""
    ships, short = load_rules([bundled_dir("config/rules")]), parse_rules(SHORT_RULES)
    both = replace(
        ships,
        rules=ships.rules + short.rules,
        boots=ships.boots + short.boots,
        causes=ships.causes + short.causes,
        shutdowns=ships.shutdowns + short.shutdowns,
    )
    return Matcher(both)


@cache
def short_matcher() -> Matcher:
    """Return only rules with short memories: they look back a few lines, not 60."""
    return Matcher(parse_rules(SHORT_RULES))


def run_stream(matcher: Matcher, seed: int, chunkings: int) -> tuple[int, str]:
    """Compare so many chunkings of one stream; return its findings and what was wrong, or ""."""
    rng = random.Random(seed)
    if seed % 4 == 1:
        matcher = short_matcher()
        stream = random_stream(rng, [(SHORT_PIECES,)])
    else:
        stream = random_stream(rng, [(PIECES,), (SHORT_PIECES,), (PIECES, SHORT_PIECES)])
    eol: Literal["auto", "lf", "cr"] = "cr" if seed % 8 == 7 else "lf"
    if seed % 8 == 6:
        eol, stream = "auto", _with_crs(rng, stream)
    whole = feeds(eol, [stream])
    expected = findings_of(matcher, whole)
    tried = {whole}
    for number in range(chunkings):
        fed = feeds(eol, chunks(rng, stream))
        if fed in tried:
            continue
        tried.add(fed)
        found = findings_of(matcher, fed, rng)
        if found != expected:
            told = "\n".join(_difference(expected, found))
            return len(expected), f"seed {seed}, chunking {number}, stream {stream!r}:\n{told}"
    return len(expected), ""


def random_stream(rng: random.Random, choices: list[tuple[tuple[bytes, ...], ...]]) -> bytes:
    """Return a stream of pieces of consoles, a little damaged."""
    kinds = rng.choice(choices)
    pieces = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 12))]
    stream = bytearray(b"".join(pieces))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(stream) + 1)
        stream[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
    return bytes(stream)


def _with_crs(rng: random.Random, stream: bytes) -> bytes:
    """Return the stream with CRs alone for the ends of its lines, or of a part of them."""
    crs = re.sub(rb"\r*\n", b"\r", stream)
    at = rng.choice((0, 0, rng.randrange(len(stream) + 1)))
    return stream[:at] + crs * rng.choice((1, 1, 1, 20)) + stream[at:] * rng.choice((0, 0, 1))


def chunks(rng: random.Random, stream: bytes) -> list[bytes]:
    """Cut the stream at random places; now and then into single bytes."""
    if rng.random() < 0.01:
        return [stream[at : at + 1] for at in range(len(stream))]
    cuts = [0, *sorted(rng.choices(range(len(stream) + 1), k=rng.randint(1, 6))), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(cuts) if a < b]


def feeds(eol: Literal["auto", "lf", "cr"], parts: list[bytes]) -> Feeds:
    """Return what a splitter makes of the parts of a stream: that is all a watch sees of them."""
    if eol == "auto":
        lines, rest = cut(parts)
        return tuple((block.text, block.count) for block in lines), rest
    splitter = Splitter(eol)
    fed = tuple(filter(itemgetter(1), map(splitter.feed, parts)))
    return fed, splitter.partial()


def findings_of(matcher: Matcher, fed: Feeds, rng: random.Random | None = None) -> list[Finding]:
    """Return what a port's watch finds in lines and a rest that came at one time.

    With `rng` some of the lines may wait for others before they are judged.
    """
    likely = rng.choice((0.0, 0.5, 1.0)) if rng else 0.0
    watch = PortWatch("fuzz", matcher)
    texts, rest = fed
    found: list[Finding] = []
    seq = 1
    for text, count in texts:
        may_wait = rng is not None and rng.random() < likely
        found += watch.fed(Lines(seq, count, text, NOW_NS, NOW_NS), may_wait=may_wait)
        seq += count
    if rest:
        found += watch.partial(seq, rest, NOW_NS, NOW_NS)
    return found + watch.lost(NOW_NS)


def _difference(expected: list[Finding], found: list[Finding]) -> Iterator[str]:
    for sign, ours, theirs in (("-", expected, found), ("+", found, expected)):
        for finding in ours:
            if finding not in theirs:
                yield f"{sign} {_brief(finding)}"
    if sorted(map(_brief, expected)) == sorted(map(_brief, found)):
        yield "the same findings in another order"


def _brief(finding: Finding) -> str:
    match finding:
        case Hit():
            return f"hit {finding.trigger} L{finding.seq} from L{finding.block_first} {finding.title!r}"
        case BlockEnd():
            return f"end of {finding.trigger} L{finding.first_seq}-L{finding.last_seq} {finding.reason}"
        case Boot():
            return f"boot {finding.number} L{finding.seq} {finding.cause}"
        case Ready():
            return f"ready L{finding.seq}"


if __name__ == "__main__":
    sys.exit(main())
