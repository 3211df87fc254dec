"""Skills that fail again and again rest until their files change; touching one is enough."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from serialwatch.agent.skills.resting import Resting
from serialwatch.agent.skills.skill import Skill
from serialwatch.wire import iso

FAILURES = 3  # within WITHIN_S: then it rests
WITHIN_S = 600.0

log = logging.getLogger(__name__)


class Circuits:
    """What failed lately, by skill; a skill whose hash is another has a new start."""

    def __init__(self, on_change: Callable[[Sequence[Resting]], None] = lambda _: None) -> None:
        """`on_change` takes all that rest now; it may neither block nor raise."""
        self._of: dict[str, _Failures] = {}
        self._on_change = on_change

    def failed(self, skill: Skill, code: str, now_s: float) -> None:
        """Note a crash or a timeout; the third within ten minutes lets the skill rest."""
        failures = self._of.get(skill.name)
        if failures is None or failures.sha != skill.sha:
            failures = self._of[skill.name] = _Failures(skill.sha, skill.version)
        recent = failures.recent
        recent.append((now_s, code))
        while recent[0][0] <= now_s - WITHIN_S:
            recent.popleft()
        if len(recent) >= FAILURES and not failures.is_open:
            failures.is_open = True
            failures.since = iso(time.time_ns())
            log.warning("skill %s %s rests until its files are changed or touched: %s",
                        skill.name, skill.version, failures.words())  # fmt: skip
            self._tell()

    def enable(self, names: Iterable[str]) -> None:
        """Forget what failed: somebody has seen to these skills."""
        for name in names:
            if (failures := self._of.pop(name, None)) is not None and failures.is_open:
                log.info("skill %s is in use again", name)
                self._tell()

    def _tell(self) -> None:
        self._on_change(
            [
                Resting(name, f.version, f.sha, f.words(), f.since)
                for name, f in sorted(self._of.items())
                if f.is_open
            ]
        )

    def refusal(self, skill: Skill) -> str:
        """Return why the skill rests, "" if it does not."""
        failures = self._of.get(skill.name)
        if failures is None or failures.sha != skill.sha or not failures.is_open:
            return ""
        until = "it rests until somebody changes or touches its files"
        return f"{skill.name} {skill.version}: {failures.words()}; {until}"


@dataclass(slots=True)
class _Failures:
    sha: str
    version: str
    since: str = ""  # UTC: when it began to rest
    recent: deque[tuple[float, str]] = field(default_factory=deque)  # when, which
    is_open: bool = False

    def words(self) -> str:
        kinds = ", ".join(code for _, code in self.recent)
        return f"failed {len(self.recent)} times within 10 minutes ({kinds})"
