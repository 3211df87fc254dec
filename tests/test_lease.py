"""The write lease of a port."""

from __future__ import annotations

from serialwatch.api.bench import Who
from serialwatch.api.lease import Holder, Lease

ALICE = Holder(1, Who(1001, "alice", 4121))
BOB = Holder(2, Who(1002, "bob", 4200))


def test_the_first_who_types_gets_it_and_keeps_it() -> None:
    lease = Lease()

    assert lease.take(ALICE)
    assert lease.take(ALICE)
    assert not lease.take(BOB)
    assert lease.holder == ALICE


def test_only_its_holder_releases_it() -> None:
    lease = Lease()
    lease.take(ALICE)

    assert not lease.release(2)
    assert lease.release(1)
    assert lease.take(BOB)
    assert lease.is_held_by(2)


def test_it_can_be_stolen() -> None:
    lease = Lease()
    lease.take(ALICE)
    lease.steal(BOB)

    assert lease.holder == BOB
    assert not lease.take(ALICE)
