"""An announcement that lost a letter on the wire still announces."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.lost_letters import nearly
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.patterns import compile_pattern
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000
LINUX = b"Linux version 6.1.20 (b@h) #1"


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


def found(matcher: Matcher, lines: Iterable[bytes]) -> list[Finding]:
    """Return what is found in lines of which each takes half a second."""
    watch = PortWatch("dut1", matcher)
    out: list[Finding] = []
    for seq, line in enumerate(lines, 1):
        out += watch.fed(Lines(seq, 1, line + b"\n", seq * S // 2, 0))
    return out + watch.lost(900 * S)


def restarted(*announced: bytes) -> list[bytes]:
    ran = [b"[  %d.000000] eth0: link is up %d" % (n, n) for n in range(1, 300)]
    return [LINUX, *ran, b"board login: ", *announced, b"", LINUX, b"hello"]


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (b"[   91.2] reboot: Restartng system", "reboot: Restarting system"),
        (b"reoot: Power down", "reboot: (?:Power down|System halted)"),
        (b"12 Goig to deep sleep", r"(?i)\bgoing to (?:deep[ -])?sleep"),
        (b"12 going to deep seep", r"(?i)\bgoing to (?:deep[ -])?sleep"),
        (b"ebooting...", r"^Rebooting\.\.\.\s*$"),
        (b"Rebooting..", r"^Rebooting\.\.\.\s*$"),
        (b"systemd-shutdown[1: bye", r"systemd-shutdown\[1\]: "),
    ],
)
def test_one_letter_may_be_lost(line: bytes, source: str) -> None:
    assert nearly(line, compile_pattern(source))


@pytest.mark.parametrize(
    "line", [b"eboting...", b"Reboot...", b"Rebooting the router", b"", b"reboot: system"]
)
def test_two_letters_are_too_many(line: bytes) -> None:
    assert not nearly(line, compile_pattern(r"^Rebooting\.\.\.\s*$"))


@pytest.mark.parametrize(
    ("announced", "cause"),
    [
        ((b"reboot: Restarting system",), "commanded"),
        ((b"reboot: Restartng system",), "commanded"),
        ((b"The sysem is going down", b"bye"), "commanded"),
        ((b"eth0: link is down",), "unknown"),
    ],
)
def test_a_restart_that_was_announced_is_no_fault(
    matcher: Matcher, announced: tuple[bytes, ...], cause: str
) -> None:
    out = found(matcher, restarted(*announced))
    boots = [finding for finding in out if isinstance(finding, Boot)]
    faults = [
        f.trigger for f in out if isinstance(f, Hit) and f.trigger.endswith("unexpected_reboot")
    ]

    assert boots[-1].cause == cause
    assert bool(faults) == (cause == "unknown")
