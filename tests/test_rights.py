"""Who may do what on the socket."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serialwatch.api.rights import Peer, Policy, Right, descends, read_parent, right_of

DAEMON, OWN, ALICE, BOB = 500, 990, 1001, 1002  # a pid and three uids
VIEWERS, OPERATORS = 71, 72  # gids
SYSTEM = Policy(is_system=True, uid=OWN, pid=DAEMON, view_gid=VIEWERS, write_gid=OPERATORS)
ALICES = Policy(is_system=False, uid=ALICE, pid=DAEMON, view_gid=VIEWERS, write_gid=OPERATORS)


def tree(parents: dict[int, int]) -> Callable[[int], int | None]:
    """Return the lookup of a process tree; pid 900 is a shell of its own."""
    return {900: 1, **parents}.get


@pytest.mark.parametrize(
    ("policy", "uid", "gid", "groups", "right"),
    [
        (SYSTEM, 0, 0, (), Right.ADMIN),
        (SYSTEM, OWN, OWN, (), Right.ADMIN),
        (SYSTEM, ALICE, ALICE, (), Right.NONE),
        (SYSTEM, ALICE, ALICE, (VIEWERS,), Right.ANNOTATE),
        (SYSTEM, ALICE, ALICE, (OPERATORS,), Right.WRITE),
        (SYSTEM, ALICE, ALICE, (VIEWERS, OPERATORS), Right.WRITE),
        (SYSTEM, ALICE, VIEWERS, (), Right.ANNOTATE),
        (SYSTEM, ALICE, OPERATORS, (), Right.WRITE),
        (SYSTEM, ALICE, ALICE, (20, 1000), Right.NONE),
        (ALICES, ALICE, ALICE, (), Right.ADMIN),
        (ALICES, 0, 0, (), Right.ADMIN),
        (ALICES, BOB, BOB, (VIEWERS, OPERATORS), Right.NONE),
    ],
)
def test_uid_and_groups_decide(
    policy: Policy, uid: int, gid: int, groups: tuple[int, ...], right: Right
) -> None:
    peer = Peer(uid, gid, 900, frozenset(groups))

    assert right_of(peer, policy, tree({})) is right


def test_a_system_without_the_groups_gives_nobody_but_root_and_itself_anything() -> None:
    policy = Policy(is_system=True, uid=OWN, pid=DAEMON)

    assert right_of(Peer(ALICE, ALICE, 900), policy, tree({})) is Right.NONE
    assert right_of(Peer(0, 0, 900), policy, tree({})) is Right.ADMIN


@pytest.mark.parametrize("uid", [0, OWN])
def test_what_the_daemon_started_may_only_view_whatever_its_uid(uid: int) -> None:
    worker = tree({700: 650, 650: DAEMON, DAEMON: 1})

    assert right_of(Peer(uid, uid, 700), SYSTEM, worker) is Right.VIEW


def test_an_operator_that_the_daemon_started_may_only_view() -> None:
    peer = Peer(ALICE, ALICE, 700, frozenset({OPERATORS}))

    assert right_of(peer, SYSTEM, tree({700: DAEMON, DAEMON: 1})) is Right.VIEW


def test_a_stranger_that_the_daemon_started_gains_nothing_by_it() -> None:
    peer = Peer(ALICE, ALICE, 700)

    assert right_of(peer, SYSTEM, tree({700: DAEMON, DAEMON: 1})) is Right.NONE


def test_a_process_that_has_gone_may_only_view_for_who_has_its_socket_now() -> None:
    assert right_of(Peer(0, 0, 700), SYSTEM, tree({})) is Right.VIEW
    assert right_of(Peer(0, 0, 700), SYSTEM, tree({700: 650})) is Right.VIEW


def test_a_peer_in_another_pid_namespace_is_no_descendant() -> None:
    assert right_of(Peer(0, 0, 0), SYSTEM, tree({})) is Right.ADMIN


def test_the_daemon_itself_and_what_started_it_are_no_descendants() -> None:
    parents = tree({DAEMON: 400, 400: 1})

    assert not descends(DAEMON, DAEMON, parents)
    assert not descends(400, DAEMON, parents)


def test_a_loop_of_parents_ends_and_counts_as_a_descendant() -> None:
    assert descends(700, DAEMON, tree({700: 701, 701: 700}))


def test_the_parent_of_a_process_is_read_from_the_kernel() -> None:
    assert read_parent(os.getpid()) == os.getppid()
    assert read_parent(2**22 + 1) is None


def test_a_process_name_with_parentheses_and_spaces_does_not_confuse(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_bytes(b"42 (a) S 1 (b) S 77 42 42 0 -1 4194560 1 0")

    assert read_parent(42, tmp_path) == 77
