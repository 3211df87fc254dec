from __future__ import annotations

import pytest

from serialwatch.records import Lines
from serialwatch.triggers.recent import Recent
from serialwatch.triggers.replays import Replays, copied

LISTED = b"Jun 22 03:58:12 board kernel: Oops"


def lines_of(first_seq: int, text: bytes) -> Lines:
    return Lines(first_seq, text.count(b"\n"), text, 0, 0)


def recent_of(*lines: bytes) -> tuple[Recent, int]:
    """Return the lines as one chunk, and the offset of the last."""
    recent = Recent()
    text = b"".join(line + b"\n" for line in lines)
    recent.fed(lines_of(1, text), text)
    return recent, len(text) - len(lines[-1]) - 1


def is_listed(*lines: bytes) -> bool:
    recent, offset = recent_of(*lines)
    return Replays(recent).is_listed(lines[-1], len(lines), offset)


def told(*lines: bytes) -> str:
    recent, offset = recent_of(*lines)
    return copied(recent, lines[-1], offset)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (b"cat /var/log/messages", LISTED),
        (b"journalctl -k -b -1", LISTED),
        (b"cat /var/log/kern.log", b"2026-06-22T03:58:12.104123+00:00 board kernel: [ 1.5] Oops"),
        (b"logread", b"Tue Aug 12 16:40:43 2025 kern.crit kernel: [   12.345678] Oops"),
        (b"dmesg -T", b"[Tue Aug 12 16:40:43 2025] Oops"),
        (b"dmesg -e", b"[Apr16 15:34] Oops"),
        (b"dmesg -e", b"[  +0,024018] Oops"),
    ],
)
def test_a_saved_log_that_was_asked_for_says_nothing_new(command: bytes, line: bytes) -> None:
    assert is_listed(b"hello", b"root@board:~# " + command, line)
    assert is_listed(b"root@board:~# " + command, line, b"  more of it", line)
    assert is_listed(b"[03:58:12.1] # " + command, b"[03:58:12.2] " + line)


def test_lines_of_a_logger_that_nobody_asked_for_are_news() -> None:
    assert not is_listed(LISTED, LISTED)
    assert not is_listed(b"hello", LISTED)
    assert not is_listed(b"# cat /var/log/messages", *[b"Oops"] * 5, LISTED)


UNIT = b"Jun 22 03:58:12 board systemd[1]: foo.service: Failed with result 'exit-code'."


def test_a_status_ends_with_some_lines_of_the_journal() -> None:
    asked = b"root@board:~# systemctl status foo"
    says = [b"     Active: failed (Result: exit-code)", *[b"      Tasks: 0"] * 8]

    assert is_listed(asked, *says, UNIT)
    assert is_listed(asked, *says, *[UNIT] * 10)
    assert not is_listed(asked, *says, *[UNIT] * 11)
    assert not is_listed(asked, *says, UNIT, b"root@board:~# ls", UNIT)
    assert not is_listed(b"root@board:~# systemctl restart foo", *says, UNIT)


@pytest.mark.parametrize("command", [b"tail -f /var/log/messages", b"journalctl -kf", b"dmesg -Tw"])
def test_a_log_that_is_followed_is_news(command: bytes) -> None:
    assert not is_listed(b"# " + command, LISTED)


def test_a_long_listing_is_one_however_it_comes_in() -> None:
    recent = Recent()
    replays = Replays(recent)
    asked_by = b"# cat /var/log/messages\n"
    recent.fed(lines_of(1, asked_by), asked_by)
    asked = []
    for seq in range(2, 5000):
        recent.fed(lines_of(seq, LISTED + b"\n"), LISTED + b"\n")
        asked += [replays.is_listed(LISTED, seq, 0)]

    assert all(asked)


PAIRS = (b"a", b"a", b"b", b"b", b"c", b"c")


def test_a_line_is_a_copy_where_all_lines_come_in_pairs() -> None:
    assert told(*PAIRS, b"d", b"d") == "yes"
    assert told(*PAIRS, b"", b"", b"d", b"d") == "yes"
    assert told(*PAIRS, b"d") == "no"
    assert told(*PAIRS, b"d", b"d", b"d") == "no"
    assert told(b"a", b"b", b"b", b"c", b"c", b"c") == "no"
    assert told(b"a", b"b", b"c", b"c") == "no"


def test_after_few_pairs_a_line_may_be_a_copy() -> None:
    assert told(b"c", b"c") == "perhaps"
    assert told(b"", b"", b"c", b"c") == "perhaps"
    assert told(*PAIRS[2:], b"d", b"d") == "perhaps"
    assert told(b"x", *PAIRS[2:], b"d", b"d") == "perhaps"
    assert told(b"c", b"c", b"c") == "no"


def test_a_line_that_comes_again_and_again_is_no_copy() -> None:
    assert told(*PAIRS, b"d", b"d", b"d", b"d") == "perhaps"
    assert told(*[b"a"] * 8, b"d", b"d") == "perhaps"
    assert told(*[b"d"] * 4) == told(*[b"d"] * 12) == "no"
    assert told(*PAIRS[:4], *[b"c"] * 6, b"d", b"d") == "perhaps"
    assert told(b"a", b"x", *[b"b"] * 8, b"d", b"d") == "no"


PANIC = b"<0>[ 1234.567890] Kernel panic - not syncing: Fatal exception"
CAT = b"root@board:~# cat /sys/fs/pstore/dmesg-ramoops-0"


def is_replay(*lines: bytes) -> bool:
    recent, offset = recent_of(b"[    5.000000] Run /sbin/init as init process", *lines)
    return recent.is_replay(lines[-1], offset)


@pytest.mark.parametrize(
    "command", [CAT, b"# cat /proc/last_kmsg", b"[12:03:41.5] ~ # less pstore/0"]
)
def test_a_record_that_is_printed_after_a_restart_says_nothing_new(command: bytes) -> None:
    more = b"<4>[ 1234.560000] CPU: 0 PID: 1 Comm: sh Not tainted 6.1.0 #1"

    assert is_replay(command, b"Panic#1 Part1", more, PANIC)


def test_behind_the_record_and_its_prompt_a_panic_is_news() -> None:
    assert not is_replay(PANIC)
    assert not is_replay(CAT, PANIC, b"root@board:~# uptime", PANIC)
    assert not is_replay(b"[    5.1] pstore: Using crash dump compression", PANIC)


def test_a_record_may_come_in_many_chunks() -> None:
    recent = Recent()
    first = b"hello\n" + CAT + b"\n"
    recent.fed(lines_of(1, first), first)
    for seq in range(3, 9):
        recent.fed(lines_of(seq, PANIC + b"\n"), PANIC + b"\n")
        assert recent.is_replay(PANIC, 0)
    recent.fed(lines_of(9, b"root@board:~# \n"), b"root@board:~# \n")
    recent.fed(lines_of(10, PANIC + b"\n"), PANIC + b"\n")

    assert not recent.is_replay(PANIC, 0)
