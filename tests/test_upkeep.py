from datetime import UTC, datetime, timedelta

from serialwatch.service.upkeep import FIRST_RUN, Upkeep


async def nothing() -> None:
    """Do it."""


async def test_hourly_and_daily_jobs_are_planned() -> None:
    upkeep = Upkeep({"retention": nothing}, {"memories": nothing})
    upkeep.start()
    try:
        jobs = {job.name: job for job in upkeep._scheduler.get_jobs()}

        assert sorted(jobs) == ["memories", "retention"]
        for job in jobs.values():
            assert timedelta(minutes=4) < job.next_run_time - datetime.now(UTC) <= FIRST_RUN
        first = jobs["memories"].next_run_time
        later = jobs["memories"].trigger.get_next_fire_time(first, first)
        assert (later.hour, later.minute) == (3, 17)
        assert jobs["retention"].trigger.get_next_fire_time(first, first) == first + timedelta(
            hours=1
        )
    finally:
        upkeep.stop()


async def test_a_step_of_the_wall_clock_plans_anew() -> None:
    upkeep = Upkeep({"retention": nothing}, {})
    upkeep.start()
    try:
        first = upkeep._scheduler

        assert not upkeep.tick(100.0, 1_000_100.0)
        assert not upkeep.tick(101.0, 1_000_101.5)
        assert upkeep._scheduler is first
        assert upkeep.tick(102.0, 1_003_702.5)
        assert upkeep._scheduler is not first
        assert upkeep.planned() == ["retention"]
    finally:
        upkeep.stop()


async def test_a_failing_job_is_logged_and_nothing_else(caplog) -> None:
    async def fails() -> None:
        raise OSError("disk gone")

    upkeep = Upkeep({"retention": fails}, {})
    upkeep.start()
    try:
        await upkeep._scheduler.get_jobs()[0].func()
    finally:
        upkeep.stop()

    assert "retention failed" in caplog.text
