"""Rules that somebody wrote by mistake or in malice: refused with a word, or harmless."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serialwatch.agent.knowledge import Cause
from serialwatch.agent.offline.suspects import is_shown_by
from serialwatch.records import Hit, Line, Lines
from serialwatch.tomlfile import TomlError
from serialwatch.triggers import patience
from serialwatch.triggers.check import check_rules
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import compile_pattern
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000
LOAD_S = 2.0  # of CPU time: a slow machine compiles the worst of them in half a second
LINE_S = 0.2  # one search is ended after 0.02 s
ALL_S = 0.5  # all lines: after 0.04 s a pattern is given up

HEAD = '[[rule]]\nid = "mine.x"\ntitle = "it"\nseverity = "error"\n'

# What a hostile board prints: the worst for a backtracking engine is a line that nearly matches.
LINES = (
    b"fault " + b"a" * 16_000,
    b"fault" * 3_200,
    b"fault " + b"a, " * 5_000,
    b"fault " + b"ab" * 8_000 + b"!",
    b"fault " + b"a\r" * 8_000,
    b"fault " + b" " * 4_000 + b"\t" * 4_000 + b"x",
    b"fault " + bytes(range(11, 256)) * 60,
    b"x" * 900 + b"fault" + b"x" * 100,
)

FOR_RE = (
    "(a+)+$",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+$",
    "(?:a|ab|b)*c",
    "(?:a|b|ab)*?!!",
    "([a-z]+)*=",
    r"(\w+\s?)+$",
    r"^(\s*\w*)*:$",
    r"(?:\w*\d*)*-",
    r"(x+x+)+y",
    r"(?:x+)+?y",
    r"(.*)(.*)(.*)(.*)x",
    r"(.*?,){11}P",
    r"(?:.*?,)*?Q",
    r".*.*.*.*.*=.*",
    r"\s+\s+\s+\s+$",
    r"[^,]*,[^,]*,[^,]*,[^,]*z",
    r"a*a*a*a*a*b",
    r"a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaaaaaaaaaab",
    r"(?:a?){30}a{30}b",
    r"(a{1,50}){1,50}b",
    r"(?:a{0,9}){9}(?:a{0,9}){9}b",
    r"((a{1,9}){1,9}){1,9}b",
    r".{0,500}.{0,500}.{0,500}x",
    r".{1,200}a.{1,200}a.{1,200}Z",
    r"([ab]*)\1\1x",
    r"(a*)(b*)\2\1\2c",
    r"(.+)\1\1\1!",
    r"(?=(a+)+b)f",
    r"(?=(.*)(.*)(.*)z)a",
    r"(?!(a*)*c)f",
    r"(?<=a)(.*)(.*)(.*)q",
    r"(?P<n>(?:a.*)+)b",
    r"(?P<n>.*)(?P<m>.*)(?P<o>.*)zzz",
    r"(?i)(A|a)*B",
    r"(?i:(?:A|aA)*)B",
    r"((((((a*)*)*)*)*)*)b",
    r"(?:(?:a|b)|(?:a|b))*z",
    r"(?:[a-m]|[g-z])*1",
    r"(?:a|[ab])+(?:a|[ab])+9",
    r"(?:fault)*(?:fault)*(?:fault)*(?:fault)*!",
    r"(?:f|fa|fau|faul|fault|ault|ult|lt|t)*!",
    r"(?:[^x]*[^y]*)*[^\W]!",
    r"(?:\S*\s*)*\x01\x02",
    r"(?:\r?a)*(?:a\r?)*z",
    r"(?:(?:\d|\w)*)!",
    r"(?:a(?:a(?:a(?:a)*)*)*)*b",
    r"(?:.|a)*(?:.|a)*\x07",
    "(?:" + "|".join("a" * n for n in range(1, 40)) + ")*b",
)
FOR_HYPERSCAN = (
    "",
    ".",
    "..",
    r"\w",
    r"\w\w\w",
    r"[^x]x?[^y]",
    r"\x00",
    "^",
    "$",
    "^$",
    r"\b",
    r"\B",
    "a*",
    "(?:a*)$",
    "a?b?c?$",
    "fault.*",
    "fault+",
    "(?:fault|)",
    "(?:fault|x*)$",
    "a{4000}",
    "a{99999}",
    "a{1,99999}b",
    "a{" + "9" * 5000 + "}b",
    "a{0}b{0}",
    "a{5,2}b",
    ".{200}",
    r"\w{1,3000}!",
    "(a|b|c|d|e|f|g){1,200}x",
    "(?:.{1,50}x){1,50}y",
    "(?:.*a){20}b",
    "a.{1,200}b.{1,100}c!",
    "(?i)(?:a|b|ab|ba){1,120}x",
    "(?:[a-z]{1,100}[0-9]{1,100}){1,30}x",
    "(?:a{1,30}){1,30}b",
    "((a{1,100}){1,100}){1,100}b",
    "[\\x0b-\\xff]{1,100}a",
    "^.*^.*^.*x",
    "^ *^ *^ *^x",
    "(?:^|a)*x",
    "(?:$|a)*x",
    "(" * 3000 + "a" + ")" * 3000,
    "(" * 900 + "a" + ")" * 900,
    "(" * 21 + "a" + ")" * 21,
    "x" * 1_000_000,
    "[" + "a-z" * 400_000 + "]x",
    "|".join(f"a{n}z" for n in range(300)),
    "|" * 1000,
    "(?:" * 19 + "a.*" + "b)" * 19,
    "a" + "(?:" + "b|" * 500 + "c)d",
    "(?i)" * 100 + "a",
    "(?P<a>x)(?P<a>y)",
    "(?P<1>x)y",
    "(?#comment)x",
    "(?s).x",
    "(?m)^x",
    "(?L)x",
    r"\p{L}x",
    r"\u0041x",
    r"\N{BELL}x",
    r"\Q.*\Ex",
    r"\Cx",
    r"\X",
    "käse",
    "a\x00b",
    "a\x1bb",
    "fault" * 300,
)


def with_match(pattern: str) -> str:
    return HEAD + f"match = [{quoted(pattern)}]\n"


def quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'  # fmt: skip


def rules_of_re() -> list[str]:
    """Return each hostile pattern in every key that Python's `re` reads."""
    texts = []
    for number, pattern in enumerate(FOR_RE):
        key = ("fields", "unless", "severity_when")[number % 3]
        value = f"[{quoted(pattern)}]"
        if key == "severity_when":
            value = f'[{{ severity = "note", match = {quoted(pattern)} }}]'
        texts.append(HEAD + f"match = ['fault']\n{key} = {value}\n")
    return texts


@pytest.mark.parametrize(
    "text", [*rules_of_re(), *map(with_match, FOR_HYPERSCAN)], ids=lambda text: text[60:100]
)
def test_a_hostile_pattern_is_refused_or_harmless(text: str) -> None:
    began = time.process_time()
    matcher, told = loaded(text)
    took = time.process_time() - began

    assert took < LOAD_S
    if matcher is None:
        assert "rules.d/mine.toml:" in told
        assert len(told) < 5000
        return
    lines_s = judged(matcher)
    assert max(lines_s) < LINE_S
    assert sum(lines_s) < ALL_S


def loaded(text: str) -> tuple[Matcher | None, str]:
    """Return the compiled rules, or None and why they were refused."""
    try:
        return Matcher(parse_rules(text, "rules.d/mine.toml")), ""
    except TomlError as exc:
        return None, exc.problems[0]


def judged(matcher: Matcher) -> list[float]:
    """Return how long each of some hostile lines took."""
    watch = PortWatch("dut1", matcher)
    took = []
    for seq in range(1, 4 * len(LINES) + 1):
        line = b"%d " % seq + LINES[seq % len(LINES)]
        began = time.process_time()
        watch.fed(Lines(seq, 1, line + b"\n", seq * S, seq * S))
        took.append(time.process_time() - began)
    return took


def test_there_are_at_least_a_hundred_hostile_patterns() -> None:
    assert len({*FOR_RE, *FOR_HYPERSCAN}) >= 100


def test_a_pattern_that_takes_too_long_is_given_up_and_told_and_the_rule_still_hits() -> None:
    text = HEAD + "match = ['fault']\nfields = '(?P<n>.*)(?P<m>.*)(?P<o>.*)zzz'\n"
    matcher = Matcher(parse_rules(text, "mine.toml"))
    watch = PortWatch("dut1", matcher)
    told_before = list(matcher.given_up())
    for seq in range(1, 31):
        watch.fed(Lines(seq, 1, b"%d " % seq + LINES[0] + b"\n", seq * S, seq * S))
    told = list(matcher.given_up())
    hits = watch.fed(Lines(31, 1, b"nine: fault\n", 31 * S, 31 * S))

    assert told_before == []
    assert told == [
        "rule mine.x (mine.toml:1): `(?P<n>.*)(?P<m>.*)(?P<o>.*)zzz` takes too long "
        "and is left out for 10 minutes"
    ]
    assert [hit.trigger for hit in hits if isinstance(hit, Hit)] == ["mine.x"]
    assert list(Matcher(parse_rules(text, "mine.toml")).given_up()) == []  # loaded anew


def test_what_is_slow_now_and_then_is_not_given_up() -> None:
    pattern = compile_pattern(r"(\w+) line of (\w+) console (.*)(.*)!")
    slow = b"an ordinary line of a console " + b"x" * 1000
    pattern.find(slow)
    for _ in range(20_000):
        pattern.find(b"an ordinary line of a console !")

    assert not pattern.patience.is_over


def test_a_pattern_does_not_answer_for_the_garbage_of_others() -> None:
    collected: list[str] = []

    def search(text: bytes) -> re.Match[bytes] | None:
        with _noted(collected):
            pile = [[n] for n in range(1000)]
            return re.search(b"a", text[: len(pile)])

    found = patience.Patience().search(search, b"a")

    assert found
    assert collected == []
    assert gc.isenabled()


@contextmanager
def _noted(collected: list[str]) -> Iterator[None]:
    """Note each collection of garbage, which every few objects set off."""
    before = gc.get_threshold()
    note = lambda phase, _: collected.append(phase)  # noqa: E731
    gc.callbacks.append(note)
    gc.set_threshold(10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)


WEIRD = {
    "invalid UTF-8": b"[[rule]]\ntitle = '\xff\xfe'\n",
    "UTF-16": "[[rule]]\n".encode("utf-16"),
    "a NUL": b"[[rule]]\nid = 'a\x00b'\n",
    "an escape in the id": HEAD.replace("mine.x", "mine.\\u001b[31m").encode(),
    "brackets": b"x = " + b"[" * 100_000,
    "inline tables": b"x = " + b"{a=" * 20_000,
    "digits": b"[[rule]]\nholdoff_s = " + b"9" * 10_000,
    "infinity": (HEAD + "match = 'ab'\nholdoff_s = inf\n").encode(),
    "no number": (HEAD + "match = 'ab'\nholdoff_s = nan\n").encode(),
    "less than nothing": (HEAD + "match = 'ab'\ncount = {n = -1, in_s = -1}\n").encode(),
    "too many lines": (
        HEAD + "match = 'ab'\nneeds = {match = 'x', within_lines = 999999999}\n"
    ).encode(),
    "a date": (HEAD + "match = 1979-05-27\n").encode(),
    "a table that is no array": b"[rule]\nid = 'mine.x'\n",
    "a rule that is a string": b"rule = 'mine.x'\n",
    "rules that are strings": b"rule = ['mine.x', 1]\n",
    "the same key twice": (HEAD + "match = 'ab'\nmatch = 'cd'\n").encode(),
    "an attribute of a field": (
        HEAD.replace('"it"', '"{n.__class__}"') + "match = 'ab'\nfields='(?P<n>a)'\n"
    ).encode(),
    "a field by its place": (HEAD.replace('"it"', '"{0}"') + "match = 'ab'\n").encode(),
    "a long title": (HEAD.replace('"it"', f'"{"x" * 100_000}"') + "match = 'ab'\n").encode(),
    "a long id": (HEAD.replace("mine.x", "mine." + "x" * 1000) + "match = 'ab'\n").encode(),
    "a huge file": b"#" * (4 * 1024 * 1024 + 1),
}


@pytest.mark.parametrize("name", WEIRD)
def test_a_weird_file_is_told_and_the_rest_goes_on(name: str, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(HEAD.replace("mine.x", "mine.good") + "match = 'pump'\n")
    (tmp_path / "weird.toml").write_bytes(WEIRD[name])
    began = time.process_time()
    loaded = load_rules([tmp_path])

    assert [rule.id for rule in loaded.rules] == ["mine.good"]
    assert "weird.toml" in loaded.problems[0]
    assert time.process_time() - began < LOAD_S


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(HEAD + "match = 'pump'\n")
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "gone.toml").symlink_to("nowhere")
    loaded = load_rules([tmp_path])

    assert [rule.id for rule in loaded.rules] == ["mine.x"]
    assert sorted(p.partition(": ")[2] for p in loaded.problems) == [
        "no such file",
        "not a file",
        "not a file",
        "not a file",
    ]


def test_a_pattern_that_was_given_up_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = compile_pattern(r"(a.*)(b.*)(c.*)(d.*)zzz")
    slow = b"abcd" * 900
    now_s = 1000.0
    monkeypatch.setattr(patience.time, "monotonic", lambda: now_s)
    for _ in range(5):
        pattern.find(slow)
    assert pattern.patience.is_over
    assert pattern.find(b"abcdzzz") is None
    now_s += patience.GIVEN_UP_S

    assert pattern.find(b"abcdzzz")


@pytest.mark.parametrize(
    "source",
    ["(?P<v>(?:a|a)*)c", r"(?:\d|\w)+c", "(?i)(?:a|A)*c", "x(?:y(?:ab|a.){1,30})?", "(?:[ab]|b)+"],
)
def test_alternatives_that_fit_the_same_text_are_not_repeated(source: str) -> None:
    with pytest.raises(PatternError, match="repeats alternatives that fit the same text"):
        compile_pattern(source)


@pytest.mark.parametrize("source", ["(?:a|ab|b)*c", "(?:(?:a|a)|x)*c", "(?:a|a)" * 60 + "c"])
def test_a_choice_that_may_take_for_ever_is_ended(source: str) -> None:
    before = patience.unanswered()

    assert compile_pattern(source).find(b"ab" * 2000 + b"a" * 60) is None
    assert patience.unanswered() == before + 1


def test_alternatives_that_differ_cost_nothing() -> None:
    for source in (r'"(?:[^"\\]|\\.)*"', "(?:panic|oops|BUG): ", "(?:a|A)*c"):
        assert compile_pattern(source).least_costly > 256


def test_no_pattern_holds_up_another_thread() -> None:
    found: list[object] = []

    def look() -> None:
        found.append(compile_pattern("(?:a|ab|b)*c").find(b"ab" * 2000))
        found.append(compile_pattern(r"(a.*)(b.*)(c.*)(d.*)zzz").find(b"abcd" * 900))
        found.append(compile_pattern(r"(?P<n>\d+) (?P<m>\d+)").find(b"12 13"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(60)

    assert found[:2] == [None, None]
    assert found[2]


def test_a_pattern_of_a_knowledge_page_does_not_hold_up_the_agent() -> None:
    cause = Cause("pump", "high", "", (), ("(a|ab|b)*c",), ())
    line = Line("dut1", 1, b"", 1, 1, 1, 1)

    assert is_shown_by(cause, [(line, "ab" * 200)]) is None


def test_an_example_that_takes_too_long_is_told() -> None:
    text = HEAD + "match = 'pump'\nfields = '(?:a|ab|b)*c'\nexamples = ['pump " + "ab" * 60 + "']\n"
    began = time.process_time()
    (problem,) = check_rules(parse_rules(text, "mine.toml"))

    assert problem.startswith("rule mine.x (mine.toml:1): a pattern takes too long on its examples")
    assert time.process_time() - began < LOAD_S
