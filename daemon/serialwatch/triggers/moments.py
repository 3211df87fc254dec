"""Where a line stands, in order and in time."""

from __future__ import annotations

from dataclasses import dataclass

S = 1_000_000_000  # nanoseconds

# A saved log, or a burst read at once, has one time for many lines. Then lines stand in for
# seconds: boots print about so many in the long run.
LINES_PER_S = 20


@dataclass(frozen=True, slots=True)
class Moment:
    """A line and when it was read."""

    seq: int
    mono_ns: int
    utc_ns: int
    until_ns: int = 0  # when its last piece was read, where it came in pieces
    times: int = 1  # that its console prints each line

    def since_ns(self, earlier: Moment) -> int:
        """Return how long ago `earlier` was over."""
        return self.mono_ns - max(earlier.mono_ns, earlier.until_ns)

    def is_within(self, limit_s: float, earlier: Moment, limit_lines: int | None = None) -> bool:
        """Tell whether `earlier` is at most so long ago, by lines where the time is the same."""
        passed_ns = self.since_ns(earlier)
        if passed_ns:
            return passed_ns <= limit_s * S
        if limit_lines is None:
            limit_lines = round(limit_s * LINES_PER_S)
        return self.seq - earlier.seq <= limit_lines * self.times
