"""The detectors of one port, each fed with what concerns it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from serialwatch.records import Hit, Lines, PortState
from serialwatch.triggers.boots import Start
from serialwatch.triggers.detectors.autoboot import Autoboot
from serialwatch.triggers.detectors.boot_loop import BootLoop
from serialwatch.triggers.detectors.counter import CounterRise, Counters
from serialwatch.triggers.detectors.expect import Expect
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.detectors.garbage import Before, Garbage, is_plain
from serialwatch.triggers.detectors.gauge import Gauge
from serialwatch.triggers.detectors.interrupt_storm import InterruptStorm
from serialwatch.triggers.detectors.not_finished import NotFinished
from serialwatch.triggers.detectors.port_loss import PortLosses
from serialwatch.triggers.detectors.rate import HitRate
from serialwatch.triggers.detectors.silence import Silence
from serialwatch.triggers.detectors.storm import Second, Storm
from serialwatch.triggers.detectors.unexpected_boot import UnexpectedBoot
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.recent import kernel_stamp_s
from serialwatch.triggers.ruleset import (
    AutobootDetector,
    BitRateDetector,
    BootLoopDetector,
    CounterDetector,
    ExpectDetector,
    FlappingDetector,
    GarbageDetector,
    GaugeDetector,
    InterruptStormDetector,
    LineDetector,
    NotFinishedDetector,
    RateDetector,
    RuleSet,
    SecondReaderDetector,
    SilenceDetector,
    StormDetector,
    UnexpectedBootDetector,
    VanishedDetector,
)
from serialwatch.triggers.view import strip_escapes

_T = TypeVar("_T")

_WINDOW_S = {"flash": 120.0, "reset": 30.0, "note": 10.0}  # after such a marker
_NEVER = 1 << 62
_NOISY_NS = 2 * S  # after a start or an open the line may glitch
_OVERRUNS = {"overrun", "buffer_overrun"}


class PortDetectors:
    """What is told of each detector's rules is in the rule set; state is kept until it changes."""

    def __init__(self, ruleset: RuleSet, bit_rate: int | None, *, can_vanish: bool) -> None:
        told = ruleset.detectors
        self._rises = [CounterRise(d) for d in told if isinstance(d, CounterDetector)]
        self._loops = [BootLoop(d) for d in told if isinstance(d, BootLoopDetector)]
        self._storms = [Storm(d, bit_rate) for d in told if isinstance(d, StormDetector)]
        self._silences = [Silence(d) for d in told if isinstance(d, SilenceDetector)]
        self._interrupts = [
            InterruptStorm(d) for d in told if isinstance(d, InterruptStormDetector)
        ]
        named = [d for d in told if isinstance(d, UnexpectedBootDetector)]
        ecosystems = {ecosystem for d in named for ecosystem in d.ecosystem}
        self._unexpected = [UnexpectedBoot(d, ecosystems) for d in named]
        self._late = [NotFinished(d) for d in told if isinstance(d, NotFinishedDetector)]
        self._hit_rates = [HitRate(d) for d in told if isinstance(d, RateDetector)]
        self._of_rates = {rule for d in told if isinstance(d, RateDetector) for rule in d.rules}
        self._of_interrupts = {rule for each in self._interrupts for rule in each.told.rules}
        self._expects = {d.id: Expect(d) for d in told if isinstance(d, ExpectDetector)}
        self._gauges = {d.id: Gauge(d) for d in told if isinstance(d, GaugeDetector)}
        self._autoboots = {d.id: Autoboot(d) for d in told if isinstance(d, AutobootDetector)}
        noise, rate = _first(told, GarbageDetector), _first(told, BitRateDetector)
        self._garbage = Garbage(noise, rate, bit_rate) if noise else None
        self._garbage_found: list[Fault] = []  # told as time passes: not in the order of chunks
        self._losses = PortLosses(
            _first(told, VanishedDetector) if can_vanish else None,
            _first(told, FlappingDetector),
            _first(told, SecondReaderDetector),
        )
        self._waiting: tuple[Expect | NotFinished | PortLosses, ...] = (
            *self._expects.values(),
            *self._late,
            self._losses,
        )
        self._quiet_until_ns = -1  # window after a flash, a reset or a mark
        self._noisy_until_ns = -1
        self._noisy_from_seq = 0

    @property
    def least_per_s(self) -> float:
        """Return how many lines of one kind a second are the least that matters."""
        asked = [storm.told.lines_per_s for storm in self._storms]
        asked += [interrupt.told.lines_per_s for interrupt in self._interrupts]
        return min(asked, default=0.0)

    def heard(self, mono_ns: int) -> None:
        """Note that bytes came."""
        for silence in self._silences:
            silence.heard(mono_ns)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Return the newest reading of each gauge by the id of its detector."""
        known = self._gauges.items()
        return {rule: gauge.value for rule, gauge in known if gauge.value is not None}

    def is_plain(self, text: bytes, view: bytes) -> bool:
        """Tell whether lines need no closer look: nearly always they are text."""
        garbage = self._garbage
        return garbage is None or (not garbage.is_open and is_plain(text, view))

    def not_plain(self, lines: Lines, before: Before) -> None:
        """Judge lines that need a closer look."""
        if self._garbage:
            quiet_from = _NEVER
            if lines.mono_ns <= self._quiet_until_ns:
                quiet_from = 0
            elif lines.mono_ns < self._noisy_until_ns:
                quiet_from = self._noisy_from_seq
            self._garbage_found += self._garbage.lines(lines, before, quiet_from)

    def partial(self, seq: int, text: bytes, mono_ns: int, before: Before) -> None:
        """Note an unfinished line."""
        if self._garbage and not is_plain(text, strip_escapes(text)):
            self._garbage.partial(seq, text, mono_ns, before)

    def may_tell(self, mono_ns: int) -> bool:
        """Tell whether there may be something to tell because time passed; rarely there is."""
        if self._garbage_found or (self._garbage and self._garbage.is_open):
            return True
        for silence in self._silences:
            if silence.is_due(mono_ns):
                return True
        return any(each.is_waiting for each in self._waiting)

    def tick(self, mono_ns: int) -> Iterator[Fault]:
        """Let time pass."""
        garbage = self._garbage
        if garbage and garbage.is_open:
            self._garbage_found += garbage.tick(mono_ns, is_quiet=self._is_noisy(mono_ns))
        if self._garbage_found:
            found, self._garbage_found = self._garbage_found, []
            yield from found
        for expect in self._expects.values():
            if (fault := expect.tick(mono_ns)) and mono_ns > self._quiet_until_ns:
                yield fault
        if fault := self._losses.tick(mono_ns):
            yield fault

    def port_state(
        self,
        state: PortState,
        problem: str,
        device: str,
        mono_ns: int,
        last: Moment,
        *,
        is_going_down: bool,
    ) -> Iterator[Fault]:
        """Judge a state of the port; `last`: when the board last said something."""
        is_expected = is_going_down or mono_ns <= self._quiet_until_ns
        fault = self._losses.changed(state, problem, device, mono_ns, last, is_expected=is_expected)
        if fault:
            yield fault

    def has_reset_itself(self, mono_ns: int) -> bool:
        """Tell whether a port that comes back now was reset with its board, not by our open."""
        return self._losses.has_reset_itself(mono_ns)

    def read_by(self, others: str, seq: int) -> Iterator[Fault]:
        """Judge that other programs have the open port open too."""
        if fault := self._losses.read_by(others, seq):
            yield fault

    def learn_boots(self, took_s: Iterable[float]) -> None:
        """Learn how long earlier boots took that got ready, oldest first."""
        known = list(took_s)
        for late in self._late:
            late.learn(known)

    def go_on_from(self, earlier: PortDetectors) -> None:
        """Take up what no line will tell again: the state of the port, and windows."""
        self._losses.go_on_from(earlier._losses)
        self._quiet_until_ns = earlier._quiet_until_ns
        self._noisy_until_ns = earlier._noisy_until_ns
        self._noisy_from_seq = earlier._noisy_from_seq
        lates = {late.told.id: late for late in earlier._late}
        for late in self._late:
            if before := lates.get(late.told.id):
                late.go_on_from(before)
        loops = {loop.told.id: loop for loop in earlier._loops}
        for loop in self._loops:
            if known := loops.get(loop.told.id):
                loop.go_on_from(known)

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
        self._noisy_from_seq = 0
        for rise in self._rises:
            rise.reset()
        self.lost()
        for autoboot in self._autoboots.values():
            autoboot.opened(mono_ns)

    def wrote(self) -> None:
        """Note that something was written to the board."""
        for autoboot in self._autoboots.values():
            autoboot.wrote()

    def lost(self) -> None:
        """Note that the port is gone; its silence says nothing."""
        for silence in self._silences:
            silence.stop()
        if self._garbage:
            self._garbage.reset()
        self.boot_is_explained()
        self._expect_nothing()

    def prompted(self, *, is_ready: bool) -> None:
        """Note a prompt; one that does not end a boot means that a person has stopped it."""
        if self._garbage and self._garbage.is_open:
            self._garbage.prompted()
        if not is_ready:
            self.boot_is_explained()

    def boot_is_explained(self) -> None:
        """Note that this boot need not get ready: a fault, a person or the port is the reason."""
        for late in self._late:
            late.stop()

    def goes_down(self) -> None:
        """Note that a restart, an end or a sleep was announced."""
        self.boot_is_explained()
        self._expect_nothing()

    def board_starts(self, at: Moment) -> None:
        """Note that a start of the board was seen."""
        if at.mono_ns >= self._noisy_until_ns:
            self._noisy_from_seq = at.seq
        self._noisy_until_ns = at.mono_ns + _NOISY_NS
        for late in self._late:
            late.board_starts(at)
        self._expect_nothing()
        self._learn_anew()

    def kernel_starts(self, at: Moment) -> None:
        """Note the banner of a kernel behind that of its loader."""
        for late in self._late:
            late.kernel_starts(at)

    def started(self, start: Start, last_line: bytes) -> Iterator[Fault]:
        """Judge a start, once its cause is known; `last_line` is the one before it."""
        for unexpected in self._unexpected:
            if fault := unexpected.started(start, last_line):
                yield fault
        for loop in self._loops:
            if fault := loop.started(start):
                yield fault

    def ready(self, at: Moment) -> None:
        """Note that the board finished its boot."""
        for loop in self._loops:
            loop.ready()
        for late in self._late:
            late.ready(at)
        self._learn_anew()

    def is_boot_late(self, mono_ns: int, ecosystems: frozenset[str]) -> bool:
        """Tell whether the board boots for so long that it is worth a look."""
        return mono_ns > self._quiet_until_ns and any(
            late.is_due(mono_ns, ecosystems) for late in self._late
        )

    def boot_late(
        self, seq: int, line: bytes, mono_ns: int, *, is_in_kernel: bool
    ) -> Iterator[Fault]:
        """Judge a late boot that nothing explains; `line` is the last one."""
        for late in self._late:
            if fault := late.judge(seq, line, mono_ns, is_in_kernel=is_in_kernel):
                yield fault

    def second(self, second: Second) -> Iterator[Fault]:
        """Judge the lines of a second."""
        if second.is_about_interrupts and self._interrupts:
            found = [interrupt.passed(second) for interrupt in self._interrupts]
        else:
            is_quiet = second.number * S <= self._quiet_until_ns
            found = [storm.passed(second, is_quiet=is_quiet) for storm in self._storms]
        yield from filter(None, found)

    def line(
        self, told: LineDetector, source: str, view: LineView, at: Moment, raw: bytes
    ) -> Iterator[Fault]:
        """Judge a line in which a pattern of a detector was found."""
        if isinstance(told, ExpectDetector):
            fault = self._expects[told.id].line(source, at, raw)
        elif isinstance(told, GaugeDetector):
            fault = self._gauges[told.id].line(view, at)
        elif isinstance(told, AutobootDetector):
            fault = self._autoboots[told.id].line(at, raw)
        else:
            fault = None
            yield from self._counter_line(view, at)
        if fault and at.mono_ns > self._quiet_until_ns:
            yield fault

    def _counter_line(self, view: LineView, at: Moment) -> Iterator[Fault]:
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
        if hit.trigger in self._of_interrupts:
            irq = hit.fields.get("irq", "")
            for interrupt in self._interrupts:
                if fault := interrupt.rule_hit(hit.trigger, irq, at):
                    yield fault
        for rate in self._hit_rates if hit.trigger in self._of_rates else ():
            if (fault := rate.rule_hit(hit, at)) and at.mono_ns > self._quiet_until_ns:
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

    def _expect_nothing(self) -> None:
        for expect in self._expects.values():
            expect.stop()

    def _is_noisy(self, mono_ns: int) -> bool:
        return mono_ns <= self._quiet_until_ns or mono_ns < self._noisy_until_ns


def _first(told: Iterable[object], kind: type[_T]) -> _T | None:
    return next((each for each in told if isinstance(each, kind)), None)
