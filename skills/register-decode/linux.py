"""Exit code of init, as in `Attempted to kill init! exitcode=0x0000000b`.

Source: Linux kernel/exit.c (the code has the form of wait(2)) and signal(7), "Standard signals";
numbers are those of all machines but Alpha, MIPS, PA-RISC and SPARC. Exit statuses 126 and 127:
POSIX, Shell Command Language, 2.8.2.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "wait(2), signal(7)"


def decode_exitcode(value: int) -> Decoded:
    """Say how init ended."""
    signal, has_core, status = value & 0x7F, bool(value & 0x80), value >> 8 & 0xFF
    if value >> 16 or (signal and status):
        return unknown("exitcode", value, f"exit code 0x{value:x}", SOURCE)
    if signal:
        if (known := _SIGNALS.get(signal)) is None:
            return unknown("exitcode", value, f"signal {signal}", SOURCE)
        name, text = known
        fields = {"signal": f"{signal}: {name}", "core_dumped": str(int(has_core))}
        return Decoded(
            "exitcode", value, True, f"Init was ended by {name}: {text}.", SOURCE, fields
        )
    text = _STATUSES.get(status, "its own failure code")
    fields = {"exit_status": f"{status}: {text}"}
    return Decoded(
        "exitcode",
        value,
        True,
        f"Init ended by itself with status {status}: {text}.",
        SOURCE,
        fields,
    )


_STATUSES = {
    0: "success, but init may never end",
    126: "a program was found but could not be executed",
    127: "a program was not found",
}
_SIGNALS = {
    1: ("SIGHUP", "hang-up"),
    2: ("SIGINT", "interrupt from the keyboard"),
    3: ("SIGQUIT", "quit from the keyboard"),
    4: ("SIGILL", "illegal instruction"),
    5: ("SIGTRAP", "trace or breakpoint trap"),
    6: ("SIGABRT", "it called abort()"),
    7: ("SIGBUS", "bad memory access, as of a file that was cut or a bad block"),
    8: ("SIGFPE", "arithmetic error, such as a division by zero"),
    9: ("SIGKILL", "killed"),
    10: ("SIGUSR1", "user-defined signal 1"),
    11: ("SIGSEGV", "invalid memory reference"),
    12: ("SIGUSR2", "user-defined signal 2"),
    13: ("SIGPIPE", "write to a pipe that nobody reads"),
    14: ("SIGALRM", "timer expired"),
    15: ("SIGTERM", "termination"),
    16: ("SIGSTKFLT", "stack fault"),
    24: ("SIGXCPU", "CPU time limit exceeded"),
    25: ("SIGXFSZ", "file size limit exceeded"),
    31: ("SIGSYS", "bad system call"),
}
