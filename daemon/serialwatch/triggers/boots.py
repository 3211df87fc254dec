"""Count the starts of a device by its banners, and tell why it started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serialwatch.records import BootCause
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import BootMarker, DeviceState, PrintedCause

COMMANDED_S = 120.0  # a start so long after a command is its doing
OPENED_S = 3.0  # opening a port toggles DTR on many adapters, which resets many boards
OPENED_STARTS = 2  # that it may lead to: DTR and RTS fall one after the other
PANIC_S = 120.0  # a board may wait before it restarts itself after a panic
PANIC_LINES = 200
_SAME_STAGE_S = 60.0  # different banners of one stage, where the marker gives no window
_AGAIN_S = 10.0
_SAME_BANNER_S = 0.5  # banners of one start that come in any order
_SAME_BANNER_LINES = 5
_OWN_CAUSE_LINES = 16  # behind its banner a start tells its own cause,
_AHEAD_LINES = 10  # and a first stage may tell that of the start whose banner is to follow
_AHEAD_S = 3.0
_ANNOUNCES = 0
_LAST_THAT_STARTS = 4  # stages: user space alone is no start;
_LAST_OF_FIRMWARE = 2  # no earlier one comes again once the boot loader runs


@dataclass(frozen=True, slots=True)
class Banner:
    """A boot marker that was found in a line."""

    pattern: int  # id
    marker: BootMarker
    cause: PrintedCause | None  # printed in the same line


@dataclass(slots=True)
class Start:
    """A start of the device, as far as it is known by now."""

    number: int
    at: Moment
    ecosystem: str
    printed: PrintedCause | None  # by the device itself
    is_commanded: bool
    was_asleep: bool
    was_panic: bool
    interrupted: DeviceState | None  # what the board was doing; None: not known
    had_run_s: float  # since the start before
    ran: frozenset[str]  # ecosystems whose banners that run showed

    def announced(self, leads_to: str) -> None:
        """Note that the board had said that it sleeps, ends or restarts."""
        if leads_to == "sleep":
            self.was_asleep = True
            return
        self.interrupted = "shutdown"
        if leads_to != "halt":
            self.is_commanded = True

    @property
    def cause(self) -> BootCause:
        """Return why it started; what was asked for from outside explains most resets."""
        if self.is_commanded and self.printed not in ("brownout", "sleep_wake", "panic"):
            return "commanded"
        if self.printed == "software":
            return "panic" if self.was_panic else "commanded"
        if self.printed and self.printed != "unknown":
            return self.printed
        if self.was_asleep:
            return "sleep_wake"
        return "panic" if self.was_panic else "unknown"

    @property
    def is_expected(self) -> bool:
        """Tell whether somebody wanted it or it is a wake-up."""
        return self.is_commanded or self.printed == "commanded" or self.cause == "sleep_wake"


class Boots:
    """The starts of one port.

    A banner of a later stage belongs to the start it follows; one of an earlier stage, or the same
    one again, is a new start.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.state: DeviceState = "user"
        self._is_state_known = False
        self.is_ready = False
        self.start: Start | None = None  # the newest
        self._stage = 0  # the highest that was reached
        self._seen: set[int] = set()  # pattern ids of this start
        self._repeated: set[int] = set()  # those that were allowed to come again
        self._passed: set[str] = set()  # ecosystems of this start
        self._last: Moment | None = None  # banner
        self._announced: tuple[Moment, BootMarker] | None = None  # a reset without banner yet
        # A cause without a banner yet, and whether the newest start was given it meanwhile.
        self._ahead: tuple[PrintedCause, Moment, bool] | None = None
        self._has_no_banner = False  # it restarted without printing one
        self._command: Moment | None = None
        self._panic: Moment | None = None
        self._failed: Moment | None = None  # likewise; a board that waits for input went on
        self._is_asleep = False
        self._expected_until_ns = -1
        self._opened_until_ns = -1
        self._opened_starts = 0  # that may still come of the opening

    def banner(self, found: Sequence[Banner], at: Moment) -> bool:
        """Take the banners of one line, lowest stage first; tell whether a new start began."""
        first = found[0]
        if first.marker.stage == _ANNOUNCES:
            return self._resets_itself(first.marker, at)
        is_new = self._is_new(first, at)
        before = self.start
        self._has_no_banner = False
        if is_new:
            if self._is_first_told_late(first.marker, at):
                self._is_state_known = False
            self._begin(first.marker, at)
        elif first.marker.stage < self._stage and self._is_next_to_last(at):
            # Banners of one start out of order: those of later stages will come again.
            self._stage = first.marker.stage
            self._seen = set()
        self._stage = max(self._stage, first.marker.stage)
        self._seen.update(banner.pattern for banner in found)
        self._passed.update(banner.marker.ecosystem for banner in found)
        self._last = at
        for banner in found:
            self._take(banner.cause)
            if banner.marker.state:
                self.state = banner.marker.state
                self._is_state_known = True
        if is_new:
            self._take_ahead(before, at)
        return is_new

    @property
    def is_announced(self) -> bool:
        """Tell whether the device said that it resets itself and no banner followed yet."""
        return self._announced is not None

    def unseen(self) -> Moment | None:
        """Count the announced reset as a start without a banner; return where it is."""
        if self._announced is None:
            return None
        at, marker = self._announced
        self._has_no_banner = True
        self._begin(marker, at)
        self._last = at
        return at

    def _resets_itself(self, marker: BootMarker, at: Moment) -> bool:
        """Take the announcement of a reset; that is all some boards show of a start."""
        if not self._has_no_banner:
            self._announced = (at, marker)
            return False
        self._begin(marker, at)
        self._last = at
        return True

    def printed(self, cause: PrintedCause, at: Moment) -> None:
        """Take what the device says of its start, or of one whose banner is to follow."""
        is_news = self._take(cause)
        is_own = is_news and self.start and at.seq - self.start.at.seq <= _OWN_CAUSE_LINES
        if not is_own:
            self._ahead = (cause, at, is_news)

    def _take(self, cause: PrintedCause | None) -> bool:
        """Take the cause of the newest start; the first clear word counts."""
        if not cause or not self.start or self.start.printed not in (None, "unknown"):
            return False
        self.start.printed = cause
        return True

    def _take_ahead(self, before: Start | None, at: Moment) -> None:
        """Take for the newest start what was printed before its banner, not for the one before."""
        ahead, self._ahead = self._ahead, None
        if not ahead:
            return
        cause, told, was_given = ahead
        if at.seq - told.seq > _AHEAD_LINES or at.mono_ns - told.mono_ns > _AHEAD_S * S:
            return
        if before and was_given:
            before.printed = None
        self._take(cause)

    @property
    def passed(self) -> frozenset[str]:
        """Return the ecosystems whose banners this start has shown."""
        return frozenset(self._passed)

    def ready(self) -> bool:
        """Note that the boot is finished; tell whether that is news."""
        was_ready, self.is_ready = self.is_ready, True
        self.state = "user"
        self._is_state_known = True
        return not was_ready

    def went_on(self, at: Moment) -> bool:
        """Note that the board waits for somebody; tell whether it had failed since it last did."""
        failed, self._failed = self._failed, None
        return failed is not None and at.seq > failed.seq

    def going_down(self, leads_to: str, at: Moment) -> None:
        """Note that a restart, an end or a sleep was announced."""
        if leads_to == "sleep":
            self._is_asleep = True
            return
        self.state = "shutdown"
        self._is_state_known = True
        if leads_to != "halt":
            self._command = at

    def expect(self, until_ns: int) -> None:
        """Take starts up to a time as commanded, whatever the lines say."""
        self._expected_until_ns = max(self._expected_until_ns, until_ns)

    def opened(self, mono_ns: int) -> None:
        """Note that the port was opened: the next starts may come of that."""
        self._opened_until_ns = mono_ns + round(OPENED_S * S)
        self._opened_starts = OPENED_STARTS

    def faulted(self, at: Moment) -> None:
        """Note a fault that may end in a restart."""
        self._panic = self._failed = at

    def lost(self) -> None:
        """Note that the port is gone: what the board does meanwhile is not seen."""
        self._is_state_known = False

    def renumber(self, ids: Mapping[int, int]) -> None:
        """Take the new ids of patterns; without one, a banner has never been seen."""
        self._seen = {ids[pattern] for pattern in self._seen if pattern in ids}
        self._repeated = {ids[pattern] for pattern in self._repeated if pattern in ids}

    def _is_new(self, first: Banner, at: Moment) -> bool:
        marker = first.marker
        if marker.stage > _LAST_THAT_STARTS:
            return False
        if self._comes_again(first, at):
            return False
        if first.pattern in self._seen:
            return not self._is_printed_twice(marker, at)
        if self.start is None or self._last is None:
            return marker.is_start_alone
        if self._is_next_to_last(at):
            return False
        if marker.stage > self._stage:
            return bool(marker.window_s) and not at.is_within(marker.window_s, self._last)
        if marker.stage == self._stage:
            return not at.is_within(marker.window_s or _SAME_STAGE_S, self._last)
        return True

    def _is_first_told_late(self, marker: BootMarker, at: Moment) -> bool:
        """Tell whether the banners so far were the first of this very start, and no start alone."""
        return (
            self.start is None
            and self._last is not None
            and not self.is_ready
            and marker.stage >= self._stage
            and at.is_within(_SAME_STAGE_S, self._last)
        )

    def _is_printed_twice(self, marker: BootMarker, at: Moment) -> bool:
        """Tell whether it is the line before: two consoles on one UART double all lines."""
        return (
            marker.state == "kernel"
            and self._last is not None
            and at.seq == self._last.seq + 1
            and at.since_ns(self._last) <= _SAME_BANNER_S * S
        )

    def _comes_again(self, first: Banner, at: Moment) -> bool:
        """Tell whether a start has this banner twice, e.g. an SPL on each of two cores."""
        if (
            first.pattern in self._repeated
            or self._panic is not None
            or self._stage > max(first.marker.stage, _LAST_OF_FIRMWARE)
            or self._passed.isdisjoint(first.marker.again_after)
            or self._last is None
            or not at.is_within(_AGAIN_S, self._last)
        ):
            return False
        self._repeated.add(first.pattern)
        return True

    def _is_next_to_last(self, at: Moment) -> bool:
        if self._last is None or at.seq - self._last.seq > _SAME_BANNER_LINES:
            return False
        passed_ns = at.since_ns(self._last)
        # Stamps of whole seconds say one second even where it is a millisecond.
        return passed_ns <= _SAME_BANNER_S * S or passed_ns == S

    def _is_of_opening(self, at: Moment) -> bool:
        """Tell whether a start may come of the port's opening; a board may loop from there on."""
        if not self._opened_starts or at.mono_ns > self._opened_until_ns:
            return False
        self._opened_starts -= 1
        return True

    def _begin(self, marker: BootMarker, at: Moment) -> None:
        self.number += 1
        command, panic = self._command, self._panic
        was_panic = panic is not None and at.is_within(PANIC_S, panic, PANIC_LINES)
        # What failed after the command, or right after our own open, was not asked for.
        is_newer = was_panic and (command is None or panic is None or panic.seq > command.seq)
        is_asked_for = (
            at.mono_ns <= self._expected_until_ns
            or self._is_of_opening(at)
            or (command is not None and at.is_within(COMMANDED_S, command))
        )
        before = self.start
        self.start = Start(
            number=self.number,
            at=at,
            ecosystem=marker.ecosystem,
            printed=marker.cause,
            is_commanded=is_asked_for and not is_newer,
            was_asleep=self._is_asleep,
            was_panic=was_panic,
            interrupted=self.state if self._is_state_known else None,
            had_run_s=(at.mono_ns - before.at.mono_ns) / S if before else 0.0,
            ran=frozenset(self._passed),
        )
        self.state = "boot"
        self._is_state_known = True
        self.is_ready = False
        self._stage = 0
        self._seen = set()
        self._repeated = set()
        self._passed = set()
        self._announced = self._command = self._panic = self._failed = None
        self._is_asleep = False
