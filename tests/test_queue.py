from __future__ import annotations

from dataclasses import replace

from bench_incident import incident_at, lines_of
from serialwatch.agent.queue import MAX_BASELINES, MAX_WAITING, Work, WorkQueue
from serialwatch.records import Incident, Severity

ONE = incident_at(lines_of("panic"), "panic", trigger="linux.panic")


def incident(number: int, port: str = "dut1", severity: Severity = "critical") -> Incident:
    return replace(ONE, id=number, port=port, severity=severity)


def baseline(number: int, severity: Severity = "critical") -> Work:
    return Work("baseline", "opened", incident(number, severity=severity), (number,))


def model(number: int, port: str) -> Work:
    return Work("model", "settled", incident(number, port))


def taken(queue: WorkQueue) -> list[int]:
    ids = []
    while (work := queue.take()) is not None:
        ids.append(work.incident.id)
    return ids


def test_the_worst_and_oldest_goes_first() -> None:
    queue = WorkQueue()
    for work in (baseline(1, "warning"), baseline(3), baseline(2), model(4, "dut2")):
        queue.add(work)

    assert taken(queue) == [2, 3, 1, 4]


def test_eight_baselines_run_at_once() -> None:
    queue = WorkQueue()
    for number in range(1, 11):
        queue.add(baseline(number))

    assert taken(queue) == list(range(1, MAX_BASELINES + 1))
    queue.done(queue.running[0])
    assert taken(queue) == [9]


def test_models_run_two_at_once_and_one_a_port() -> None:
    queue = WorkQueue()
    for work in (model(1, "dut1"), model(2, "dut1"), model(3, "dut2"), model(4, "dut3")):
        queue.add(work)

    assert taken(queue) == [1, 3]
    queue.done(queue.running[0])
    assert taken(queue) == [2]


def test_one_incident_is_not_worked_on_twice_at_once() -> None:
    queue = WorkQueue()
    queue.add(baseline(1))
    first = queue.take()
    queue.add(replace(baseline(1), phase="settled"))

    assert queue.take() is None
    assert first is not None
    queue.done(first)
    again = queue.take()
    assert again is not None
    assert again.phase == "settled"


def test_a_later_phase_takes_the_place_of_one_that_waits() -> None:
    queue = WorkQueue()
    queue.add(Work("baseline", "opened", incident(1), (10,)))
    queue.add(Work("baseline", "settled", incident(1), (11,)))
    work = queue.take()

    assert work == Work("baseline", "settled", incident(1), (10, 11))
    assert queue.take() is None


def test_a_full_queue_refuses_the_mildest() -> None:
    queue = WorkQueue()
    for number in range(1, MAX_WAITING + 1):
        assert queue.add(baseline(number, "warning" if number == 7 else "critical")) is None
    refused = queue.add(baseline(5000))

    assert refused is not None
    assert refused.incident.id == 7
    assert (queue.refused, len(queue)) == (1, MAX_WAITING)


def test_a_run_about_no_incident_takes_one_of_the_models_places() -> None:
    queue = WorkQueue()

    assert queue.hold("dut1")
    assert not queue.hold("dut1")
    assert queue.hold("")
    assert not queue.hold("dut2")
    queue.add(model(1, "dut2"))
    assert taken(queue) == []
    queue.release("dut1")
    assert taken(queue) == [1]


def test_an_incident_that_could_start_comes_before_a_question() -> None:
    queue = WorkQueue()
    queue.add(model(1, "dut1"))

    assert not queue.hold("dut2")
    assert taken(queue) == [1]
    assert not queue.hold("dut1")
    assert queue.hold("dut2")
