"""A boot that began and does not get ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from serialwatch.titles import duration, readable
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import NotFinishedDetector

_KEPT = 20  # boots
_NEARLY_ALL = 0.95
_SMALL = frozenset(  # microcontrollers: they are ready within seconds
    {
        "arduino",
        "contiki",
        "esp",
        "esp8266",
        "freertos",
        "mbed",
        "mcuboot",
        "micropython",
        "mynewt",
        "nuttx",
        "riot",
        "rtthread",
        "threadx",
        "tock",
        "zephyr",
    }
)


class NotFinished:
    """Fires once a boot; learns how long this board's boots take.

    Many consoles never show a line that says ready. So before any was seen, only a kernel that does
    not come to user space counts.
    """

    def __init__(self, told: NotFinishedDetector) -> None:
        self.told = told
        self._began: Moment | None = None  # None: no boot is waited for
        self._ecosystems: frozenset[str] = frozenset()
        self._took_s: deque[float] = deque(maxlen=_KEPT)

    def learn(self, took_s: Iterable[float]) -> None:
        """Take how long earlier boots took that got ready, oldest first."""
        self._took_s.extend(took_s)

    def go_on_from(self, earlier: NotFinished) -> None:
        """Take up how long boots took, and the boot that is waited for."""
        self._took_s, self._began = earlier._took_s, earlier._began

    def board_starts(self, at: Moment) -> None:
        """Note that a start of the board was seen."""
        self._began = at

    def kernel_starts(self, at: Moment) -> None:
        """Note that a kernel starts: whoever stopped at the loader's prompt wants it ready."""
        if self._began is None:
            self._began = at

    def ready(self, at: Moment) -> None:
        """Note that the boot is finished."""
        if self._began:
            self._took_s.append((at.mono_ns - self._began.mono_ns) / S)
        self._began = None

    def stop(self) -> None:
        """Wait for this boot no more: a fault, a person or a lost port explains what comes."""
        self._began = None

    @property
    def is_waiting(self) -> bool:
        """Tell whether a boot began that is not finished."""
        return self._began is not None

    def is_due(self, mono_ns: int, ecosystems: frozenset[str]) -> bool:
        """Tell whether the boot takes so long that it is worth a look."""
        if self._began is None:
            return False
        self._ecosystems = ecosystems
        return mono_ns - self._began.mono_ns >= self._limit_s() * S

    def judge(self, seq: int, line: bytes, mono_ns: int, *, is_in_kernel: bool) -> Fault | None:
        """Judge a boot that is late and that nothing explains; `line` is the last one."""
        began = self._began
        if began is None or not (self._is_learned or is_in_kernel):
            return None
        self._began = None
        passed_s = (mono_ns - began.mono_ns) / S
        usual = f", {duration(self._usual_s())} as a rule" if self._is_learned else ""
        text = readable(line)
        return Fault(
            detector=self.told,
            severity=self.told.severity,
            title=f"the boot is not finished after {duration(passed_s)}{usual}",
            key="not_finished",
            seq=seq,
            first_seq=began.seq,
            raw=line.rstrip(b"\r"),
            fields={"seconds": f"{passed_s:.0f}", "last_line": text[:120]},
        )

    @property
    def _is_learned(self) -> bool:
        return len(self._took_s) >= self.told.learned

    def _usual_s(self) -> float:
        took_s = sorted(self._took_s)
        return took_s[min(len(took_s) - 1, int(len(took_s) * _NEARLY_ALL))]

    def _limit_s(self) -> float:
        told = self.told
        if not self._is_learned:
            return told.limit_s
        is_small = bool(self._ecosystems) and self._ecosystems <= _SMALL
        return max(told.least_mcu_s if is_small else told.least_s, told.times * self._usual_s())
