from collections.abc import Iterable

import pytest

from bench_analysis import matcher
from own_streams import STREAMS
from serialwatch.records import Finding, Lines
from serialwatch.triggers.ahead import MatcherAhead
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.watch import PortWatch

CALM = b"[    2.000000] a line in which nothing is found\n" * 1200
SECOND = 1_000_000_000


def found(chunks: Iterable[bytes], own: Matcher, pieces: int) -> list[Finding]:
    """Return what a port's watch finds in chunks that come in pieces, one a second."""
    watch = PortWatch("log", own)
    findings, seq, at_ns = [], 1, 0
    for chunk in chunks:
        if isinstance(own, MatcherAhead):
            own.look(chunk)
        lines = chunk.splitlines(keepends=True)
        size = -(-len(lines) // pieces)
        for start in range(0, len(lines), size):
            part = lines[start : start + size]
            at_ns += SECOND
            findings += watch.tick(at_ns, at_ns)
            findings += watch.fed(Lines(seq, len(part), b"".join(part), at_ns, at_ns))
            seq += len(part)
    return findings + watch.lost(at_ns + 20 * SECOND)


@pytest.mark.parametrize("pieces", [1, 3])
def test_looking_ahead_changes_nothing_of_what_is_found(pieces: int) -> None:
    for stream in STREAMS[::9]:
        lines = stream.data.replace(b"\x1b", b"\x1b[0m\x1b").splitlines(keepends=True)
        middle = len(lines) // 2
        chunks = [
            CALM, CALM, CALM + b"".join(lines[:middle]), b"".join(lines[middle:]), CALM, CALM,
        ]  # fmt: skip
        plain = found(chunks, matcher(), pieces)

        assert found(chunks, MatcherAhead(matcher()), pieces) == plain


def test_what_a_rule_asks_for_is_kept_where_it_could_ask() -> None:
    own = matcher()
    ahead = MatcherAhead(own)
    number = next(
        n
        for n, use in enumerate(own.uses)
        if "ret_from_fork" in use.pattern.source and not use.rules
    )
    line = b"[    3.000000]  ret_from_fork+0x1f/0x30\n"
    assert [n for n, _ in own.scan(line)].count(number) == 1

    assert number in {n for n, _ in ahead.look(line + CALM)}
    ahead.look(CALM)
    ahead.look(CALM)
    assert number not in {n for n, _ in ahead.look(line + CALM)}
    assert number in {n for n, _ in ahead.look(CALM + line)}
