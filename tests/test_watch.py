from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache

import pytest

import fuzz_chunks
from serialwatch.bundled import bundled_dir
from serialwatch.lines import Splitter
from serialwatch.records import BlockEnd, Boot, Finding, Hit, Lines, Ready
from serialwatch.triggers import recent
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
T0 = 1000 * S

RULES = r"""
[[rule]]
id = "mine.stuck"
title = "valve {n} is stuck at {where}"
severity = "error"
match = ['valve \d+ stuck']
fields = ['valve (?P<n>\d+)', 'at (?P<where>\S+)']
unless = ['\bsimulated\b']

[[rule]]
id = "mine.stuck_open"
title = "valve is stuck open"
severity = "critical"
match = 'stuck open'
parent = "mine.stuck"

[[rule]]
id = "mine.dump"
title = "pump died"
severity = "critical"
match = ['^pump died']
block = { start = '^== dump', back_lines = 4, end = '^== end', max_lines = 10 }

[[rule]]
id = "mine.more"
title = "more of it"
severity = "critical"
match = 'pump says more'
block = { end = '^== end' }
continues = true

[[rule]]
id = "mine.exception"
title = "unhandled exception"
severity = "critical"
match = '^Unhandled exception: '
needs = { match = '^EPC: ', within_lines = 3 }

[[rule]]
id = "mine.timeout"
title = "card timeout"
severity = "error"
match = 'card timeout'
unless_near = { match = 'scanning|found it', before = 2, after = 2 }

[[rule]]
id = "mine.flap"
title = "link {dev} flaps"
severity = "warning"
match = 'link \w+ down'
fields = 'link (?P<dev>\w+)'
key = ["dev"]
count = { n = 3, in_s = 10 }

[[rule]]
id = "mine.watchdog"
title = "watchdog did not stop"
severity = "error"
match = 'watchdog did not stop'
severity_when = [{ state = "shutdown", severity = "note" }, { match = 'test', severity = "warning" }]

[[rule]]
id = "zed.wdt"
title = "watchdog reset"
severity = "critical"
ecosystem = ["zed"]
match = '^wdt reset'

[[rule]]
id = "zed.other"
title = "zed complains"
severity = "warning"
match = 'zed: complaint'

[[boot]]
ecosystem = "zed"
match = '^ZED ROM'
stage = 1

[[prompt]]
ecosystem = "zed"
match = '^zed> $'
ready = true

[[shutdown]]
ecosystem = "zed"
match = 'going down'
leads_to = "restart"

[[ignore]]
match = 'command line:'

[[ignore]]
match = 'drill'
rules = ["mine.stuck"]
"""


@cache
def small() -> Matcher:
    return Matcher(parse_rules(RULES))


@cache
def bundled() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Feed:
    """A port's watch with a clock and a line counter."""

    def __init__(
        self, matcher: Matcher, options: WatchOptions | None = None, boot: int = 0
    ) -> None:
        self.watch = PortWatch("dut1", matcher, options, boot)
        self.now = T0
        self.seq = 1

    def lines(self, *lines: str | bytes, after_s: float = 0.0) -> list[Finding]:
        self.now += round(after_s * S)
        text = b"".join(_bytes(line) + b"\r\n" for line in lines)
        found = self.watch.fed(Lines(self.seq, len(lines), text, self.now, self.now))
        self.seq += len(lines)
        self.now += S // 50  # nothing follows: the last line was not torn
        return found + self.watch.tick(self.now, self.now)

    def partial(self, text: str, after_s: float = 0.2) -> list[Finding]:
        self.now += round(after_s * S)
        return self.watch.partial(self.seq, text.encode(), self.now, self.now)

    def ticks(self, seconds: float) -> list[Finding]:
        found: list[Finding] = []
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now += S // 20
            found += self.watch.tick(self.now, self.now)
        return found


def _bytes(line: str | bytes) -> bytes:
    return line.encode() if isinstance(line, str) else line


def hits(found: Iterable[Finding]) -> list[Hit]:
    return [finding for finding in found if isinstance(finding, Hit)]


def triggers(found: Iterable[Finding]) -> list[str]:
    return [hit.trigger for hit in hits(found)]


def ends(found: Iterable[Finding]) -> list[tuple[int, int, str]]:
    return [(f.first_seq, f.last_seq, f.reason) for f in found if isinstance(f, BlockEnd)]


def test_a_hit_cites_the_raw_line_and_carries_its_fields() -> None:
    feed = Feed(small(), boot=4)
    hit = hits(feed.lines("fine", b"\x1b[31mvalve 12 stuck at P-7\x1b[0m", "fine"))[0]

    assert (hit.port, hit.trigger, hit.severity, hit.seq, hit.boot) == (
        "dut1",
        "mine.stuck",
        "error",
        2,
        4,
    )
    assert hit.title == "valve 12 is stuck at P-7"
    assert hit.fields == {"n": "12", "where": "P-7"}
    assert hit.raw == b"\x1b[31mvalve 12 stuck at P-7\x1b[0m"
    assert (hit.mono_ns, hit.utc_ns, hit.block_first, hit.opens_block) == (T0, T0, 2, False)


def test_a_missing_field_is_a_question_mark_and_controls_never_reach_a_title() -> None:
    feed = Feed(small())

    assert hits(feed.lines("valve 3 stuck"))[0].title == "valve 3 is stuck at ?"
    hit = hits(feed.lines("valve 3 stuck at x\u202e\u0085y"))[0]
    assert hit.title.isprintable()
    assert len(hits(feed.lines("valve 3 stuck at " + "y" * 900))[0].title) <= 160


def test_a_line_hits_a_rule_once_however_often_it_matches() -> None:
    assert triggers(Feed(small()).lines("valve 1 stuck, valve 2 stuck")) == ["mine.stuck"]


def test_unless_vetoes_in_the_same_line_only() -> None:
    found = Feed(small()).lines("valve 1 stuck, simulated", "simulated", "valve 2 stuck")

    assert [hit.seq for hit in hits(found)] == [3]


def test_only_the_sharper_of_parent_and_child_hits() -> None:
    assert triggers(Feed(small()).lines("valve 1 stuck open")) == ["mine.stuck_open"]


def test_without_a_key_numbers_do_not_make_another_fault() -> None:
    feed = Feed(small())
    one, two = hits(feed.lines("valve 1 stuck at P", "valve 2 stuck at P"))

    assert one.key == two.key != ""
    assert {hit.key for hit in hits(feed.lines(*["link eth0 down"] * 3))} == {"eth0"}


def test_ignored_lines_hit_nothing_and_may_be_ignored_for_one_rule_alone() -> None:
    feed = Feed(small())

    assert feed.lines("command line: valve 1 stuck") == []
    assert triggers(feed.lines("valve 1 stuck open, a drill", "valve 1 stuck, a drill")) == [
        "mine.stuck_open"
    ]


def test_a_block_reaches_back_to_its_start_and_forward_to_its_end() -> None:
    feed = Feed(small())
    found = feed.lines("== dump 1", "r0=1", "r1=2", "pump died", "r2=3", "== end", "fine")
    hit = hits(found)[0]

    assert (hit.seq, hit.block_first, hit.opens_block) == (4, 1, True)
    assert ends(found) == [(1, 6, "end")]


def test_a_start_too_far_back_or_of_an_earlier_block_does_not_count() -> None:
    feed = Feed(small())
    far = feed.lines("== dump", *["x"] * 5, "pump died", "== end", "pump died")

    assert [hit.block_first for hit in hits(far)] == [7, 9]


def test_a_rule_that_continues_adds_to_an_open_block_and_else_opens_one() -> None:
    feed = Feed(small())
    found = feed.lines("pump died", "pump says more", "== end", "pump says more", "== end")

    assert [(hit.trigger, hit.opens_block) for hit in hits(found)] == [
        ("mine.dump", True),
        ("mine.more", False),
        ("mine.more", True),
    ]
    assert ends(found) == [(1, 3, "end"), (4, 5, "end")]


def test_a_second_fault_in_an_open_block_closes_it() -> None:
    found = Feed(small()).lines("pump died", "r0=1", "pump died", "== end")

    assert ends(found) == [(1, 2, "end"), (3, 4, "end")]


def test_a_block_ends_at_its_greatest_length() -> None:
    feed = Feed(small())
    found = feed.lines("pump died", *["x"] * 30)

    assert ends(found) == [(1, 10, "length")]
    by_line = Feed(small())
    one_by_one = [f for line in ["pump died", *["x"] * 30] for f in by_line.lines(line)]
    assert triggers(one_by_one) == triggers(found)
    assert ends(one_by_one) == ends(found)


def test_a_block_ends_at_a_boot_a_prompt_and_after_two_quiet_seconds() -> None:
    feed = Feed(small())
    booted = feed.lines("pump died", "r0=1", "ZED ROM")

    assert ends(booted) == [(1, 2, "boot")]
    feed.lines("pump died", "r0=1")
    assert ends(feed.partial("zed> ")) == [(4, 5, "prompt")]
    feed.lines("pump died", "r0=1")
    assert ends(feed.ticks(1.9)) == []
    assert ends(feed.ticks(0.3)) == [(6, 7, "quiet")]


def test_a_slow_console_gets_five_seconds() -> None:
    feed = Feed(small(), WatchOptions(bit_rate=9600))
    feed.lines("pump died")

    assert ends(feed.ticks(4.8)) == []
    assert ends(feed.ticks(0.4)) == [(1, 1, "quiet")]


def test_a_pause_between_chunks_is_silence_without_any_tick() -> None:
    feed = Feed(small())
    feed.lines("pump died")

    assert ends(feed.lines("fine", after_s=2.5)) == [(1, 1, "quiet")]


def test_a_hit_that_needs_another_line_waits_for_it() -> None:
    feed = Feed(small())

    assert feed.lines("Unhandled exception: 2", "x") == []
    hit = hits(feed.lines("EPC: 80000000"))[0]
    assert (hit.trigger, hit.seq) == ("mine.exception", 1)


def test_a_needed_line_may_come_before_but_not_be_the_line_itself() -> None:
    feed = Feed(small())

    assert triggers(feed.lines("EPC: 1", "Unhandled exception: 2")) == ["mine.exception"]
    feed.lines(*["x"] * 9)
    assert feed.lines("Unhandled exception: EPC: 1", *["x"] * 9) == []


def test_a_hit_that_was_not_confirmed_in_time_is_none() -> None:
    feed = Feed(small())

    assert feed.lines("Unhandled exception: 2", "x", "x", "x", "EPC: 1") == []
    feed.lines(*["x"] * 9)
    feed.lines("Unhandled exception: 2")
    assert hits(feed.ticks(3)) == []
    assert feed.lines("EPC: 1") == []


def test_a_line_nearby_vetoes_before_and_after() -> None:
    feed = Feed(small())

    assert feed.lines("scanning slot 1", "card timeout", "x", "x", "x") == []
    assert feed.lines("card timeout", "x", "found it", "x", "x") == []
    assert feed.lines("card timeout while scanning", "x", "x", "x") == []
    assert [hit.seq for hit in hits(feed.lines("card timeout", "x", "x", "found it"))] == [15]


@pytest.mark.parametrize("times", [1, 3])  # known the second time
@pytest.mark.parametrize("copied", [(), ("scanning slot 1",)])
def test_a_line_that_is_only_asked_for_vetoes_wherever_it_stands_in_a_chunk(
    times: int, copied: tuple[str, ...]
) -> None:
    feed = Feed(small())
    for _ in range(times):
        feed.lines("x", "y", *copied, "scanning slot 1", "x")

        assert feed.lines("card timeout", "y", "y", "y") == []
        assert hits(feed.lines("x", "SCANNING slot 1", "card timeout", "y", "y", "y"))


def test_silence_ends_the_wait_for_a_veto() -> None:
    feed = Feed(small())

    assert feed.lines("card timeout") == []
    assert triggers(feed.ticks(2.2)) == ["mine.timeout"]


def test_a_counted_rule_hits_every_nth_time_within_the_seconds_and_by_key() -> None:
    feed = Feed(small())

    assert hits(feed.lines("link a down", "link a down", "link b down")) == []
    assert hits(feed.lines("link a down", after_s=11)) == []
    feed.lines("link a down", after_s=1)
    assert [hit.key for hit in hits(feed.lines("link a down", after_s=1))] == ["a"]
    assert hits(feed.lines("link a down", after_s=1)) == []


def test_in_a_saved_log_of_one_time_lines_stand_in_for_seconds() -> None:
    near = Feed(small()).lines(*["link a down", *["x"] * 50] * 3)
    far = Feed(small()).lines(*["link a down", *["x"] * 300] * 3)

    assert len(hits(near)) == 1
    assert hits(far) == []


def test_the_severity_depends_on_the_state_and_on_the_line() -> None:
    feed = Feed(small())

    assert hits(feed.lines("watchdog did not stop"))[0].severity == "error"
    assert hits(feed.lines("watchdog did not stop, test"))[0].severity == "warning"
    assert hits(feed.lines("going down", "watchdog did not stop"))[0].severity == "note"


def test_a_gated_rule_needs_its_ecosystem_or_another_fault_of_it() -> None:
    feed = Feed(small())

    assert feed.lines("wdt reset", *["x"] * 30) == []
    assert triggers(feed.lines("wdt reset", "x", "zed: complaint")) == ["zed.wdt", "zed.other"]
    feed.lines("ZED ROM")
    assert feed.watch.ecosystems == {"zed"}
    assert triggers(feed.lines("wdt reset")) == ["zed.wdt"]


def test_a_port_may_have_some_packs_only_and_firmware_may_crash_on_purpose() -> None:
    assert triggers(
        Feed(small(), WatchOptions(packs=("zed",))).lines("valve 1 stuck", "zed: complaint")
    ) == ["zed.other"]
    hit = hits(Feed(small(), WatchOptions(expect_faults=True)).lines("pump died"))[0]
    assert (hit.severity, hit.opens_block) == ("note", True)


def test_an_unfinished_line_is_judged_and_judged_again_without_a_second_hit() -> None:
    feed = Feed(small())

    assert triggers(feed.partial("pump died")) == ["mine.dump"]
    assert hits(feed.partial("pump died: dry")) == []
    assert hits(feed.lines("pump died: dry run")) == []
    assert triggers(feed.lines("pump died")) == ["mine.dump"]


def test_a_later_byte_may_still_veto_an_unfinished_line_until_two_quiet_seconds() -> None:
    feed = Feed(small())

    assert feed.partial("valve 3 stuck") == []
    assert feed.lines("valve 3 stuck, simulated") == []
    assert feed.partial("valve 3 stuck") == []
    found = feed.ticks(2.2)
    assert triggers(found) == ["mine.stuck"]
    assert hits(found)[0].seq == feed.seq


def test_a_value_in_which_an_unfinished_line_stops_is_told_when_it_is_whole() -> None:
    rules = """
[[rule]]
id = "mine.assert"
title = "assertion at {pc}"
severity = "critical"
match = '^assert @ '
fields = '@ (?P<pc>\\w+)'
"""
    feed = Feed(Matcher(parse_rules(rules)))

    assert feed.partial("assert @ 0x9c3") == []
    assert [hit.title for hit in hits(feed.lines("assert @ 0x9c3f"))] == ["assertion at 0x9c3f"]
    assert triggers(feed.partial("assert @ 0x9c3 (core 1)")) == ["mine.assert"]

    feed = Feed(Matcher(parse_rules(rules)))
    assert feed.partial("assert @ 0x9c3f") == []
    assert feed.ticks(0.4) == []
    assert [hit.title for hit in hits(feed.ticks(0.2))] == ["assertion at 0x9c3f"]
    assert hits(feed.lines("assert @ 0x9c3f")) == []


def test_an_escape_cut_by_the_pause_does_not_hide_a_fault() -> None:
    feed = Feed(small())

    assert triggers(feed.partial("\x1b[1;31mpump died\x1b[0")) == ["mine.dump"]


def test_an_unfinished_line_may_be_several_of_a_console_of_crs() -> None:
    feed = Feed(small())

    assert triggers(feed.partial("ready\rpump died")) == ["mine.dump"]
    assert [f for f in feed.partial("ready\rpump died\rzed> ") if isinstance(f, Ready)]


def test_the_echo_of_what_was_typed_is_no_fault_but_what_the_board_says_is() -> None:
    feed = Feed(small())
    feed.watch.wrote(b"put val", feed.now)
    feed.watch.wrote(b"ve 3 stuck\r", feed.now)

    assert feed.lines("zed> put valve 3 stuck") == []
    assert triggers(feed.lines("valve 3 stuck now")) == ["mine.stuck"]
    assert triggers(feed.lines("zed> put valve 3 stuck", after_s=3)) == ["mine.stuck"]


@pytest.mark.parametrize(
    "line",
    [
        "zed> echo valve 3 stuck",
        "root@dut:/# grep 'valve 3 stuck' /var/log/messages",
        "=> echo valve 3 stuck",
    ],
)
def test_a_typed_command_that_only_handles_text_is_no_fault(line: str) -> None:
    assert Feed(small()).lines(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "root@dut:/# valve 3 stuck",
        "root@dut:/# cat big.txt [  273.535441] valve 3 stuck",
        "state open -> cat valve 3 stuck",
    ],
)
def test_a_fault_that_comes_behind_a_prompt_is_one(line: str) -> None:
    assert triggers(Feed(small()).lines(line)) == ["mine.stuck"]


def test_ready_comes_once_a_boot_from_a_prompt_or_from_the_ports_own_pattern() -> None:
    feed = Feed(small())
    feed.lines("ZED ROM")

    assert [f for f in feed.partial("zed> ") if isinstance(f, Ready)]
    assert feed.partial("zed> ") == []
    own = Matcher(parse_rules(RULES), ready=["app up"])
    feed = Feed(own, WatchOptions(ready="app up"))
    assert feed.partial("zed> ") == []
    assert [f.seq for f in feed.lines("x", "app up") if isinstance(f, Ready)] == [2]


def test_a_prompt_after_a_fault_tells_that_the_board_went_on() -> None:
    feed = Feed(small())
    feed.lines("ZED ROM")
    feed.partial("zed> ")
    feed.lines("zed> run", "wdt reset")

    assert [f.seq for f in feed.partial("zed> ") if isinstance(f, Ready)] == [4]
    assert feed.partial("zed> ") == []


def test_losing_the_port_decides_what_waits() -> None:
    feed = Feed(small())
    feed.lines("pump died", "card timeout")
    found = feed.watch.lost(feed.now)

    assert triggers(found) == ["mine.timeout"]
    assert ends(found) == [(1, 2, "quiet")]


def test_other_rules_take_over_at_once_and_nothing_is_mixed_up() -> None:
    feed = Feed(small())
    feed.lines("ZED ROM", "== dump", "card timeout")
    feed.watch.swap(bundled())

    # What waited for a line that could have vetoed it would never be judged again.
    found = feed.lines("pump died", "Kernel panic - not syncing: x")
    assert triggers(found) == ["mine.timeout", "linux.panic"]
    feed.watch.swap(small())
    assert triggers(feed.lines("pump died")) == ["mine.dump"]
    assert feed.watch.boot == 1


# The rules that ship, on what consoles do to lines


def streamed(data: bytes, eol: str = "lf") -> list[Finding]:
    watch = PortWatch("dut1", bundled())
    splitter = Splitter("cr" if eol == "cr" else "lf")
    found: list[Finding] = []
    seq = 1
    for at in range(0, len(data), 7):
        text, count = splitter.feed(data[at : at + 7])
        if count:
            found += watch.fed(Lines(seq, count, text, T0, T0))
            seq += count
    return found + watch.lost(T0)


@pytest.mark.parametrize(
    ("raw", "trigger"),
    [
        (
            b"/init: 384: .: [  271.443218] Kernel panic - not syncing: Attempted to kill init!\n",
            "linux.panic_init_killed",
        ),
        (b"board login: [   29.334102] Kernel panic - not syncing: x\r\r\n", "linux.panic"),
        (b"Ker\x00nel pan\x00ic - not syncing: x\r\n", "linux.panic"),
        (b"10%\r20%\r[   29.334102] Kernel panic - not syncing: x\r\n", "linux.panic"),
        (
            b"\x1b[0;31mE (10325) task_wdt: Task watchdog got triggered.\x1b[0m The following tasks\r\n",
            "esp.task_wdt",
        ),
        (
            b"PC : 0x400813aaGuru Meditation Error: Core  0 panic'ed (LoadProhibited)\r\n",
            "esp.guru",
        ),
        (b"\xef\xbf\xbd\xff irq 33: nobody cared (try booting)\r\n", "linux.irq_nobody_cared"),
        (
            b"^[[1;31m[00:00:00.006,713] <err> os: ***** BUS FAULT *****^[[0m\r\n",
            "zephyr.cpu_fault",
        ),
    ],
)
def test_a_fault_is_found_in_a_damaged_line(raw: bytes, trigger: str) -> None:
    assert trigger in triggers(streamed(b"before\r\n" + raw))


def test_a_console_that_ends_lines_by_cr_alone_is_matched_line_by_line() -> None:
    found = streamed(b"one\rKernel panic - not syncing: x\rtwo\r", eol="cr")

    assert [hit.seq for hit in hits(found) if hit.trigger == "linux.panic"] == [2]


def test_a_kernel_log_that_is_printed_again_gives_no_second_hit() -> None:
    feed = Feed(bundled())
    fault = (
        "[   71.402118] Unable to handle kernel NULL pointer dereference at virtual address 0014"
    )
    live = feed.lines(
        "[    0.000000] Linux version 6.1.20 (b@h) #1", fault, "[  900.000000] usb 1-1: new"
    )
    again = feed.lines("root@dut:~# dmesg", "[    0.000000] Linux version 6.1.20 (b@h) #1", fault)

    assert triggers(live) == ["linux.oops"]
    assert triggers(again) == []
    assert feed.watch.boot == 1
    feed.lines("[  901.000000] usb 1-1: gone", after_s=10)
    later = fault.replace("71.402118", "902.110000")
    assert triggers(feed.lines(later)) == ["linux.oops"]


def test_whoever_asks_right_after_a_fault_sees_it_again_which_is_no_second_one() -> None:
    feed = Feed(bundled())
    fault = "[   71.402118] BUG: kernel NULL pointer dereference, address: 0000000000000014"
    assert triggers(feed.lines("[   70.000000] usb 1-1: new", fault)) == ["linux.oops"]
    feed.lines("root@dut:~# dmesg | tail", after_s=20)

    assert triggers(feed.lines("[   70.000000] usb 1-1: new", fault)) == []
    later = fault.replace("71.402118", "71.402119")
    assert triggers(feed.lines(later)) == ["linux.oops"]


def test_a_kernel_that_dies_each_time_with_the_same_stamp_is_told_each_time() -> None:
    feed = Feed(bundled())
    panic = "[    0.000000] Kernel panic - not syncing: no memory"
    for _ in range(3):
        assert triggers(feed.lines(panic, "[    0.000000] x", after_s=5)) == ["linux.panic"]


def test_a_clock_that_starts_anew_without_a_banner_hides_no_fault() -> None:
    feed = Feed(bundled())
    feed.lines("[ 5000.000000] usb 1-1: new")

    assert triggers(feed.lines("[    2.000000] Kernel panic - not syncing: x")) == ["linux.panic"]


def test_a_restart_in_the_midst_of_a_chunk_makes_older_stamps_worthless() -> None:
    feed = Feed(bundled())
    feed.lines(
        "[ 5000.000000] usb 1-1: new", "root@dut:~# dmesg", "U-Boot 2023.01 (Jun 22 2026)", "x"
    )

    assert triggers(feed.lines("[    2.000000] Kernel panic - not syncing: x")) == ["linux.panic"]


def test_a_long_replay_is_still_known_for_one() -> None:
    feed = Feed(bundled())
    feed.lines("[ 5000.000000] usb 1-1: new", "root@dut:~# dmesg")
    for number in range(300):
        feed.lines(*[f"[ {number:4}.{n:06}] eth0: some line of a kernel" for n in range(5)])

    assert triggers(feed.lines("[  300.000000] Kernel panic - not syncing: x")) == []


def test_a_replay_is_known_for_one_by_stamps_of_any_place_shortly_before() -> None:
    feed = Feed(bundled())
    feed.lines("root@dut:~# dmesg", "[ 5000.000000] usb 1-1: new", "root@dut:~# dmesg")
    for number in range(3000):  # 100 KiB, more than is looked at stamp by stamp
        feed.lines(f"[ {number:4}.000000] eth0: some line of a kernel")

    assert triggers(feed.lines("[  300.000000] Kernel panic - not syncing: x")) == []


def test_a_fault_does_not_wait_until_all_that_came_before_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    look = recent._highest

    def count(text: bytes, start: int = 0, end: int | None = None) -> int:
        nonlocal looked_at
        looked_at += (len(text) if end is None else end) - start
        return look(text, start, end)

    feed = Feed(bundled())
    line = "[  100.000000] eth0: link is up and some more words about it"
    for _ in range(60):
        feed.lines(*[line] * 70)
    monkeypatch.setattr(recent, "_highest", count)
    assert triggers(feed.lines("[  100.000000] irq 7: nobody cared (try booting)"))

    assert 32 * 1024 < looked_at < 72 * 1024, "of 256 KiB, which take 3 ms"


def test_a_fault_deep_in_a_line_without_end_is_found_with_its_fields() -> None:
    line = "x" * 9000 + "[   12.345678] irq 33: nobody cared (try booting)" + "y" * 6000
    hit = hits(Feed(bundled()).lines(line))[0]

    assert (hit.trigger, hit.fields["irq"], len(hit.raw)) == ("linux.irq_nobody_cared", "33", 4096)


def test_a_hostile_line_is_judged_quickly() -> None:
    feed = Feed(bundled())
    lines = [
        f"{junk * (3000 // len(junk))} too much work for irq4"
        for junk in ("a", "a/b:", "-", "(", "0x1 ")
    ]
    started = time.process_time()
    feed.lines(*lines * 4)

    assert time.process_time() - started < 2.0, "20 such lines take a good tenth of a second"


def test_findings_do_not_depend_on_the_chunks() -> None:
    matcher = fuzz_chunks.fuzz_matcher()
    findings = 0
    for seed in range(25_000 // fuzz_chunks.CHUNKINGS_PER_STREAM):
        found, wrong = fuzz_chunks.run_stream(matcher, seed, fuzz_chunks.CHUNKINGS_PER_STREAM)
        findings += found
        assert not wrong, wrong

    assert findings > 1000


def test_boots_are_told_before_what_belongs_to_them() -> None:
    found = Feed(small()).lines("ZED ROM", "pump died", "ZED ROM", "valve 1 stuck")

    assert [type(f).__name__ for f in found] == ["Boot", "Hit", "BlockEnd", "Boot", "Hit"]
    assert [hit.boot for hit in hits(found)] == [1, 2]
    assert [f.number for f in found if isinstance(f, Boot)] == [1, 2]


@pytest.mark.parametrize("at_once", [1, 2, 3, 6])
def test_after_a_reset_without_a_banner_a_listing_does_not_hide_what_comes_next(
    at_once: int,
) -> None:
    lines = [
        "[   90.000000] x",
        "Resetting CPU ...",
        "[    8.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000",
        "root@dut:~# dmesg",
        "[    3.000000] x",
        "[   20.000000] Kernel panic - not syncing: Fatal exception",
    ]
    feed = Feed(bundled())
    found = [f for n in range(0, 6, at_once) for f in feed.lines(*lines[n : n + at_once])]

    assert triggers(found)[-2:] == ["linux.oops", "linux.panic"]
