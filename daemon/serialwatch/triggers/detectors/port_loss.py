"""A port that was open and is not any more: gone, coming and going, or read by somebody else."""

from __future__ import annotations

from dataclasses import dataclass

from serialwatch.records import PortState
from serialwatch.titles import duration
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import (
    FlappingDetector,
    SecondReaderDetector,
    VanishedDetector,
)

_SECOND_READER = "second reader?"  # as the tty driver says it
_REMOTE = "://"  # in the address of a port of another machine
_NATIVE = "ttyACM"  # the board's own USB, or a probe that is part of it
_OWN_RESET_NS = 10 * S  # away for longer, somebody has unplugged it


@dataclass(frozen=True, slots=True)
class _Loss:
    mono_ns: int
    seq: int  # of the last line before it
    problem: str
    is_native: bool
    was_talking: bool


class PortLosses:
    """Told each state of the port; a loss is judged when it is clear whether it comes back."""

    def __init__(
        self,
        vanished: VanishedDetector | None,
        flapping: FlappingDetector | None,
        second_reader: SecondReaderDetector | None,
    ) -> None:
        self._vanished = vanished
        self._flapping = flapping
        self._second_reader = second_reader
        self._state: PortState = "opening"
        self._device = ""
        self._loss: _Loss | None = None
        self._left_ns: int | None = None  # when the board's own USB vanished last

    def has_reset_itself(self, mono_ns: int) -> bool:
        """Tell whether a port that comes back now was reset with its board, not by our open."""
        return self._left_ns is not None and mono_ns - self._left_ns <= _OWN_RESET_NS

    def go_on_from(self, earlier: PortLosses) -> None:
        """Take up the state that an earlier one was told last."""
        self._state, self._device = earlier._state, earlier._device
        self._left_ns = earlier._left_ns

    def changed(
        self,
        state: PortState,
        problem: str,
        device: str,
        mono_ns: int,
        last: Moment,
        *,
        is_expected: bool,
    ) -> Fault | None:
        """Take a state.

        `device` is the real path while it is open; `last` is when the board said something last,
        and its last line; `is_expected`: somebody flashes or resets it, or it goes down on purpose.
        """
        before, self._state = self._state, state
        self._device = device or self._device
        if state == "up":
            self._left_ns = None
            return self._back(mono_ns)
        if before != "up":
            return self._flaps(problem, last.seq) if state == "flapping" != before else None
        if self._is_native and not is_expected and state in ("absent", "flapping"):
            self._left_ns = mono_ns
        if _SECOND_READER in problem:
            return self._is_read_by_two(problem, last.seq)
        if state == "flapping":
            return self._flaps(problem, last.seq)
        if state == "absent" and self._vanished and not is_expected:
            talked_ns = self._vanished.talked_s * S
            self._loss = _Loss(
                mono_ns,
                last.seq,
                problem,
                self._is_native,
                bool(last.mono_ns) and mono_ns - last.mono_ns <= talked_ns,
            )
        return None

    def read_by(self, others: str, seq: int) -> Fault | None:
        """Judge that other programs, by name, have the open port open too."""
        return self._is_read_by_two(f"open in {others} too", seq, others)

    @property
    def _is_native(self) -> bool:
        return self._device.rpartition("/")[2].startswith(_NATIVE)

    @property
    def is_waiting(self) -> bool:
        """Tell whether the port is gone and that was not told."""
        return self._loss is not None

    def tick(self, mono_ns: int) -> Fault | None:
        """Let time pass while the port is gone."""
        loss = self._loss
        if not loss or not self._vanished or mono_ns - loss.mono_ns < self._vanished.gone_s * S:
            return None
        gone_s = (mono_ns - loss.mono_ns) / S
        return self._gone(loss, mono_ns, f"and was not back {duration(gone_s)} later")

    def _back(self, mono_ns: int) -> Fault | None:
        if not self._loss:
            return None
        back_s = (mono_ns - self._loss.mono_ns) / S
        return self._gone(self._loss, mono_ns, f"and came back {duration(back_s)} later")

    def _gone(self, loss: _Loss, mono_ns: int, how: str) -> Fault | None:
        self._loss = None
        if self._vanished is None:
            return None
        what = "the board's own USB vanished" if loss.is_native else "the serial adapter vanished"
        if _REMOTE in self._device:
            what = "the connection to the port's server was lost"
        counts = loss.is_native or loss.was_talking  # else somebody tidies up the bench
        return Fault(
            detector=self._vanished,
            severity=self._vanished.severity if counts else "note",
            title=f"{what} {how}",
            key="vanished",
            seq=loss.seq,
            fields={
                "problem": loss.problem,
                "device": self._device,
                "gone_s": f"{(mono_ns - loss.mono_ns) / S:.1f}",
            },
        )

    def _flaps(self, problem: str, seq: int) -> Fault | None:
        self._loss = None
        if self._flapping is None:
            return None
        return Fault(
            detector=self._flapping,
            severity=self._flapping.severity,
            title="the port comes and goes",
            key="flapping",
            seq=seq,
            fields={"problem": problem, "device": self._device},
        )

    def _is_read_by_two(self, problem: str, seq: int, others: str = "") -> Fault | None:
        if self._second_reader is None:
            return None
        return Fault(
            detector=self._second_reader,
            severity=self._second_reader.severity,
            title=f"{others or _named(problem)} reads from the port: lines are missing here",
            key="second_reader",
            seq=seq,
            fields={"problem": problem, "device": self._device}
            | ({"reader": others} if others else {}),
        )


def _named(problem: str) -> str:
    """Return who reads too, as the driver has found out, or that somebody does."""
    who = problem.partition(_SECOND_READER)[2].strip()
    return who if who and not who.startswith("(") else "another program"
