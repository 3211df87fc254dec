"""A board whose USB is its own: each reset takes the port along, and it comes back by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.incidents.incidents import Incidents
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
NATIVE, ADAPTER = "/dev/ttyACM0", "/dev/ttyUSB0"
CRASH = b"ESP-ROM:esp32s3-20210327\nrst:0xc (RTC_SW_CPU_RST),boot:0x28\n"


@cache
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Bench:
    """One port, its triggers and its incidents, in a time that the test gives."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.watch = PortWatch("dut1", matcher(), WatchOptions(bit_rate=115200, can_vanish=True), 0)
        self.incidents = Incidents(1)
        self.found: list[Finding] = []
        self.now = 1000.0
        self._seq = 1
        self.open()
        self.wait(20)
        self.prints(b"app: hello\n" * 5)

    def open(self) -> None:
        self._take(self.watch.port_state("up", "", self.device, self.ns, self.ns))

    def lose(self) -> None:
        self._take(self.watch.port_state("absent", "hung up", "", self.ns, self.ns))

    def prints(self, text: bytes) -> None:
        count = text.count(b"\n")
        self.incidents.lines("dut1", count, self.ns)
        self._take(self.watch.fed(Lines(self._seq, count, text, self.ns, self.ns)))
        self._seq += count

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self._take(self.watch.tick(self.ns, self.ns))
            self.incidents.tick(self.ns, self.ns)

    def reset(self, away_s: float = 0.3, text: bytes = CRASH) -> None:
        self.lose()
        self.wait(away_s)
        self.open()
        self.wait(0.1)
        self.prints(text)

    @property
    def ns(self) -> int:
        return round(self.now * S)

    @property
    def boots(self) -> list[bool]:
        """Whether each start was expected."""
        return [found.is_expected for found in self.found if isinstance(found, Boot)]

    def hits(self, trigger: str) -> Iterator[Hit]:
        return (f for f in self.found if isinstance(f, Hit) and f.trigger == trigger)

    def _take(self, findings: list[Finding]) -> None:
        self.found += findings
        for finding in findings:
            self.incidents.found(finding)


@pytest.mark.parametrize("away_s", [0.3, 1.5])
def test_a_boot_loop_that_takes_the_port_along_each_time_is_one_incident(away_s: float) -> None:
    bench = Bench(NATIVE)
    for _ in range(4):
        bench.reset(away_s)
        bench.wait(2)
    bench.wait(10)

    assert bench.boots == [False] * 4
    assert len(list(bench.hits("boot.loop"))) == 1
    (incident,) = bench.incidents.open()
    assert incident.severity == "critical"


def test_a_boot_loop_with_long_pauses_is_told_once_all_the_same() -> None:
    bench = Bench(NATIVE)
    for _ in range(4):
        bench.reset(away_s=3)
        bench.wait(2)

    assert bench.boots == [False] * 4
    assert len(list(bench.hits("boot.loop"))) == 1


def test_behind_an_adapter_a_start_right_after_our_open_may_be_our_own_doing() -> None:
    bench = Bench(ADAPTER)
    for _ in range(4):
        bench.reset()
        bench.wait(2)

    assert bench.boots == [True] * 4
    assert not list(bench.hits("boot.loop"))


def test_a_start_after_a_person_plugged_the_board_in_again_is_expected() -> None:
    bench = Bench(NATIVE)
    bench.reset(away_s=15)
    bench.wait(5)

    assert bench.boots == [True]


def test_the_first_open_of_a_board_with_its_own_usb_explains_its_start() -> None:
    bench = Bench(NATIVE)
    bench.open()
    bench.wait(0.5)
    bench.prints(CRASH)
    bench.wait(5)

    assert bench.boots == [True]


def test_a_start_after_a_flash_is_expected_on_its_own_usb_too() -> None:
    bench = Bench(NATIVE)
    bench.watch.marked("flash", bench.ns)
    bench.reset()
    bench.wait(5)

    assert bench.boots == [True]


def test_a_program_that_reads_too_is_named_in_the_incident() -> None:
    bench = Bench(ADAPTER)
    bench._take(bench.watch.read_by("cat (pid 9, uid 0)", bench.ns, bench.ns))

    (hit,) = bench.hits("link.second_reader")
    assert hit.title == "cat (pid 9, uid 0) reads from the port: lines are missing here"
    assert hit.fields["reader"] == "cat (pid 9, uid 0)"
    assert len(bench.incidents.open()) == 1
