from __future__ import annotations

from serialwatch.agent.questions.question_queue import (
    AT_ONCE,
    MAX_WAITING,
    AskedQuestion,
    QuestionQueue,
)


def asked(number: int, user: str = "anna") -> AskedQuestion:
    return AskedQuestion(number, f"ask-{number}", "what happened?", "", user, 0, 0)


def test_a_user_gets_one_answer_at_a_time() -> None:
    queue = QuestionQueue()
    queue.add(asked(1))
    queue.add(asked(2))

    first = queue.take()
    assert first == asked(1)
    assert queue.take() is None
    queue.done(first)
    assert queue.take() == asked(2)


def test_who_asks_much_does_not_keep_others_waiting() -> None:
    queue = QuestionQueue()
    for number in range(1, 6):
        queue.add(asked(number, "anna"))
    queue.add(asked(6, "jo"))

    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert (first.user, second.user) == ("anna", "jo")
    queue.done(second)
    queue.done(first)
    queue.add(asked(7, "jo"))
    queue.add(asked(8, "max"))
    turns = [queue.take() for _ in range(3)]
    assert [t.user for t in turns if t] == ["max", "anna", "jo"]


def test_only_so_many_are_answered_at_once() -> None:
    queue = QuestionQueue()
    for number in range(1, AT_ONCE + 3):
        queue.add(asked(number, f"user{number}"))

    assert len([t for t in (queue.take() for _ in range(9)) if t]) == AT_ONCE


def test_a_question_is_taken_once_however_often_it_is_told() -> None:
    queue = QuestionQueue()
    queue.add(asked(1))
    queue.add(asked(1))
    queue.take()
    queue.add(asked(1))

    assert queue.take() is None


def test_a_full_queue_refuses() -> None:
    queue = QuestionQueue()

    assert all(queue.add(asked(n)) for n in range(MAX_WAITING))
    assert not queue.add(asked(MAX_WAITING))


def test_a_question_that_waits_can_be_dropped() -> None:
    queue = QuestionQueue()
    queue.add(asked(1))

    assert queue.drop("ask-1") == asked(1)
    assert queue.drop("ask-1") is None
    assert queue.take() is None
