"""A report as people read it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bench_api import STARTED_UTC_NS as T
from serialwatch.api.logs import LogQuery
from serialwatch.cli.errors import CliError
from serialwatch.cli.markdown import fenced, inert
from serialwatch.cli.report_context import Stretch, context_lines, read_stretches, stretches
from serialwatch.cli.report_diff import changes, diff_json, diff_lines
from serialwatch.cli.show_report import About, Earlier, report_lines, report_markdown
from serialwatch.cli.times import exact
from serialwatch.records import (
    Claims,
    Conclusion,
    Cost,
    Evidence,
    HitCount,
    Hypothesis,
    Line,
    NextStep,
    Report,
    TimelineEntry,
)

MS, DAY = 10**6, 86400 * 10**9
NOW = datetime(2026, 6, 22, 8, 0, tzinfo=UTC)
REPORT = Report(
    incident=17,
    revision=2,
    made_by="offline analyst",
    title="U-Boot took a synchronous abort in `md.l` and reset",
    fault_class="uboot.sync_abort",
    severity="critical",
    verdict="confirmed",
    confidence=0.9,
    hypotheses=(
        Hypothesis("uboot.sync_abort", "an access to nothing", 0.9, "confirmed"),
        Hypothesis("link.garbage", "noise on the line", 0.1, "refuted"),
    ),
    conclusions=(
        Conclusion(
            "c1",
            "inference",
            "A read from 0xffffffffff000000 was not mapped: the abort came on the line after the "
            "command.",
            (Evidence("dut1", 48211, "=> md.l 0x"), Evidence("dut1", 48212, "Synchronous")),
        ),
        Conclusion(
            "c2",
            "inference",
            "The class in esr says data abort.",
            (Evidence("dut1", 48212, "esr 0x96000004"),),
            ("uboot/sync_abort",),
        ),
        Conclusion("c3", "cause", "dut2 shares the rail.", (Evidence("dut2", 77, "brown-out"),)),
    ),
    timeline=(
        TimelineEntry("dut1", 48211, T + 104 * MS, "=> md.l 0xffffffffff000000 4"),
        TimelineEntry(
            "dut1",
            48212,
            T + 109 * MS,
            '"Synchronous Abort" handler, esr 0x96000004',
            "first fault line",
        ),
        TimelineEntry("dut1", 48231, T + 131 * MS, "Resetting\tCPU ..."),
        TimelineEntry(
            "dut1", 48236, T + 390 * MS, "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)", "boot #7"
        ),
    ),
    unknowns=("who typed the command: the port had no writer attached through serialwatch",),
    next_steps=(
        NextStep("check what address the script computes"),
        NextStep("reproduce with `serialwatch mark` set before", "L2"),
    ),
    claims=Claims(3, 0),
    cost=Cost(4, 0, 0, 0.4, "", "none configured"),
)
ABOUT = About(
    port="dut1",
    boot=6,
    fault_utc_ns=T,
    boot_started_utc_ns=T - 15_120 * 10**9,
    outcome="rebooted",
    outcome_cause="commanded",
    seen_before=(Earlier(9, "dut1", T - 6 * DAY), Earlier(12, "dut4")),
)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this machine into UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def plain(width: int | None, report: Report = REPORT, about: About = ABOUT) -> list[str]:
    """Return the report's lines without colour."""
    return [line.plain for line in report_lines(report, about, NOW, width)]


def test_a_report_at_100_columns_reads_as_it_should() -> None:
    assert "\n".join(plain(100)) == (
        """\
Incident 17 · dut1 · critical · 03:58:12 (boot #6, 4 h 12 min after its start)
U-Boot took a synchronous abort in `md.l` and reset                        confidence 0.9, confirmed

What happened
  03:58:12.104  L48211  => md.l 0xffffffffff000000 4
  03:58:12.109  L48212  "Synchronous Abort" handler, esr 0x96000004    ← first fault line
  03:58:12.131  L48231  Resetting CPU ...
  03:58:12.390  L48236  U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)  boot #7

Conclusions
  1. A read from 0xffffffffff000000 was not mapped: the abort came on the line after the command.
     [L48211 L48212]
  2. The class in esr says data abort.   [L48212, knowledge uboot/sync_abort]
  3. dut2 shares the rail.   [dut2:L77]

Outcome          the board rebooted (by software)
Points to        an access to nothing
Ruled out        noise on the line
Not known        who typed the command: the port had no writer attached through serialwatch
Seen before      2 times on this bench: #9 (dut1, Tuesday), #12 (dut4)
Next steps       1. check what address the script computes
                 2. reproduce with `serialwatch mark` set before (risk L2)
Checked          3 claims, against the lines cited
Made by          the offline analyst, 4 skills, 0.4 s; no model was asked (none configured);
                 revision 2"""
    )


def test_a_reboot_behind_a_crash_does_not_name_the_crash_as_what_reset_the_board() -> None:
    lines = plain(100, about=replace(ABOUT, outcome_cause="panic"))

    assert "Outcome          the board rebooted after the crash" in lines


def test_a_model_that_was_asked_in_vain_is_not_one_that_was_not_asked() -> None:
    cost = Cost(4, 8, 23_000, 0.4, "", "no report in 8 rounds")
    lines = report_lines(replace(REPORT, cost=cost), ABOUT, NOW, None)
    text = "\n".join(line.plain for line in lines)

    assert "8 model calls, 23,000 tokens, 0.4 s; the model gave no report (no report in" in text
    assert "no model was asked" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_any_terminal(width: int) -> None:
    lines = plain(width)[1:]  # the heading is short enough for 80 columns

    assert all(len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "[L48212, knowledge uboot/sync_abort]" in text
    assert "← first fault line" in text


def test_at_80_columns_no_line_of_the_board_is_cut_for_its_note() -> None:
    lines = plain(80)

    assert '  03:58:12.109  L48212  "Synchronous Abort" handler, esr 0x96000004' in lines
    assert "                        ← first fault line" in lines


def test_in_a_pipe_nothing_is_wrapped_or_cut() -> None:
    lines = plain(None)

    assert (
        "  1. A read from 0xffffffffff000000 was not mapped: the abort came on the line after the "
        "command.   [L48211 L48212]" in lines
    )


def test_a_saved_log_without_a_clock_has_line_numbers_only() -> None:
    timeless = tuple(replace(entry, utc_ns=0) for entry in REPORT.timeline)
    lines = plain(80, replace(REPORT, timeline=timeless), About(port="dut1"))

    assert lines[0] == "Incident 17 · dut1 · critical"
    assert "  L48211  => md.l 0xffffffffff000000 4" in lines


def test_what_a_board_printed_cannot_steer_the_terminal() -> None:
    entry = TimelineEntry("dut1", 1, T, "\x1b]0;evil\x07 \u202eabc")
    lines = plain(100, replace(REPORT, title="a\x1b[2Jb", timeline=(entry,)))

    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)
    assert lines[1].startswith("a\\x1b[2Jb ")


def test_what_a_model_cost_and_why_it_was_not_used_is_told() -> None:
    cost = Cost(3, 2, 2310, 4.1, "qwen3", "its report cited lines that do not exist")
    report = replace(REPORT, made_by="model qwen3", cost=cost, claims=Claims(2, 1))
    (made_by,) = [line for line in plain(None, report) if line.startswith("Made by")]

    assert made_by == (
        "Made by          model qwen3, 3 skills, 2 model calls, 2,310 tokens, 4.1 s; its report "
        "cited lines that do not exist; revision 2"
    )
    assert (
        "Checked          3 claims, against the lines cited; 1 more had no evidence there and is "
        "left out"
    ) in plain(None, report)


def test_a_report_that_is_not_on_disk_says_so() -> None:
    lines = plain(None, about=replace(ABOUT, is_on_disk=False))

    assert lines[-1].startswith("Stored           not on disk yet")


def test_a_hypothesis_that_a_conclusion_states_is_not_told_again() -> None:
    guesses = tuple(
        Hypothesis("x.y", text, 0.5, "open")
        for text in ("dut2 shares the rail.", "one", "two", "three", "four")
    )
    lines = plain(None, replace(REPORT, hypotheses=guesses))

    at = lines.index("Also possible    · one")
    assert lines[at + 1 : at + 3] == ["                 · two", "                 · three"]
    assert "four" not in "".join(lines)


def test_a_long_step_goes_on_below_its_own_beginning() -> None:
    lines = plain(60)

    assert "                 2. reproduce with `serialwatch mark` set" in lines
    assert "                    before (risk L2)" in lines


def test_many_earlier_ones_are_counted() -> None:
    seen = tuple(Earlier(n) for n in range(1, 9))

    assert "Seen before      8 times on this bench: #1, #2, #3, #4, #5 and 3 more" in plain(
        None, about=replace(ABOUT, seen_before=seen)
    )
    assert "Seen before      once on this bench: #1" in plain(
        None, about=replace(ABOUT, seen_before=seen[:1])
    )


def test_markdown_has_the_same_facts_and_no_markup_of_the_boards() -> None:
    title = "value <b>*x*</b> [a](http://evil)"
    text = report_markdown(replace(REPORT, title=title), ABOUT, NOW)

    assert text.startswith("## value \\<b\\>\\*x\\*\\</b\\> `[a](http://evil)`\n")
    assert "03:58:12 (boot `#6`, 4 h 12 min" in text
    assert "dut2:L77  brown-out" in text  # no line of the timeline has it
    assert "1. A read from 0xffffffffff000000 was not mapped" in text
    assert '  03:58:12.109  L48212  "Synchronous Abort" handler' in text
    assert "- **Next steps**:\n  1. check what address the script computes\n  2. repro" in text
    assert "- **Seen before**: 2 times" in text
    assert "- **Made by**: the offline analyst" in text


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("ask @root or a@b.example.", "ask `@root` or `a@b.example`."),
        ("take the first oops, #1: later ones", "take the first oops, `#1`: later ones"),
        ("see #12, org/repo#3 and GH-9", "see `#12`, `org/repo#3` and `GH-9`"),
        ("www.evil.example http://x/", "`www.evil.example` `http://x/`"),
        ("commit deadbeefcafe :boom: at 03:58:12", "commit `deadbeefcafe` `:boom:` at 03:58:12"),
        (
            "# a * b _c_ ~~d~~ | <img src=x> &lt;",
            r"\# a \* b \_c\_ \~\~d\~\~ \| \<img src\=x\> \&lt;",
        ),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("``` `` `", r"\`\`\` \`\` \`"),
        ("`@a *b*` x", "`@a *b*` x"),
        ("`@a x", "`` `@a `` x"),
        ("a``b `c`d", r"a\`\`b \`c\`d"),
        ("![x](https://evil/p.png)", "`![x](https://evil/p.png)`"),
        ("$x^2$", "`$x^2$`"),
        ("a\x1b]8;;http://e\x07b\u202e", "`a\\x1b]8;;http://e\\x07b\\x202e`"),
    ],
)
def test_what_a_board_prints_stays_text_in_an_issue(printed: str, shown: str) -> None:
    assert inert(printed) == shown


def test_a_fence_cannot_be_closed_from_within() -> None:
    lines = list(fenced(["a", "````", "b"]))

    assert (lines[0], lines[-1]) == ("`````text", "`````")


def test_a_claim_that_rests_on_another_names_it() -> None:
    third = replace(REPORT.conclusions[2], evidence=(), rests_on=("c1", "c2"))
    lines = plain(100, replace(REPORT, conclusions=(*REPORT.conclusions[:2], third)))

    assert "  3. dut2 shares the rail.   [from 1, from 2]" in lines


class Logs:
    """Lines of two ports; dut2 has no log any more."""

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        if port != "dut1":
            raise CliError("no port dut2")
        assert query.first is not None
        assert query.last is not None
        for seq in range(query.first, min(query.last, 48_215) + 1):
            yield Line(port, seq, b"\x1b[31mline %d" % seq, 6, T + seq * MS, T, 0)

    def follow(
        self, port: str, first: int, text: bytes, *, has_ends: bool = False
    ) -> Iterator[Line]:
        raise AssertionError


def test_cited_lines_are_shown_with_their_neighbours() -> None:
    found = read_stretches(stretches(REPORT, 2), Logs())
    lines = [line.plain for line in report_lines(REPORT, ABOUT, NOW, 80, found)]
    at = lines.index("Cited lines")

    assert [line.split("  ")[-2:] for line in lines[at + 3 : at + 5]] == [
        ["\\x1b[31mline 48211", "[1]"],
        ["\\x1b[31mline 48212", "[1, 2]"],
    ]
    assert [line[:1] for line in lines[at + 1 : at + 7]] == [" ", " ", ">", ">", " ", " "]
    assert lines[at + 7 : at + 9] == ["  ...", "  dut2:L75-L79: no port dut2"]
    assert "dut1:L48211  \\x1b[31mline 48211  [1]" in report_markdown(REPORT, ABOUT, NOW, found)


def test_a_diff_tells_what_a_revision_added_and_took_back() -> None:
    model = replace(
        REPORT,
        revision=3,
        made_by="model tiny",
        title="The script read a wrong address",
        verdict="likely",
        confidence=0.6,
        conclusions=(REPORT.conclusions[0], replace(REPORT.conclusions[1], claim="It aborted.")),
        unknowns=(),
        hypotheses=(replace(REPORT.hypotheses[1], status="open"),),
    )
    lines = [line.plain for line in diff_lines([REPORT, model], 200)]

    assert lines[0] == "Revision 3, by model tiny"
    assert "  title          - U-Boot took a synchronous abort in `md.l` and reset" in lines
    assert "                 + The script read a wrong address" in lines
    assert "  verdict        - confirmed, confidence 0.9" in lines
    assert "  conclusion     + inference: It aborted. [dut1:L48212]" in lines
    assert "  conclusion     - cause: dut2 shares the rail. [dut2:L77]" in lines
    assert "  hypothesis     - refuted: noise on the line" in lines
    assert diff_json([REPORT, model])[0]["to"] == 3
    assert list(diff_lines([REPORT, replace(REPORT, revision=3)], 80))[1].plain == (
        "  nothing but what it cost"
    )
    assert list(changes(REPORT, REPORT)) == []


def test_the_first_sign_is_told_beside_a_time_that_is_the_faults() -> None:
    sign = HitCount(
        "uboot.env_bad_crc", "warning", "specific", "U-Boot's environment is not valid",
        27, 27, T - 1600 * MS, T - 1600 * MS, 1, (27,),
    )  # fmt: skip
    lines = plain(100, about=replace(ABOUT, first_sign=sign))
    timeless = plain(100, about=About(port="dut1", first_sign=replace(sign, first_utc_ns=0)))

    assert "03:58:12" in lines[0]
    assert "First sign       1.6 s earlier, L27, U-Boot's environment is not valid" in lines
    assert "First sign       L27, U-Boot's environment is not valid" in timeless


def test_a_cited_line_that_stood_unfinished_has_the_time_of_its_first_byte() -> None:
    typed = Line("dut1", 3, b"=> reset", 1, T, T + 300 * 10**9, 0)
    (row,) = context_lines(REPORT, [Stretch("dut1", 3, 3, (typed,))], NOW, None)

    assert exact(T, NOW) in row.plain
