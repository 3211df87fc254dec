from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch.store import answers
from serialwatch.store.answers import AnswerRow, load_answers, save_answer
from serialwatch.store.sqlite_file import open_file


def row(session: str, user: str = "anna") -> AnswerRow:
    return AnswerRow(session, "0123456789ab", user, "dut1", "why?", {"incident": 0}, 10**18, 10**18)


def test_answers_are_kept_by_session_and_user(tmp_path: Path) -> None:
    db = open_file(tmp_path / "serialwatch.db")
    for session, user in (("ask-1", "anna"), ("ask-2", "jo"), ("ask-3", "anna")):
        save_answer(db, row(session, user))

    assert [a.session_id for a in load_answers(db)] == ["ask-3", "ask-2", "ask-1"]
    assert [a.session_id for a in load_answers(db, user_id="anna")] == ["ask-3", "ask-1"]
    (one,) = load_answers(db, session_id="ask-2")
    assert one.report == {"incident": 0}
    assert one.asked_utc_ns == 10**18
    db.close()


def test_a_question_that_is_answered_again_has_one_answer(tmp_path: Path) -> None:
    db = open_file(tmp_path / "serialwatch.db")
    save_answer(db, row("ask-1"))
    save_answer(db, row("ask-1"))

    assert len(load_answers(db)) == 1
    db.close()


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_ANSWERS", 3)
    db = open_file(tmp_path / "serialwatch.db")
    for number in range(5):
        save_answer(db, row(f"ask-{number}"))

    assert [a.session_id for a in load_answers(db)] == ["ask-4", "ask-3", "ask-2"]
    db.close()
