"""Who may do what on the socket: decided by the peer's uid, its groups and its ancestors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

VIEW_GROUP = "serialwatch"  # may view and annotate
WRITE_GROUP = "serialwatch-operators"  # may also write to a port, reset and release it

_MAX_DEPTH = 64  # ancestors looked at; a process tree of ours is five deep


class Right(IntEnum):
    """What a peer may do; each one includes those below it."""

    NONE = 0
    VIEW = 1
    ANNOTATE = 2  # markers, resolve and mute
    WRITE = 3  # anything that reaches a device
    ADMIN = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, as the kernel names it."""

    uid: int
    gid: int
    pid: int  # 0: it lives in another PID namespace
    groups: frozenset[int] = frozenset()  # supplementary


@dataclass(frozen=True, slots=True)
class Policy:
    """Whose daemon this is. A gid is None where the system has no such group."""

    is_system: bool  # False: a user's own daemon, nobody else may come near it
    uid: int  # the daemon's
    pid: int  # the daemon's
    view_gid: int | None = None
    write_gid: int | None = None


def right_of(peer: Peer, policy: Policy, parent_of: Callable[[int], int | None]) -> Right:
    """Return what `peer` may do.

    Whatever this daemon itself has started may only view, so that a skill that is talked into
    something cannot come back through the socket with the daemon's own uid.
    """
    full = _right_by_id(peer, policy)
    if full > Right.VIEW and descends(peer.pid, policy.pid, parent_of):
        return Right.VIEW
    return full


def descends(pid: int, ancestor: int, parent_of: Callable[[int], int | None]) -> bool:
    """Tell whether `ancestor` started `pid`, at any remove; True where that cannot be seen.

    A descendant is always visible to its ancestor, so pid 0 (hidden from us) is none.
    """
    if pid == ancestor:
        return False
    for _ in range(_MAX_DEPTH):
        if pid <= 1:
            return False
        parent = parent_of(pid)
        if parent is None:  # gone: who has its socket now?
            return True
        if parent == ancestor:
            return True
        pid = parent
    return True


def read_parent(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the parent of a process, None if there is no such process."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold spaces and parentheses itself.
    return int(stat[stat.rindex(b")") + 1 :].split()[1])


def _right_by_id(peer: Peer, policy: Policy) -> Right:
    if peer.uid in {0, policy.uid}:
        return Right.ADMIN
    if not policy.is_system:
        return Right.NONE
    groups = peer.groups | {peer.gid}
    if policy.write_gid is not None and policy.write_gid in groups:
        return Right.WRITE
    if policy.view_gid is not None and policy.view_gid in groups:
        return Right.ANNOTATE
    return Right.NONE
