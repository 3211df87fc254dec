"""The detectors of one port, each fed with what concerns it."""

from __future__ import annotations

from collections.abc import Iterator

from serialwatch.records import Hit
from serialwatch.triggers.boots import Start
from serialwatch.triggers.detectors.boot_loop import BootLoop
from serialwatch.triggers.detectors.counter import CounterRise, Counters
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.detectors.interrupt_storm import InterruptStorm
from serialwatch.triggers.detectors.silence import Silence
from serialwatch.triggers.detectors.storm import Second, Storm
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.recent import kernel_stamp_s
from serialwatch.triggers.ruleset import (
    BootLoopDetector,
    CounterDetector,
    InterruptStormDetector,
    RuleSet,
    SilenceDetector,
    StormDetector,
)

_WINDOW_S = {"flash": 120.0, "reset": 30.0, "note": 10.0}  # after such a marker
_NOISY_NS = 2 * S  # after a start or an open the line may glitch
_OVERRUNS = {"overrun", "buffer_overrun"}


class PortDetectors:
    """What is told of each detector's rules is in the rule set; state is kept until it changes."""

    def __init__(self, ruleset: RuleSet, bit_rate: int | None) -> None:
        told = ruleset.detectors
        self._rises = [CounterRise(d) for d in told if isinstance(d, CounterDetector)]
        self._loops = [BootLoop(d) for d in told if isinstance(d, BootLoopDetector)]
        self._storms = [Storm(d, bit_rate) for d in told if isinstance(d, StormDetector)]
        self._silences = [Silence(d) for d in told if isinstance(d, SilenceDetector)]
        self._interrupts = [
            InterruptStorm(d) for d in told if isinstance(d, InterruptStormDetector)
        ]
        self._quiet_until_ns = -1  # window after a flash, a reset or a mark
        self._noisy_until_ns = -1

    def heard(self, mono_ns: int) -> None:
        """Note that bytes came."""
        for silence in self._silences:
            silence.heard(mono_ns)

    def marked(self, kind: str, mono_ns: int) -> int | None:
        """Note a marker; return until when it explains restarts, None if it does not."""
        if kind not in _WINDOW_S:
            return None
        until_ns = mono_ns + round(_WINDOW_S[kind] * S)
        self._quiet_until_ns = max(self._quiet_until_ns, until_ns)
        return until_ns

    def opened(self, mono_ns: int) -> None:
        """Note that the port was opened."""
        self._noisy_until_ns = max(self._noisy_until_ns, mono_ns + _NOISY_NS)
        for rise in self._rises:
            rise.reset()
        self.lost()

    def lost(self) -> None:
        """Note that the port is gone; its silence says nothing."""
        for silence in self._silences:
            silence.stop()

    def board_starts(self, mono_ns: int) -> None:
        """Note that a start of the board was seen."""
        self._noisy_until_ns = mono_ns + _NOISY_NS
        self._learn_anew()

    def started(self, start: Start) -> Iterator[Fault]:
        """Judge a start, once its cause is known."""
        for loop in self._loops:
            if fault := loop.started(start):
                yield fault

    def ready(self) -> None:
        """Note that the board finished its boot."""
        for loop in self._loops:
            loop.ready()
        self._learn_anew()

    def second(self, second: Second) -> Iterator[Fault]:
        """Judge the lines of a second."""
        if second.is_about_interrupts and self._interrupts:
            found = [interrupt.passed(second) for interrupt in self._interrupts]
        else:
            is_quiet = second.number * S <= self._quiet_until_ns
            found = [storm.passed(second, is_quiet=is_quiet) for storm in self._storms]
        yield from filter(None, found)

    def counter_line(self, view: LineView, at: Moment) -> Iterator[Fault]:
        """Judge a line in which the board prints a counter of an interrupt."""
        for interrupt in self._interrupts:
            for source in interrupt.told.fields:
                if match := view.search(compile_pattern(source)):
                    irq = match["irq"].decode("ascii", errors="replace")
                    count = sum(map(int, match["count"].split()))
                    stamp_s = kernel_stamp_s(view.text)
                    if fault := interrupt.counter(irq, count, at, stamp_s):
                        yield fault
                    break

    def rule_hit(self, hit: Hit, at: Moment) -> Iterator[Fault]:
        """Judge the hit of a rule: some are messages about interrupts."""
        irq = hit.fields.get("irq", "")
        for interrupt in self._interrupts:
            if fault := interrupt.rule_hit(hit.trigger, irq, at):
                yield fault

    def counters(self, counters: Counters, mono_ns: int) -> Iterator[Fault]:
        """Judge the error counters of the UART."""
        for rise in self._rises:
            is_noise = _OVERRUNS.isdisjoint(rise.told.counters)
            is_quiet = is_noise and mono_ns < self._noisy_until_ns
            if fault := rise.counted(counters, mono_ns, is_quiet=is_quiet):
                yield fault

    def is_silence_due(self, mono_ns: int) -> bool:
        """Tell whether it has been quiet so long that it is worth a look."""
        return mono_ns > self._quiet_until_ns and any(
            silence.is_due(mono_ns) for silence in self._silences
        )

    def silence(self, last_line: bytes, last_seq: int, mono_ns: int) -> Iterator[Fault]:
        """Judge a silence that nothing explains."""
        for silence in self._silences:
            if silence.is_due(mono_ns) and (f := silence.judge(last_line, last_seq, mono_ns)):
                yield f

    def _learn_anew(self) -> None:
        for silence in self._silences:
            silence.learn_anew()
