"""The write lease of a port."""

from __future__ import annotations

from serialwatch.api.bench import Who
from serialwatch.api.lease import Holder, Lease

ALICE = Holder(1, Who(1001, "alice", 4121))
BOB = Holder(2, Who(1002, "bob", 4200))


def test_the_first_who_types_gets_it_and_keeps_it() -> None:
    lease = Lease(limit_s=15)

    assert lease.take(ALICE, 0)
    assert lease.take(ALICE, 1)
    assert not lease.take(BOB, 2)
    assert lease.holder == ALICE


def test_a_sign_of_life_keeps_it_and_silence_loses_it() -> None:
    lease = Lease(limit_s=15)
    lease.take(ALICE, 0)
    lease.heard(1, 10)

    assert not lease.take(BOB, 24)
    assert lease.take(BOB, 26)
    assert lease.is_held_by(2)


def test_the_life_of_another_client_does_not_keep_it() -> None:
    lease = Lease(limit_s=15)
    lease.take(ALICE, 0)
    lease.heard(2, 10)

    assert lease.is_stale(16)


def test_only_its_holder_releases_it() -> None:
    lease = Lease(limit_s=15)
    lease.take(ALICE, 0)

    assert not lease.release(2)
    assert lease.release(1)
    assert lease.holder is None
    assert not lease.is_stale(1000)


def test_it_can_be_stolen() -> None:
    lease = Lease(limit_s=15)
    lease.take(ALICE, 0)
    lease.steal(BOB, 1)

    assert lease.holder == BOB
    assert not lease.take(ALICE, 2)
