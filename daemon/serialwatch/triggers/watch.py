"""One port's lines in, its hits, boots and detector faults out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serialwatch.records import Boot, Finding, Hit, Lines, Ready
from serialwatch.titles import normalise
from serialwatch.triggers.boots import OPENED_S, Banner, Boots
from serialwatch.triggers.detectors.boot_loop import BootLoop
from serialwatch.triggers.detectors.counter import CounterRise, Counters
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.detectors.interrupt_storm import InterruptStorm
from serialwatch.triggers.detectors.silence import Silence
from serialwatch.triggers.detectors.storm import LineRates, Second, Storm
from serialwatch.triggers.faults import MAX_RAW, MAX_TITLE, Faults, FoundLine, readable
from serialwatch.triggers.matcher import Matcher, Uses
from serialwatch.triggers.moments import S, Moment
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.recent import Recent, kernel_stamp_s
from serialwatch.triggers.ruleset import (
    BootLoopDetector,
    BootMarker,
    CounterDetector,
    InterruptStormDetector,
    PrintedCause,
    ResetCause,
    SilenceDetector,
    StormDetector,
)
from serialwatch.triggers.typed import Typed
from serialwatch.triggers.view import strip_escapes

QUIET_NS = 2 * S  # a wait for later lines ends, and a block
_SLOW_QUIET_NS = 5 * S  # below 57,600 bit/s
_SLOW_BIT_RATE = 57_600
_CAUSE_LINES = 16  # after a banner the device may still say why it started,
_CAUSE_NS = 3 * S // 10  # but not longer than that
_CONTEXT_LINES = 3  # before a banner: did somebody type something?
_EXPECTED_S = {"flash": 120.0, "reset": 30.0, "note": 10.0}  # after such a marker
_NOISY_NS = 2 * S  # after a start or an open the line may glitch
_ALL = frozenset[str]()


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a port's configuration says about its faults."""

    expect_faults: bool = False  # the firmware crashes on purpose: hits are notes
    ready: str = ""  # pattern of the line that ends a boot; the matcher must know it
    packs: tuple[str, ...] = ()  # rules to apply; empty: all
    bit_rate: int | None = None  # bit/s; None: no such thing on this port
