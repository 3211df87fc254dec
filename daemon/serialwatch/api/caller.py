"""Who is at the other end of a connection."""

from __future__ import annotations

import grp
import logging
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from typing import Protocol

from serialwatch.api.bench import Who
from serialwatch.api.rights import VIEW_GROUP, WRITE_GROUP, Peer, Policy, Right

log = logging.getLogger(__name__)

_UCRED = struct.Struct("iII")
_SO_PEERGROUPS = 59  # not in Python's socket module
_GROUPS_BYTES = 1024  # the most that Python's getsockopt returns: 256 groups


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks and what they may do."""

    who: Who
    right: Right
    is_our_own: bool = False  # a process that this daemon started


class Socket(Protocol):
    """What is needed of a connected Unix socket."""

    def getsockopt(self, level: int, option: int, length: int, /) -> bytes:
        """Return an option as bytes."""


def peer_of(sock: Socket) -> Peer:
    """Return the process that connected, as it was when it did."""
    pid, uid, gid = _UCRED.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError as exc:
        log.debug("groups of pid %d are not known: %s", pid, exc)
        raw = b""
    return Peer(uid, gid, pid, frozenset(struct.unpack(f"{len(raw) // 4}I", raw)))


def policy_of_this_process(*, is_system: bool) -> Policy:
    """Return the policy of this daemon with the groups that this system has."""
    return Policy(is_system, os.geteuid(), os.getpid(), _gid(VIEW_GROUP), _gid(WRITE_GROUP))


def user_name(uid: int) -> str:
    """Return the name of a user, its number if it has none. May ask a directory service."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _gid(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None
