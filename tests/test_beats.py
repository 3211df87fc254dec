import threading

import pytest

from serialwatch.service.beats import LIMIT_S, Beats, DeadThreadError, Threads, stood_still_s


def test_a_task_without_a_sign_of_life_is_stuck() -> None:
    beats = Beats()
    beats.beat("tick", 100.0)
    beats.beat("second", 100.0 + LIMIT_S)

    assert beats.stuck(100.0 + LIMIT_S) == []
    assert beats.stuck(100.1 + LIMIT_S) == ["tick"]
    assert beats.ages_s(110.0)["tick"] == 10.0


def test_a_sleep_that_takes_very_long_tells_that_we_stood_still() -> None:
    assert stood_still_s(100.0, 101.2) == 0
    assert stood_still_s(100.0, 123.0) == 23.0


def test_nothing_is_expected_of_what_ended_in_order() -> None:
    beats = Beats()
    beats.beat("port dut1", 100.0)
    beats.forget("port dut1")

    assert beats.stuck(1000.0) == []


def test_a_thread_that_ended_is_told() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="log-writer")
    threads = Threads([threading.main_thread().name, "log-writer"])
    thread.start()
    threads.check()
    stop.set()
    thread.join()

    with pytest.raises(DeadThreadError, match="log-writer has ended"):
        threads.check()


def test_a_thread_that_was_begun_anew_is_no_dead_one() -> None:
    threads = Threads(["log-writer"])
    for _ in range(2):
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name="log-writer")
        thread.start()
        try:
            threads.check()
        finally:
            stop.set()
            thread.join()
