"""Scheduled work of an hour and longer: retention of logs and rows, clean-up of memories.

APScheduler follows the wall clock: after a step backwards its jobs stand still, after a step
forwards they flood. So the plan is made anew at each step; everything finer than an hour runs on
the daemon's own monotonic tick instead. Each job also runs soon after the start: a PC that is
started for each test, or off at night, would never come to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

log = logging.getLogger(__name__)

FIRST_RUN = timedelta(minutes=5)  # after the start: by then what hurries is done
STEP_S = 2.0  # a wall clock that moves so far against the monotonic one was set

Job = Callable[[], Awaitable[None]]


class Upkeep:
    """Hourly and daily jobs, by name. Runs on the loop it is started on; jobs may not block it."""

    def __init__(self, hourly: Mapping[str, Job], daily: Mapping[str, Job]) -> None:
        self._hourly = dict(hourly)
        self._daily = dict(daily)
        self._scheduler: AsyncIOScheduler | None = None
        self._offset_s: float | None = None

    def start(self) -> None:
        """Plan every job."""
        scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
        )
        every_hour = IntervalTrigger(hours=1, timezone=UTC)
        every_night = CronTrigger(hour=3, minute=17, timezone=UTC)
        first = datetime.now(UTC) + FIRST_RUN
        for jobs, when in ((self._hourly, every_hour), (self._daily, every_night)):
            for name, job in jobs.items():
                scheduler.add_job(_logged(name, job), when, id=name, name=name, next_run_time=first)
        scheduler.start()
        self._scheduler = scheduler

    def stop(self) -> None:
        """Forget the plan; a running job goes on to its end."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None

    def tick(self, mono_s: float, utc_s: float) -> bool:
        """Compare the clocks; return whether the wall clock was set (the plan is then new)."""
        offset_s = utc_s - mono_s
        before, self._offset_s = self._offset_s, offset_s
        if before is None or abs(offset_s - before) < STEP_S:
            return False
        log.warning("the wall clock was set by %+.1f s", offset_s - before)
        if self._scheduler is not None:
            self.stop()
            self.start()
        return True

    def planned(self) -> list[str]:
        """Return the names of the planned jobs."""
        return [] if self._scheduler is None else [job.name for job in self._scheduler.get_jobs()]


def _logged(name: str, job: Job) -> Job:
    async def run() -> None:
        try:
            await job()
        except Exception:
            # A job of the upkeep must not end the daemon that captures; it runs again next time.
            log.exception("%s failed", name)

    return run
