from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch.agent.models.spending import Caps, Spending, Spent
from serialwatch.store.cached_answers import load_answer, prune_answers, save_answer
from serialwatch.store.endpoints import EndpointRow, load_endpoints, save_endpoint
from serialwatch.store.spending import (
    SpendingRow,
    add_spending,
    asked_lately,
    load_spending,
    session_tokens,
)
from serialwatch.store.sqlite_file import open_file
from serialwatch.wire import iso

DAY_S = 24 * 3600.0
NOON_S = 1_790_000_000 // DAY_S * DAY_S + DAY_S / 2
NOW_NS = int(NOON_S) * 1_000_000_000
HOUR_NS = 3600 * 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_tokens_count_by_run_and_are_told(clock: Clock) -> None:
    told: list[Spent] = []
    spending = Spending(Caps(price_in=2.0, price_out=8.0), told.append, clock)
    account = spending.account("incident-1")
    account.spent("tiny", 1000, 500)

    assert (account.tokens, account.price) == (1500, pytest.approx(0.006))
    assert told == [Spent("tiny", 1000, 500, pytest.approx(0.006))]


def test_the_cheap_model_has_its_own_prices_and_account(clock: Clock) -> None:
    told: list[Spent] = []
    caps = Caps.of(
        {"price_in": 2, "price_out": 8, "cheap_model": "small", "cheap_price_in": 0.5}
        | {"cheap_price_out": 0}
    )
    account = Spending(caps, told.append, clock).account("incident-1")
    account.spent("tiny", 1000, 500)
    account.spent("small", 1000, 500)
    account.spent("small", 1000, 500)

    assert [spent.cost for spent in told] == pytest.approx([0.006, 0.0005, 0.0005])
    assert account.price == pytest.approx(0.007)
    assert account.models["tiny"].tokens == 1500
    assert account.models["small"] == Spent("small", 2000, 1000, pytest.approx(0.001))


def test_a_cheap_model_without_prices_is_counted_as_the_other(clock: Clock) -> None:
    caps = Caps.of({"price_in": 2, "price_out": 8, "cheap_model": "small"})

    assert caps.price(1000, 500, "small") == caps.price(1000, 500) == pytest.approx(0.006)


def test_the_tokens_of_a_day_are_spent_until_midnight(clock: Clock) -> None:
    spending = Spending(Caps(tokens_per_day=2000), clock=clock)
    account = spending.account("incident-1")
    account.spent("tiny", 1500, 100)

    assert account.refusal(300) == ""
    assert account.refusal(400) == (
        "the budget of 2000 tokens a day is spent; it is new at 00:00 UTC"
    )
    clock.now_s += DAY_S / 2
    assert account.refusal(400) == ""


def test_a_day_may_cost_so_much(clock: Clock) -> None:
    spending = Spending(Caps(price_in=10, price_out=10, cost_per_day=0.5), clock=clock)
    account = spending.account("incident-1")
    account.spent("tiny", 40_000, 9_000)

    assert spending.refusal("incident-2") == ""
    assert account.refusal(2000) == "the 0.5 that a day may cost are spent; new at 00:00 UTC"


def test_an_incident_has_a_budget_over_all_its_runs(clock: Clock) -> None:
    spending = Spending(Caps(tokens_per_incident=8000), clock=clock)
    spending.account("incident-1").spent("tiny", 7000, 1000)

    assert spending.refusal("incident-1") == "its budget of 8000 tokens is spent"
    assert spending.refusal("incident-2") == ""


def test_only_so_many_incidents_are_shown_to_a_model_in_an_hour(clock: Clock) -> None:
    spending = Spending(Caps(incidents_per_hour=2), clock=clock)
    for session in ("incident-1", "incident-2", "incident-2"):
        spending.account(session)

    assert spending.refusal("incident-2") == "", "it is one of them"
    assert spending.refusal("incident-3") == (
        "a model was asked about 2 incidents within the last hour"
    )
    clock.now_s += 3601
    assert spending.refusal("incident-3") == ""


def test_incidents_that_were_let_in_at_once_do_not_exceed_the_hour(clock: Clock) -> None:
    spending = Spending(Caps(incidents_per_hour=2), clock=clock)
    assert [spending.refusal(f"incident-{n}") for n in (1, 2, 3)] == ["", "", ""]
    accounts = [spending.account(f"incident-{n}") for n in (1, 2, 3)]

    assert [bool(account.refusal(10)) for account in accounts] == [False, False, True]


def test_zero_is_no_cap(clock: Clock) -> None:
    spending = Spending(Caps(0, 0, 0), clock=clock)
    for number in range(50):
        spending.account(f"incident-{number}").spent("tiny", 10**9, 0)

    assert spending.refusal("incident-51") == ""
    assert spending.account("incident-0").refusal(10**9) == ""


def test_an_agent_that_starts_again_knows_what_was_spent(clock: Clock) -> None:
    spending = Spending(Caps(tokens_per_day=1000, incidents_per_hour=1), clock=clock)
    spending.restore("2026-09-21", 990, 0.0, [(NOON_S - 60, "incident-1")], {"incident-1": 990})

    assert spending.account("incident-1").refusal(20).startswith("the budget of 1000 tokens a day")
    assert spending.refusal("incident-2").startswith("a model was asked about 1 incidents")


def test_what_was_spent_on_another_day_does_not_count(clock: Clock) -> None:
    spending = Spending(Caps(tokens_per_day=1000), clock=clock)
    spending.restore("2026-09-20", 5000, 0.0)

    assert spending.refusal("incident-1") == ""


def test_a_day_adds_up_in_the_store(tmp_path: Path) -> None:
    db = open_file(tmp_path / "s.db")
    for row in (
        SpendingRow("2026-06-22", "tiny", 1, 100, 10, 0.5),
        SpendingRow("2026-06-22", "tiny", 2, 200, 20, 0.25),
        SpendingRow("2026-06-22", "big", 1, 7, 7, 0.0),
        SpendingRow("2026-06-23", "tiny", 1, 1, 1, 0.0),
    ):
        add_spending(db, row)

    assert load_spending(db, "2026-06-22") == [
        SpendingRow("2026-06-22", "big", 1, 7, 7, 0.0),
        SpendingRow("2026-06-22", "tiny", 3, 300, 30, 0.75),
    ]
    db.close()


def test_runs_tell_who_was_asked_about_lately_and_what_it_took(tmp_path: Path) -> None:
    db = open_file(tmp_path / "s.db")
    for number, session, kind, ago_s, calls, tokens in (
        (1, "incident-1", "model", 4000, 2, 500),
        (2, "incident-1", "baseline", 60, 0, 0),
        (3, "incident-2", "model", 120, 1, 70),
        (4, "incident-2", "model", 60, 1, 30),
        (5, "incident-3", "model", 60, 0, 0),
        (6, "incident-4", "model", 9 * 24 * 3600, 1, 900),
    ):
        text = dict.fromkeys(
            ["phase", "port", "role", "model", "base_url", "exit_status", "reason"], ""
        )
        row = {
            "id": str(number), "session_id": session, "kind": kind, "model_calls": calls,
            "tokens": tokens, "started_at": iso(NOW_NS - ago_s * 1_000_000_000),
            "plan_json": "[]", "notes_json": "[]", **text,
        }  # fmt: skip
        db.table("runs").insert(row)

    assert asked_lately(db, NOW_NS) == {"incident-2": iso(NOW_NS - 60 * 1_000_000_000)}
    assert session_tokens(db, NOW_NS - 7 * 24 * HOUR_NS) == {"incident-1": 500, "incident-2": 100}
    db.close()


def test_an_endpoint_is_what_it_showed_last(tmp_path: Path) -> None:
    db = open_file(tmp_path / "s.db")
    save_endpoint(db, EndpointRow("http://x/v1", "tiny", {"tools": True}, NOW_NS))
    save_endpoint(db, EndpointRow("http://x/v1", "tiny", {"tools": False}, NOW_NS + HOUR_NS))

    assert load_endpoints(db) == [
        EndpointRow("http://x/v1", "tiny", {"tools": False}, NOW_NS + HOUR_NS)
    ]
    db.close()


def test_an_answer_is_kept_for_a_day(tmp_path: Path) -> None:
    db = open_file(tmp_path / "s.db")
    save_answer(db, "k1", {"text": "old"}, NOW_NS - 25 * HOUR_NS)
    save_answer(db, "k2", {"text": "new"}, NOW_NS - 23 * HOUR_NS)

    assert load_answer(db, "k1", NOW_NS) is None
    assert load_answer(db, "k2", NOW_NS) == {"text": "new"}
    assert prune_answers(db, NOW_NS) == 1
    assert [row["key"] for row in db.query("SELECT key FROM cached_answers")] == ["k2"]
    db.close()
