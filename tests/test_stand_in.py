"""What Hyperscan looks for in the stead of a pattern, and that nothing is lost by it."""

from __future__ import annotations

import random

import hyperscan as hs
import pytest

from own_streams import STREAMS
from serialwatch.bundled import bundled_dir
from serialwatch.records import Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import (
    LineView,
    Pattern,
    compile_database,
    compile_pattern,
    compile_scanned,
)
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.watch import PortWatch


@pytest.mark.parametrize(
    ("source", "stand_ins"),
    [
        (r"irq \d+: nobody cared", [": nobody cared"]),
        (r"nobody cared", ["nobody cared"]),
        (r"(?i)pump .{0,200}is very dry$", ["(?i)is very dry"]),
        (r"a{3}bcdefgh", ["aaabcdefgh"]),
        (r"fo+ and so forth", ["o and so forth"]),
        (r"(?:the valve was|a pump may be) stuck", ["the valve was stuck", "a pump may be stuck"]),
        (r"left unlocked|^\w{1,9} gets wet", ["left unlocked", " gets wet"]),
        (r"^[A-Z]+ pumps [dw]ry\s*$", [" pumps dry", " pumps wry"]),
        (r"\d old pumps [dw]?r\s*$", [" old pumps dr", " old pumps wr", " old pumps r"]),
        (r"(?i)starting the .{0,60}pump\d", [r"(?i)starting the [^\r\n]*pump\d"]),
        (r"(?:a|bc)\d{1,60}: dry", [r"(?:a|bc)\d+: dry"]),
        (r"(?:really )?no (?i:go here now)", ["(?:really )?no (?i:go here now)"]),
        (r"x\d y\d z", [r"x\d y\d z"]),
        # Alternatives beside text: each of them is looked for with it.
        (r"^echo: *(?:Brown out|Watchdog) Reset", ["Brown out Reset", "Watchdog Reset"]),
        (r"pump_image: (?:bad sum|no seal \d)", ["pump_image: bad sum", "pump_image: no seal "]),
        (
            r"(?i)^start(?:ing)? the (?:big )?pumps\b",
            [
                "(?i)starting the big pumps",
                "(?i)starting the pumps",
                "(?i)start the big pumps",
                "(?i)start the pumps",
            ],
        ),
        (r"\d (?:a|b|c)(?:d|e|f)ghijklmno \w", ["dghijklmno ", "eghijklmno ", "fghijklmno "]),
        (r"(?:a|b)\.\-\[x\] is dry", [r"a\.-\[x\] is dry", r"b\.-\[x\] is dry"]),
        # What healthy boots print all the time tells little.
        (r"rpc failed: \d", [r"rpc failed: \d"]),
        (r"rpc failed: is it dry\d", ["rpc failed: is it dry"]),
        # Alternatives that no text stands for are left in the pattern, alone.
        (r"remoteproc \S{1,40}: (?:bad seal|ti)", [": bad seal", r"remoteproc \S+: ti"]),
        (
            r"(?:pump|bug) \d is (?:dry|down for good)",
            [" is down for good", r"(?:pump|bug) \d is dry"],
        ),
        (r"ab (?:\d|bad_seal_\d)? c", ["ab bad_seal_", r"ab (?:\d|) c"]),
        # Nine words and what varies: Hyperscan took a second for them.
        (
            r"(?:a|b|c|d|e|f|g|h|i)ab? \d",
            [r"(?:a|b|c|d)ab? \d", r"(?:e|f|g|h|i)ab? \d"],
        ),
        (r"(?:a|b|c|d|e|f|g|h|i)ab", [r"(?:a|b|c|d|e|f|g|h|i)ab"]),
        # What may begin anywhere is not looked for before the first words.
        (r"^[a-z][\w-]{2,9}: .{0,80}\bfailed\b.{0,9} -\d", [r"\bfailed\b[^\r\n]* -\d"]),
        (r"^\w+ is \dx", [r"(?:^|[\r\]>, \t'\"])\w+ is \dx"]),
    ],
)
def test_a_piece_that_says_enough_stands_for_a_pattern(source: str, stand_ins: list[str]) -> None:
    found = compile_scanned(source).stand_ins

    assert [text.decode() for text in found] == stand_ins


def test_only_a_pattern_that_stands_for_itself_need_not_be_checked() -> None:
    exact = [
        compile_scanned(s).is_exact for s in ("it is broken", r"x\d y", "^it is broken", "a.b")
    ]

    assert exact == [True, True, False, True]
    assert not compile_scanned(r"it is broken \d").is_exact


def test_whatever_re_finds_hyperscan_finds_too() -> None:
    rng = random.Random(11)
    words = ["pump", "valve", "is dry", " stuck ", "motor 7 ", "overheated: ", "x"]
    joints = [
        r".{0,9}",
        r"\s+",
        r"\d{1,3}",
        "(?:a|bcd )?",
        "(?:is|was never) ",
        "s?",
        "[: ]",
    ]
    fillers = ["", " ", "a", "12", "s", "is ", "was never ", ": ", "bcd "]
    sources, lines = set(), []
    for _ in range(120):
        chosen = [rng.choice(words) for _ in range(rng.randint(1, 4))]
        ends = (
            rng.choice(["", "^", r"^\W{0,4}", "(?i)"]),
            rng.choice(["", "$", r"\s*$", "|never ever"]),
        )
        sources.add(ends[0] + "".join(w + rng.choice(joints) for w in chosen) + "z" + ends[1])
        lines.append("".join(w + rng.choice(fillers) for w in chosen) + rng.choice(["z", "z \r"]))
    patterns = tuple(_usable(sorted(sources)))
    database = compile_database(patterns)
    text = "\n".join([*lines, "and never ever", ""]).encode()
    seen: set[tuple[int, int]] = set()
    database.scan(
        text,
        match_event_handler=lambda n, _, end, *__: bool(seen.add((n, text.count(b"\n", 0, end)))),
    )
    matching = {
        (n, number)
        for number, line in enumerate(text.split(b"\n"))
        for n, pattern in enumerate(patterns)
        if LineView(line.rstrip(b"\r")).has((pattern,))
    }

    assert len(matching) > 100
    assert matching <= seen


def test_a_branch_that_never_matches_does_no_harm() -> None:
    patterns = (compile_scanned(r"a\bb|valve \d"), compile_scanned("pump is dry"))
    hits: list[int] = []
    database = compile_database(patterns)
    database.scan(b"valve 7\npump is dry\n", match_event_handler=lambda n, *_: hits.append(n))

    assert sorted(hits) == [0, 1]


def _usable(sources: list[str]) -> list[Pattern]:
    found = []
    for source in sources:
        try:
            found.append(compile_scanned(source))
        except PatternError:
            continue
    return found


@pytest.mark.parametrize(
    "source",
    ["a{5,3}", "^*", r"\b+", "(?P<a>x)(?P<a>y)", "(?P<1>x)", "a{99999999999,}b"],
)
def test_what_re_refuses_is_refused_when_it_is_loaded(source: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(source)


def test_what_was_not_given_to_re_is_taken_by_it() -> None:
    rng = random.Random(5)
    parts = ["a", ".", r"\d", "[^x]", "^", "$", r"\b", "(?:a|b)", "(c|)", "(?i:d)", "(?:(?:e)f)"]
    repeats = ["", "*", "+", "?", "{2}", "{0,3}", "{3,1}", "{2,}", "*?", "{1,4}?"]
    taken = 0
    for _ in range(700):
        source = "".join(rng.choice(parts) + rng.choice(repeats) for _ in range(rng.randint(1, 5)))
        try:
            pattern = compile_pattern(source)
        except PatternError:
            continue
        pattern.regex.search(b"abc")
        taken += 1

    assert taken > 100


RULE = r"""
[[rule]]
id = "mine.valve"
title = "valve {n} is stuck"
severity = "error"
match = ['valve \d+ is stuck for good']
fields = 'valve (?P<n>\d+)'
"""


@pytest.mark.parametrize("apart", [2000, 12_000])
def test_a_long_line_is_read_where_the_pattern_is_not_where_its_stand_in_is(apart: int) -> None:
    watch = PortWatch("dut1", Matcher(parse_rules(RULE)))
    line = b"nothing is stuck for good " + b"." * apart + b" valve 7 is stuck for good"
    (hit,) = (f for f in watch.fed(Lines(1, 1, line + b"\n", 1, 1)) if isinstance(f, Hit))

    assert hit.fields == {"n": "7"}


def test_few_lines_of_healthy_boards_are_found_in_vain() -> None:
    matcher = Matcher(load_rules([bundled_dir("config/rules")]))
    lines = in_vain = 0
    for stream in STREAMS:
        if stream.expected:
            continue
        text = stream.data.replace(b"\r", b"").replace(b"\0", b"")
        lines += text.count(b"\n")
        for number, end in set(matcher.scan(text)):
            start = text.rfind(b"\n", 0, end - 1) + 1
            line = LineView(text[start : text.find(b"\n", start)])
            in_vain += line.search(matcher.patterns[number]) is None

    assert in_vain < 0.1 * lines


@pytest.mark.parametrize(
    ("source", "character"),
    [
        ("={20}", "="), ("^C{12}", "C"), ("={60}|---x", "="), ("(?i)c{12}", "C"),
        (r"\\{9}", "\\"), (r"\]{9}", "]"), (r"\^{9}", "^"),
    ],
)  # fmt: skip
def test_a_long_run_is_found_once_and_wherever_it_stands(source: str, character: str) -> None:
    database = compile_database((compile_pattern(source),))
    hits: list[int] = []
    for text in (character * 100, f"x{character * 100}", f"x\n{character * 100}y"):
        database.scan(
            text.encode(),
            match_event_handler=lambda *found: hits.append(found[2]),
            scratch=hs.Scratch(database),
        )

    assert len(hits) == 3
