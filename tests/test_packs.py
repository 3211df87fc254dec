from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

import pytest

from own_streams import LOGS, STREAMS, Stream
from serialwatch.bundled import bundled_dir
from serialwatch.records import SEVERITIES, BlockEnd, Boot, Finding, Hit, Lines
from serialwatch.triggers.check import check_rules
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.ruleset import RuleSet
from serialwatch.triggers.view import strip_escapes
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000  # ns
LINES_PER_S = 100
# Found under many firmwares.
FAMILIES = {"cmbacktrace", "cortexm", "freertos", "generic", "newlib", "riscv"}


EVERY_STREAM = pytest.mark.parametrize("stream", STREAMS, ids=[s.id for s in STREAMS])


@cache
def packs() -> RuleSet:
    return load_rules([bundled_dir("config/rules")])


@cache
def matcher() -> Matcher:
    return Matcher(packs())


def test_every_example_of_the_packs_hits_what_it_says_and_nothing_else() -> None:
    assert check_rules(packs()) == []


def test_every_rule_has_an_example_and_a_counterexample() -> None:
    bare = [rule.id for rule in packs().rules if not (rule.examples and rule.counterexamples)]

    assert bare == []


def test_every_pattern_of_a_rule_is_shown_by_an_example() -> None:
    unshown = [
        (rule.id, source)
        for rule in packs().rules
        for source, texts in (
            *((pattern, rule.examples) for pattern in rule.match),
            *((pattern, rule.counterexamples) for pattern in rule.unless),
        )
        if not _is_in(source, texts)
    ]

    assert unshown == []


def test_a_rule_stands_in_the_file_of_its_pack() -> None:
    strays = [rule.id for rule in packs().rules if f"/{rule.pack}.toml:" not in rule.source]

    assert strays == []


def test_only_generic_and_family_rules_name_no_firmware() -> None:
    tiers = {rule.pack: rule.tier for rule in packs().rules}

    assert {pack for pack, tier in tiers.items() if tier != "specific"} <= FAMILIES


def test_every_log_is_in_the_index() -> None:
    files = sorted(f"{path.parent.name}/{path.stem}" for path in LOGS.rglob("*.log"))

    assert files == sorted(f"{s.family}/{s.id}" for s in STREAMS)
    assert len({s.id for s in STREAMS}) == len(STREAMS)


@EVERY_STREAM
def test_a_stream_gives_the_faults_it_holds_and_no_others(stream: Stream) -> None:
    assert {hit.trigger for hit in _hits(_watch(stream.data))} == set(stream.expected)


@EVERY_STREAM
def test_the_first_fault_line_is_in_the_evidence_of_the_first_fault(stream: Stream) -> None:
    hits = _hits(_watch(stream.data))
    if not stream.first_fault_line:
        assert hits == []
        return
    first = min(hits, key=lambda hit: (hit.seq, hit.block_first))

    assert first.block_first <= stream.first_fault_line <= first.seq


@EVERY_STREAM
def test_the_starts_of_a_stream_are_counted(stream: Stream) -> None:
    assert len([f for f in _watch(stream.data) if isinstance(f, Boot)]) == stream.boots


@pytest.mark.parametrize(
    ("stream", "blocks"),
    [
        ("cortexm-hardfault", [("cortexm.hardfault_dump", 24, 34, "quiet")]),
        ("esp32-guru-boot-loop", [("esp.guru", n, n + 18, "end") for n in (41, 100, 159)]),
        ("linux-init-killed", [("linux.panic_init_killed", 49, 57, "end")]),
        (
            "linux-oops-panic-reboot",
            [("linux.oops", 71, 111, "end"), ("linux.panic", 112, 117, "end")],
        ),
        ("uboot-spl-boot-failed", [("uboot.spl_boot_failed", 8, 12, "quiet")]),
        ("uboot-sync-abort-reset", [("uboot.sync_abort", 19, 43, "end")]),
        ("zephyr-bus-fault", [("zephyr.cpu_fault", 16, 31, "end")]),
    ],
)
def test_the_whole_dump_is_the_evidence(
    stream: str, blocks: list[tuple[str, int, int, str]]
) -> None:
    data = next(s.data for s in STREAMS if s.id == stream)
    ends = [f for f in _watch(data) if isinstance(f, BlockEnd)]

    assert [(e.trigger, e.first_seq, e.last_seq, e.reason) for e in ends] == blocks


@EVERY_STREAM
def test_how_a_stream_is_cut_into_chunks_changes_nothing(stream: Stream) -> None:
    whole = _told(_watch(stream.data, most_lines=10_000))

    for seed in range(5):
        assert _told(_watch(stream.data, most_lines=9, seed=seed)) == whole


@EVERY_STREAM
def test_every_title_of_a_stream_is_filled_in(stream: Stream) -> None:
    titles = [f.title for f in _watch(stream.data) if isinstance(f, Hit)]

    assert [title for title in titles if "?" in title or "{" in title] == []


def _is_in(source: str, texts: Iterable[str]) -> bool:
    pattern = compile_pattern(source)
    lines = (line for text in texts for line in text.encode().split(b"\n"))
    return any(LineView(strip_escapes(line)).search(pattern) for line in lines)


@cache
def _watch(data: bytes, *, most_lines: int = 9, seed: int = 0) -> tuple[Finding, ...]:
    """Feed a stream at a steady pace, in chunks of up to so many lines, and close the port."""
    sizes = random.Random(seed)
    watch = PortWatch("dut1", matcher())
    lines = data.removesuffix(b"\n").split(b"\n")
    found: list[Finding] = []
    done = 0
    while done < len(lines):
        chunk = lines[done : done + sizes.randint(1, most_lines)]
        at_ns = S + (done + len(chunk)) * S // LINES_PER_S
        text = b"\n".join(chunk) + b"\n"
        found += watch.fed(Lines(done + 1, len(chunk), text, mono_ns=at_ns, utc_ns=at_ns))
        done += len(chunk)
    end_ns = S + (done + 5 * LINES_PER_S) * S // LINES_PER_S
    return (*found, *watch.lost(end_ns))


def _hits(found: Iterable[Finding]) -> list[Hit]:
    """Return hits from warning up, and generic ones only where nothing better was found."""
    hits = [f for f in found if isinstance(f, Hit) and SEVERITIES.index(f.severity) > 0]
    better = [hit for hit in hits if hit.tier != "generic"]
    return better or hits


def _told(found: Iterable[Finding]) -> list[tuple[str, int, int]]:
    return [(f.trigger, f.seq, f.block_first) for f in found if isinstance(f, Hit)]


@pytest.mark.parametrize("code", range(0x20, 0x7F), ids=chr)
def test_a_row_of_one_character_is_no_flood_of_matches(code: int) -> None:
    # Each match is a call into Python: 16 KiB of them would hold up all ports.
    found = matcher().scan(bytes([code]) * 4096 + b"\n")

    assert len(found) < 40
