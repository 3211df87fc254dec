"""Lock the calling process in: no new rights, limits, few files, no processes, no sockets.

What the kernel does not have is left out; `confine` says what holds. All of it is inherited by
threads started later and cannot be undone. Numbers are those of the kernel's UAPI headers
(landlock.h, seccomp.h, filter.h, capability.h, prctl.h).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """What the process may use at most."""

    cpu_s: int
    memory_bytes: int = 512 * 1024 * 1024  # of address space
    files: int = 64  # open at once
    file_bytes: int = 16 * 1024 * 1024  # of one file that it writes


@dataclass(frozen=True, slots=True)
class Confined:
    """What holds the process."""

    landlock_abi: int  # 0: the kernel has no Landlock, files are guarded by their modes alone
    has_filter: bool  # False: no system-call filter on this kernel or machine


def confine(readable: Sequence[Path], writable: Sequence[Path], limits: Limits) -> Confined:
    """Give up for ever what a skill does not need.

    Afterwards files below `readable` can be read and those below `writable` changed, nothing
    executed; no process started, no other one signalled or traced, no socket made.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    _limit(limits)
    abi = _restrict_files(readable, writable)
    has_filter = _restrict_calls()
    if not has_filter:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # does not hold root
    return Confined(abi, has_filter)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of what the children of this process leave behind."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel speaks, 0 if none."""
    abi = _syscall(_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_VERSION)
    return max(abi, 0)


_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_LANDLOCK_CREATE_RULESET = 444  # the same on every machine
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION = 1
_LANDLOCK_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _TRUNCATE = 1 << 7, 1 << 8, 1 << 14
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
_OF_A_FILE = _READ_FILE | _WRITE_FILE | _TRUNCATE  # what can be granted on a file itself


def _restrict_files(readable: Sequence[Path], writable: Sequence[Path]) -> int:
    """Return the Landlock version that is in force, 0 if none."""
    if not (abi := landlock_abi()):
        return 0
    handled = (1 << 13) - 1  # everything that version 1 knows
    handled |= sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if abi >= since)
    network = 3 if abi >= 4 else 0  # TCP bind and connect
    scoped = 3 if abi >= 6 else 0  # abstract Unix sockets and signals
    attr = struct.pack("=QQQ", handled, network, scoped)[
        : 24 if abi >= 6 else 16 if abi >= 4 else 8
    ]
    ruleset = _checked(_syscall(_LANDLOCK_CREATE_RULESET, _buffer(attr), len(attr), 0))
    try:
        for paths, rights in ((readable, _READ), (writable, _WRITE)):
            for path in paths:
                _grant(ruleset, path, rights & handled)
        _checked(_syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return abi


def _grant(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not path.is_dir():
            rights &= _OF_A_FILE
        rule = struct.pack("=Qi", rights, fd)
        _checked(_syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, _buffer(rule), 0))
    finally:
        os.close(fd)


def _limit(limits: Limits) -> None:
    for what, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (most, most))


def _drop_capabilities() -> None:
    """Give up what root may do; without any, this does nothing."""
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3, this process
    if _libc.capset(_buffer(header), _buffer(bytes(24))) and ctypes.get_errno() != errno.EPERM:
        raise OSError(ctypes.get_errno(), "capset")


@dataclass(frozen=True, slots=True)
class _Machine:
    """System-call numbers; -1 where the machine has no such call."""

    audit: int  # AUDIT_ARCH_*
    clone: int
    clone3: int
    tgkill: int
    forbidden: tuple[int, ...]


# Forbidden, in this order: starting processes and programs (fork vfork execve execveat), sockets
# and the ring that can make them (socket io_uring_setup), signals (kill tkill rt_sigqueueinfo
# rt_tgsigqueueinfo pidfd_send_signal), other processes' memory and descriptors (ptrace
# process_vm_readv process_vm_writev pidfd_getfd), namespaces and keys (unshare setns mount bpf
# perf_event_open userfaultfd add_key request_key keyctl).
_GENERIC = _Machine(
    0xC00000B7, 220, 435, 131,
    (221, 281, 198, 425, 129, 130, 138, 240, 424, 117, 270, 271, 438, 97, 268, 40, 280, 241, 282,
     217, 218, 219),
)  # fmt: skip
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 56, 435, 234,
        (57, 58, 59, 322, 41, 425, 62, 200, 129, 297, 424, 101, 310, 311, 438, 272, 308, 165, 321,
         298, 323, 248, 249, 250),
    ),
    "aarch64": _GENERIC,
    "riscv64": _Machine(0xC00000F3, _GENERIC.clone, _GENERIC.clone3, _GENERIC.tgkill,
                        _GENERIC.forbidden),
}  # fmt: skip

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data; low halves, little-endian
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # a second set of numbers on x86_64


def _restrict_calls() -> bool:
    """Forbid what a skill never needs; return False where no filter can be had."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    program = b"".join(_program(machine, os.getpid()))
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    return not _libc.prctl(_PR_SET_SECCOMP, 2, _buffer(head), 0, 0)


def _program(machine: _Machine, pid: int) -> Iterator[bytes]:
    """Yield the filter: forbidden calls fail with EPERM, threads and all else go on."""

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    refuse = step(_RETURN, _ERRNO | errno.EPERM)
    yield step(_LOAD, _ARCH)
    yield step(_JUMP_EQUAL, machine.audit, 1, 0)
    yield refuse  # calls of another word size
    yield step(_LOAD, _NR)
    yield step(_JUMP_AT_LEAST, _X32, 0, 1)
    yield refuse
    for number in machine.forbidden:
        yield step(_JUMP_EQUAL, number, 0, 1)
        yield refuse
    # Its flags are in memory, which a filter cannot read: without it libc takes clone.
    yield step(_JUMP_EQUAL, machine.clone3, 0, 1)
    yield step(_RETURN, _ERRNO | errno.ENOSYS)
    yield step(_JUMP_EQUAL, machine.clone, 0, 4)
    yield step(_LOAD, _ARG0)
    yield step(_JUMP_ANY_BIT, _CLONE_THREAD, 1, 0)
    yield refuse
    yield step(_RETURN, _ALLOW)
    yield step(_JUMP_EQUAL, machine.tgkill, 0, 3)  # to itself it is how abort() ends
    yield step(_LOAD, _ARG0)
    yield step(_JUMP_EQUAL, pid, 1, 0)
    yield refuse
    yield step(_RETURN, _ALLOW)


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _syscall(number: int, *args: int | ctypes.Array[ctypes.c_char]) -> int:
    """Return what the kernel answers, -1 on failure with the reason in errno."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result: int = _libc.syscall(ctypes.c_long(number), *wide)
    return result


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(content, len(content))
