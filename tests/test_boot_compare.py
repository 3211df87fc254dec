"""A boot held against another: the skill boot-compare over logs as the daemon leaves them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from own_streams import STREAMS, Stream
from saved_log import START_NS, S, SavedLog, line
from serialwatch.agent.ctx.boot_diff import BootDiff, compare, form_of, read_boot
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.workers.direct import LineLog
from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, BootCause, Marker, Ready
from serialwatch.store.boots import save_boot, save_marker, save_ready
from serialwatch.store.incidents import save_change
from skill_run import opened_database, opened_run, run_skill
from test_context import incident

GOOD = (
    "U-Boot SPL 2024.01 (Jan 08 2024 - 15:37:48 +0000)",
    "DRAM:  512 MiB",
    "[    0.000000] Linux version 6.1.0 (build@host)",
    "[    0.412345] mmc0: new high speed SDHC card at address 59b4",
    "[    0.512345] eth0: link up, 100Mbps",
    "[    0.612345] EXT4-fs (mmcblk0p2): mounted filesystem",
    "[    1.000000] systemd[1]: Started Journal Service.",
    "board login:",
)


class Board:
    """A port whose boots are in its log and in the database."""

    def __init__(self, folder: Path, db: Database, ctx: CtxServer) -> None:
        self.log = SavedLog(folder / "log")
        self.db = db
        self.ctx = ctx
        self.firsts: dict[int, int] = {}

    def boots(
        self,
        number: int,
        lines: Sequence[str],
        *,
        is_ready: bool = True,
        after_s: float = 0.1,
        cause: BootCause = "power_on",
    ) -> None:
        first = self.log.next_seq
        self.firsts[number] = first
        at = START_NS + number * 60 * S
        self.log.boot(number)
        self.log.add(*lines, after_s=after_s)
        boot = Boot("dut1", number, first, "linux", cause, "U-Boot SPL", 0, at)
        save_boot(self.db, boot)
        if is_ready:
            save_ready(self.db, Ready("dut1", self.log.next_seq - 1, number, 0, at + 8 * S))

    async def compare(self, **params: Any) -> dict[str, Any]:
        return dict((await run_skill(self.ctx, "boot-compare", **params)).output)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    path = tmp_path / "serialwatch.db"
    with (
        opened_database(path) as db,
        opened_run(
            [bundled_dir("skills")], log_dir=tmp_path / "log", db_path=path, port="dut1"
        ) as ctx,
    ):
        yield Board(tmp_path, db, ctx)


async def test_two_good_boots_differ_in_nothing(board: Board) -> None:
    board.boots(1, GOOD)
    again = [line.replace("0.4", "0.7").replace("59b4", "0007") for line in GOOD]
    board.boots(2, again, after_s=0.12)

    found = await board.compare()

    assert (found["boot"]["number"], found["base"]["number"]) == (2, 1)
    assert found["base"]["is_good"] is True
    assert (found["divergence"], found["new"], found["missing"]) == (None, [], [])
    assert (found["reworded"], found["counts"], found["slower"]) == ([], [], [])


async def test_a_prompt_behind_which_the_kernel_printed_is_still_that_prompt(board: Board) -> None:
    board.boots(1, [*GOOD[:-1], f"{GOOD[-1]} [   93.755822] random: crng init done"])
    board.boots(2, GOOD)
    answer = await board.compare(boot=2, base=1)

    assert answer["new"] == []


async def test_a_boot_that_a_watchdog_ended_was_no_good_one(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD)
    board.boots(3, GOOD, cause="watchdog")

    assert (await board.compare(boot=3))["base"]["number"] == 1


async def test_lines_that_swap_places_are_no_difference(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, [*GOOD[:3], GOOD[4], GOOD[3], *GOOD[5:]])

    assert (await board.compare())["divergence"] is None


async def test_the_first_new_line_is_where_the_boots_part(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(
        2,
        [
            *GOOD[:4],
            "[    0.600000] mmc0: error -110 whilst initialising SD card",
            "[    9.600000] Kernel panic - not syncing: VFS: Unable to mount root fs",
        ],
        is_ready=False,
    )

    found = await board.compare()

    parting = found["divergence"]
    assert parting["kind"] == "new"
    assert parting["after"]["text"] == GOOD[3]
    assert (parting["after"]["seq"], parting["after"]["base_seq"]) == (12, 4)
    assert parting["here"]["seq"] == 13
    assert parting["base"] == {"base_seq": 5, "text": GOOD[4], "base_at_s": 0.4}
    assert [line["seq"] for line in found["new"]] == [13, 14]
    assert found["new"][1]["level"] == "critical"
    assert found["missing"] == []
    assert found["not_reached"]["shapes"] == 4
    assert found["boot"]["ready_s"] is None
    assert found["base"]["ready_s"] == 8.0


async def test_a_line_that_should_have_come_is_missing(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, [line for line in GOOD if "eth0" not in line])

    found = await board.compare()

    parting = found["divergence"]
    assert (parting["kind"], parting["base"]["base_seq"]) == ("missing", 5)
    assert (parting["after"]["seq"], parting["here"]) == (12, None)
    assert [line["base_seq"] for line in found["missing"]] == [5]


async def test_the_earlier_of_a_missing_and_a_new_line_decides(board: Board) -> None:
    board.boots(1, GOOD)
    without = [line for line in GOOD if "DRAM" not in line]
    board.boots(2, [*without, "[    2.0] usb 1-1: device descriptor read/64, error -71"])

    parting = (await board.compare())["divergence"]

    assert (parting["kind"], parting["base"]["text"]) == ("missing", "DRAM:  512 MiB")


async def test_a_boot_that_hangs_stops_before_what_came_next(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD[:4], is_ready=False)

    found = await board.compare()

    assert found["divergence"]["kind"] == "stops"
    assert found["divergence"]["after"]["seq"] == 12
    assert found["divergence"]["base"]["base_seq"] == 5
    assert found["not_reached"]["next"]["text"] == GOOD[4]
    assert found["boot"]["is_newest"] is True


async def test_another_version_is_reworded_and_no_divergence(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, [line.replace("(build@host)", "(ci@farm)") for line in GOOD])

    found = await board.compare()

    assert found["divergence"] is None
    (pair,) = found["reworded"]
    assert (pair["seq"], pair["base_seq"]) == (11, 3)


async def test_words_that_say_how_it_went_are_never_reworded(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, [line.replace("link up", "link down") for line in GOOD])

    found = await board.compare()

    assert found["reworded"] == []
    assert "link down" in found["divergence"]["here"]["text"]
    assert "link up" in found["divergence"]["base"]["text"]


async def test_a_step_that_took_longer_is_told_with_both_times(board: Board) -> None:
    board.boots(1, GOOD)
    first = board.log.next_seq
    board.boots(2, GOOD[:3], is_ready=False)
    board.log.add(GOOD[3], after_s=30.0)
    board.log.add(*GOOD[4:])

    (step,) = (await board.compare())["slower"]

    assert (step["took_s"], step["base_took_s"]) == (30.0, 0.1)
    assert (step["after_seq"], step["until"]["seq"]) == (first + 2, first + 3)


async def test_a_line_that_came_much_more_often_is_told(board: Board) -> None:
    noisy = [*GOOD[:4], "i2c i2c-0: timeout", *GOOD[4:]]
    board.boots(1, noisy)
    board.boots(2, [*GOOD[:4], *("i2c i2c-0: timeout" for _ in range(20)), *GOOD[4:]], after_s=0.04)

    (pair,) = (await board.compare())["counts"]

    assert (pair["count"], pair["base_count"], pair["base_seq"]) == (20, 1, 5)


async def test_the_base_is_the_last_boot_that_went_well(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD)  # ready, but with a fault
    board.boots(3, GOOD[:3], is_ready=False)
    board.boots(4, GOOD[:5], is_ready=False)
    fault = incident(1, "linux.oops")
    object.__setattr__(fault, "boot", 2)
    object.__setattr__(fault, "opened_utc_ns", START_NS + 130 * S)
    save_change(board.db, fault)

    found = await board.compare()

    assert (found["boot"]["number"], found["base"]["number"]) == (4, 1)
    assert "ready without a fault" in found["base"]["why"]


async def test_without_a_good_boot_the_one_before_is_taken_and_said_so(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD[:5], is_ready=False)
    fault = incident(1, "linux.oops")
    object.__setattr__(fault, "boot", 1)
    object.__setattr__(fault, "opened_utc_ns", START_NS + 70 * S)
    save_change(board.db, fault)

    base = (await board.compare())["base"]

    assert (base["number"], base["is_good"]) == (1, False)
    assert "none is known" in base["why"]


async def test_two_boots_can_be_named(board: Board) -> None:
    for number in (1, 2, 3):
        board.boots(number, GOOD)

    found = await board.compare(boot=1, base=3)

    assert (found["boot"]["number"], found["base"]["number"]) == (1, 3)
    assert (await board.compare(boot=-2))["boot"]["number"] == 2


async def test_the_boot_of_the_incident_is_meant_if_none_is_named(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD[:3], is_ready=False)
    board.boots(3, GOOD)
    fault = incident(1, "linux.oops")
    object.__setattr__(fault, "boot", 2)
    save_change(board.db, fault)
    board.ctx.incident = 1

    assert (await board.compare())["boot"]["number"] == 2


async def test_other_firmware_between_the_boots_is_told(board: Board) -> None:
    board.boots(1, GOOD)
    seq = board.log.next_seq
    save_marker(board.db, Marker(1, "dut1", seq, "flash", "v2.bin", "me", 0, START_NS))
    board.boots(2, GOOD)

    assert (await board.compare())["flashed_between"] == [{"seq": seq, "text": "v2.bin"}]


async def test_only_lines_that_are_shown_count_as_read(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, [*GOOD[:4], "[ 0.6] mmc0: error -110"], is_ready=False)

    await board.compare()

    seqs = {seq for _, seq in board.ctx.ledger}
    assert {4, 5, 12, 13} <= seqs
    assert not seqs & {1, 2, 9, 10}


async def test_a_first_boot_and_no_boot_are_no_data(board: Board) -> None:
    board.log.add("hello")
    none = await board.compare()
    board.boots(1, GOOD)
    first = await board.compare()

    assert (none["no_data"], first["no_data"]) == (True, True)
    assert "first one" in first["why"]


async def test_boots_that_are_not_there_are_refused(board: Board) -> None:
    board.boots(1, GOOD)
    board.boots(2, GOOD)

    missing = await run_skill(board.ctx, "boot-compare", boot=9)
    same = await run_skill(board.ctx, "boot-compare", boot=2, base=2)

    assert "boots 1 to 2" in missing.metadata["error"]["detail"]
    assert error_code(same) == "invalid_args"


async def test_a_long_difference_stays_short(board: Board) -> None:
    board.boots(1, GOOD)
    noise = [f"{'ab'[n % 2] * (n // 9 + 1)} {'z' * (n % 9 + 1)} {'x' * 180}" for n in range(300)]
    board.boots(2, [*GOOD[:3], *noise, "Kernel panic - not syncing"], is_ready=False)

    found = await board.compare(limit=60)

    assert found["found"]["new"] > 100
    assert 4 <= len(found["new"]) < 60
    assert any(line.get("level") == "critical" for line in found["new"])


async def test_long_boots_are_compared_within_a_second_or_two(board: Board) -> None:
    lines = [f"[ {n}.5] task {n}: heap {n * 7} bytes free at 0x{n:08x}" for n in range(6000)]
    for number in (1, 2):
        board.boots(number, ["\n".join([*GOOD, *lines])])

    began = time.process_time()
    found = await board.compare()

    assert found["boot"]["lines"] == 6008
    assert found["divergence"] is None
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("eth0: MAC 3c:71:bf:4a:00:1e", "eth0: MAC 3c:71:bf:9b:c4:ff"),
        ("rtc: Mon Jun 22 03:58:12 UTC 2026", "rtc: Tue Jul 7 14:00:01 UTC 2026"),
        ("uuid 0b6c1d2e-1111-2222-3333-aabbccddeeff", "uuid ffffffff-aaaa-bbbb-cccc-001122334455"),
        ("dump: 1a 2b 3c 44 0f", "dump: 00 99 a1 b2 c3"),
        ("[    0.1] irq 17 at 0xdead0000", "[   99.9] irq 5 at 0x10"),
    ],
)
def test_what_differs_every_time_is_the_same_form(one: str, other: str) -> None:
    assert form_of(one) == form_of(other)


def test_words_are_not_numbers() -> None:
    assert form_of("eth0: link up") != form_of("eth0: link down")
    assert form_of("feed the cafe") == "feed the cafe"


# Boots of the kinds of firmware that we know: each healthy stream against itself, as it would come
# another day: other numbers, neighbours that swap places, a line too many, one too few, a hang.

HEALTHY = [s for s in STREAMS if not s.expected and s.boots == 1]


def lines_of(stream: Stream) -> list[bytes]:
    return [x.rstrip(b"\r") for x in stream.data.replace(b"\r\n", b"\n").split(b"\n") if x]


def another_day(raw: bytes, seed: int) -> bytes:
    """Return a line with other numbers."""
    dice = random.Random(seed)

    def other(found: re.Match[bytes]) -> bytes:
        if found[0].startswith(b"0x"):
            return b"0x%x" % dice.randrange(1 << 32)
        return b"%d" % dice.randrange(1, 10)

    return re.sub(rb"\b0x[0-9a-fA-F]+|\d", other, raw)


def compared(here: Sequence[bytes], there: Sequence[bytes]) -> BootDiff:
    log = LineLog([line(n, raw, at_s=n / 10) for n, raw in enumerate([*there, *here], 1)])
    base = read_boot(log, 1, len(there))
    return compare(read_boot(log, len(there) + 1, len(there) + len(here)), base)


@pytest.mark.parametrize("stream", HEALTHY, ids=lambda s: s.id)
def test_a_healthy_boot_of_another_day_is_the_same(stream: Stream) -> None:
    base = lines_of(stream)
    here = [another_day(raw, seed) for seed, raw in enumerate(base)]
    for at in range(5, len(here) - 1, 9):
        here[at], here[at + 1] = here[at + 1], here[at]

    diff = compared(here, base)

    assert [f.text for f in diff.new] == []
    assert [f.text for f in diff.missing + diff.not_reached] == []
    assert diff.divergence is None


@pytest.mark.parametrize("stream", HEALTHY, ids=lambda s: s.id)
def test_one_line_too_many_or_too_few_is_found_where_it_is(stream: Stream) -> None:
    base = lines_of(stream)
    forms = [form_of(readable(raw)) for raw in base]
    at = next(n for n in range(len(base) // 2, len(base) - 1) if forms.count(forms[n]) == 1)
    seq = len(base) + at + 1  # of the line at the same place in the boot that is compared
    fault = b"pump[7]: gear jammed at tooth 31"

    more = compared([*base[:at], fault, *base[at:]], base).divergence
    less = compared([*base[:at], *base[at + 1 :]], base).divergence

    assert more is not None
    assert more.here is not None
    assert (more.kind, more.here.line.seq) == ("new", seq)
    assert less is not None
    assert less.there is not None
    assert (less.kind, less.there.line.seq) == ("missing", at + 1)


@pytest.mark.parametrize("stream", HEALTHY, ids=lambda s: s.id)
def test_a_hang_is_found_before_the_line_that_should_have_come(stream: Stream) -> None:
    base = lines_of(stream)
    forms = [form_of(readable(raw)) for raw in base]
    at = next(
        n for n in range(len(base) // 2, len(base)) if forms[n] and forms.index(forms[n]) == n
    )

    parting = compared(base[:at], base).divergence

    assert parting is not None
    assert parting.there is not None
    assert (parting.kind, parting.there.line.seq) == ("stops", at + 1)
