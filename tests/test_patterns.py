from __future__ import annotations

import random

import hyperscan as hs
import pytest

from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import (
    LineView,
    check_compiles,
    compile_database,
    compile_pattern,
    compile_scanned,
)


def finds(source: str, line: bytes) -> bool:
    """Tell what Hyperscan and `re` say together, as a watch does; in the midst of other lines."""
    pattern = compile_scanned(source)
    hits: list[int] = []

    def found(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
        hits.append(end)

    before = b"the line before\r\n"
    compile_database((pattern,)).scan(before + line + b"\nafter\n", match_event_handler=found)
    in_line = any(len(before) < end <= len(before) + len(line) for end in hits)
    by_re = LineView(line.rstrip(b"\r")).search(pattern) is not None
    if by_re:
        assert in_line, "Hyperscan must find at least what `re` finds"
    if pattern.is_exact:
        assert by_re == in_line
    return by_re


@pytest.mark.parametrize(
    "line",
    [
        b"data abort",
        b"[   12.345678] data abort",
        b"[   12.345678][ T123] data abort",
        b"[   12.345678] [    C0] data abort",
        b"<3>[    1.000000] data abort",
        b"[  240.] data abort",
        b"[ 6826.814391 / 01-27 22:01:44.436] data abort",
        b"[Apr16 15:34] data abort",
        b"[Tue Aug 12 16:40:43 2025] data abort",
        b"kern  :alert : [    1.000000] data abort",
        b"Tue Aug 12 16:40:43 2025 kern.crit kernel: [    1.000000] data abort",
        b"Sep 06 23:47:06 gw-7 kernel: data abort",
        b"Sep  6 23:47:06 gw-7 app[311]: data abort",
        b"E (10325) task_wdt: data abort",
        b"[00:00:00.006,713] <err> os: data abort",
        b"[00000012] <err> os: data abort",
        b"2015-08-24 10:34:52,280 - INFO # data abort",
        b"[tio 10:57:51] data abort",
        b"[2019-09-04 17:37:27.873] data abort",
        b"21:00:32.457 -> data abort",
        b"23:32:57.360 : data abort",
        b"00> data abort",
        b"041088 data abort",
        b"2026-06-22T03:58:12.104000 [    0.000000] data abort",
        b"[0.000104 0.000104] data abort",
        b"2026-06-22T03:58:12.104123+00:00 gw-7 kernel: data abort",
        b"Jun 22 03:58:12 data abort",
        b"lug 20 18:39:36 gw-7 kernel: data abort",
        b"f\xc3\xa9vr. 20 18:39:36 gw-7 kernel: data abort",
        b"[  +0,024018] data abort",
        b"root@board:~# data abort",
        b"user@board:/var/log$ data abort",
        b"[root@board ~]# data abort",
        b"/ # data abort",
        b"=> data abort",
        b"MX8 U-Boot > data abort",
        b"uart:~$ data abort",
        b"msh />data abort",
        b"[2019-09-04 17:37:27] root@board:~# [   12.345678] data abort",
        b"progress 20%\rdata abort",
        b"progress 20%\r[   12.345678] data abort",
    ],
)
def test_a_start_stands_behind_every_known_prefix(line: bytes) -> None:
    assert finds("^data abort$", line)


@pytest.mark.parametrize(
    "line", [b"a data abort", b"no [ data abort", b"hardware: unhandled data abort"]
)
def test_a_start_is_not_in_the_midst_of_a_line(line: bytes) -> None:
    assert not finds("^data abort", line)


@pytest.mark.parametrize("line", [b"# data abort", b"costs $ data abort", b"x = a => data abort"])
def test_a_comment_or_a_number_is_no_prompt(line: bytes) -> None:
    assert not finds("^data abort", line)


def test_what_a_logger_calls_its_program_may_be_the_start_of_the_message() -> None:
    assert finds("^data abort: ", b"Jun 22 03:58:12 data abort: at 0x40")


@pytest.mark.parametrize("source", ["^Unhandled exception", r"\bUnhandled exception"])
def test_a_long_text_is_found_where_another_writer_broke_off(source: str) -> None:
    assert finds(source, b"usb 1-1: new high-speUnhandled exception")
    assert not finds("^Halted", b"usb 1-1: new high-speHalted")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (r"\b(?:malloc|free)\(\): (?:invalid|corrupted)", b"new high-spefree(): invalid pointer"),
        (r"\bWDG: T-?\d+ SL\d+ FL\d", b"new high-speWDG: T12 SL0 FL431"),
        (r"^panic: \S", b"usb 1-1: new high-spepanic: vm_fault failed"),
        (r"^\s*ASSERT(?:ION)?[!:] ?\S", b"Starting SerASSERT! Line 824, file port.c"),
        ("^error: (?:file|disk) ", b"Loading Linux 6.6 ...error: file not found"),
    ],
)
def test_a_line_that_says_much_is_found_where_another_writer_broke_off(
    source: str, line: bytes
) -> None:
    assert finds(source, line)


def test_a_longer_word_is_not_another_writer() -> None:
    assert not finds(r"\bsynchronous external abort", b"asynchronous external abort is masked")
    assert finds(r"\bsynchronous external abort", b"usb: new high-spesynchronous external abort")


def test_a_veto_is_not_looked_for_in_the_midst_of_a_word() -> None:
    veto = compile_pattern("^Unhandled exception")

    assert not LineView(b"usb 1-1: new high-speUnhandled exception").has([veto])


def test_a_pattern_may_be_anchored_at_a_prefix_itself() -> None:
    assert finds(r"^E \(\d+\) task_wdt: ", b"E (10325) task_wdt: Task watchdog got triggered")
    assert finds(r"^\[ *\d+\.\d+\] Oops", b"00> [    1.000000] Oops")


@pytest.mark.parametrize("end", [b"", b"\r", b"\r\r", b"\rleft over"])
def test_an_end_stands_before_the_carriage_returns(end: bytes) -> None:
    assert finds(r"resetting \.\.\.\s*$", b"resetting ..." + end)


def test_an_end_is_not_in_the_midst_of_a_line() -> None:
    assert not finds(r"resetting \.\.\.$", b"resetting ... now")


@pytest.mark.parametrize(
    "source",
    [r"line\s+after", r"before[^x]+after", r"line\W+after", r"line\D+after", r"line.+after"],
)
def test_nothing_matches_across_a_line_end(source: str) -> None:
    pattern = compile_scanned(source)
    hits: list[int] = []
    text = b"the line\r\nafter, or before\r\r\nafter\n"
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern.expression], ids=[0], elements=1, flags=[hs.HS_FLAG_MULTILINE]
    )
    database.scan(text, match_event_handler=lambda *hit: hits.append(hit[2]))

    assert hits == []
    assert pattern.regex.search(text) is None


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "foo(?=bar)",
            "Hyperscan cannot do look-ahead `(?=`; match the line and use `unless` instead",
        ),
        (
            "foo(?!bar)",
            "Hyperscan cannot do look-ahead `(?!`; match the line and use `unless` instead",
        ),
        (
            "(?<=a)foo",
            "Hyperscan cannot do look-behind `(?<=`; match the line and use `unless` instead",
        ),
        (
            "(?<!a)foo",
            "Hyperscan cannot do look-behind `(?<!`; match the line and use `unless` instead",
        ),
        (r"(a)\1", r"Hyperscan cannot do a backreference `\1`; write it out"),
        ("(?P<a>x)(?P=a)", "a backreference `(?P=`"),
        ("(?>ab)c", "an atomic group `(?>`; write `(?:`"),
        ("ab++c", "Hyperscan cannot do `++`; write `+`"),
        (r"\Afoo", "write `^`"),
        (r"foo\Z", "write `$`"),
        (r"foo\z", "write `$`"),
        (r"foo\nbar", "one line"),
        (r"foo\x0abar", "one line"),
        (r"foo[\n]", "one line"),
        (r"foo[\x00-\x20]", "LF"),
        (r"[\W]x", "would match LF"),
        (r"\hx", r"write `[ \t]`"),
        (r"\Kx", "let `fields` pick"),
        ("[[:alpha:]]x", "[:alpha:]"),
        ("x{,3}y", "write `{0,3}`"),
        ("(foo", "never closed"),
        ("foo)", "without its `(`"),
        ("[foo", "never closed"),
        ("*foo", "nothing to repeat"),
        ("foo**x", "two repeats"),
        (r"\yfoo", "not known to both engines"),
        ("(?x)foo", "not known here"),
        ("käse", "only ASCII"),
        ("", "empty"),
        ("foo+", "no fixed end"),
        ("foo.*", "no fixed end"),
        ("foo?", "no fixed end"),
        ("foo{2,}", "no fixed end"),
        ("foo{1,80}", "no fixed end"),
        (r"(?:foo|ba[rz]+)", "no fixed end"),
        (r"foo(?:bar)?", "no fixed end"),
        ("^", "would match an empty line"),
        (r"\b(?:a*|b)$", "would match an empty line"),
    ],
)
def test_what_cannot_be_scanned_for_is_refused_with_a_remedy(source: str, told: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_scanned(source)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "foo+$",
        "fo+ bar",
        "foo{3}",
        r"(?:a|b)\d",
        r"foo(?:\s*|x)$",
        "(?i)foo",
        "foo(?i:bar)",
        "a{x}",
        "{",
    ],
)
def test_a_fixed_end_is_accepted(source: str) -> None:
    compile_scanned(source)


def test_look_around_is_fine_where_python_alone_reads_it() -> None:
    pattern = compile_pattern(r"panic: (?P<why>\w+)(?= at)")

    assert LineView(b"[    1.000000] panic: oom at 0x1").search(pattern)


def test_hyperscans_own_refusals_are_explained() -> None:
    with pytest.raises(PatternError, match="200 is plenty"):
        check_compiles(compile_scanned(r"a.{1,40000}b"))
    with pytest.raises(PatternError, match="Invalid repeat"):
        check_compiles(compile_scanned(r"ba{0}c"))


def test_a_negated_class_keeps_its_odd_members() -> None:
    assert finds("a[^]x]b", b"a-b")
    assert not finds("a[^]x]b", b"a]b")
    assert finds("a[^-x]b", b"a]b")
    assert not finds("a[^-x]b", b"a-b")
    assert finds(r"a[]x-]b", b"a]b")
    assert finds(r"a[[x]b", b"a[b")
    assert finds(r"a[^\s]b", b"axb")
    assert not finds(r"a[^\s]b", b"a b")


def test_both_engines_agree_on_random_patterns_and_lines() -> None:
    rng = random.Random(7)
    atoms = [
        "a",
        "b",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        r"\s",
        r"\S",
        r"\W",
        r"\D",
        ".",
        " ",
        "(?:a|b1)",
    ]
    compared = 0
    for _ in range(300):
        middle = "".join(
            rng.choice(atoms) + rng.choice(["", "", "*", "+", "?", "{1,2}", r"\b"])
            for _ in range(rng.randint(1, 4))
        )
        source = rng.choice(["", "^", "(?i)"]) + middle + rng.choice(["x", "x$", "(?:a|$)"])
        try:
            check_compiles(compile_scanned(source))
        except PatternError:
            continue
        for _ in range(5):
            finds(source, bytes(rng.choice(b"ab1 x-A\t\r:]>") for _ in range(rng.randint(0, 8))))
            compared += 1

    assert compared > 1000


@pytest.mark.parametrize(
    ("source", "least"),
    [
        (r"valve \d is stuck", 16 * 1024),
        (r"(?:the )?valves? \d{1,3} (?:is|are) stuck", 16 * 1024),
        (r"valve .{1,40} is stuck", 256),
        (r"^\s*(?:valve|pump) .*: \S{1,20} is stuck", 32),
    ],
)
def test_a_text_is_costly_from_the_length_on_that_many_parts_can_share_out(
    source: str, least: int
) -> None:
    assert least <= compile_pattern(source).least_costly <= 2 * least


def test_parts_that_repeat_a_bit_count_as_often_as_they_may_come() -> None:
    few, many = (compile_pattern("a{0,7}" * n + "b").least_costly for n in (2, 6))

    assert few > 1000
    assert many < 10


def test_what_repeats_a_part_that_varies_is_always_costly() -> None:
    assert compile_pattern(r"(?:valve \d+ ?)+stuck").least_costly == 0
