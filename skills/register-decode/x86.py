"""x86 page fault error code, as Linux prints it.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, Volume 3A, "Page-Fault
Exceptions", figure of the page-fault error code (bits 0 to 6 and 15). Linux prints it as
`#PF: error_code(0x0002)` and, of any exception, as `Oops: 0002 [#1]`.
"""

from __future__ import annotations

from decoded import Decoded, flags, stray

SOURCE = "Intel SDM Vol. 3A, Page-Fault Exceptions"

_BITS = {
    0: ("P", "the page is present: a protection violation"),
    1: ("W/R", "a write"),
    2: ("U/S", "by user code"),
    3: ("RSVD", "a reserved bit is set in a paging structure"),
    4: ("I/D", "an instruction fetch"),
    5: ("PK", "a protection key forbids it"),
    6: ("SS", "a shadow stack access"),
    15: ("SGX", "an access-control rule of SGX forbids it"),
}


def decode_pf(value: int) -> Decoded:
    """Take the error code of a page fault apart."""
    found = flags(value, _BITS)
    how = "an instruction fetch" if value >> 4 & 1 else "a write" if value >> 1 & 1 else "a read"
    who = "user code" if value >> 2 & 1 else "the kernel"
    what = (
        "a page that is there but may not be used so" if value & 1 else "a page that is not there"
    )
    rest = stray(value, sum(1 << bit for bit in _BITS))
    meaning = f"If it was a page fault: {how} by {who} met {what}{f'; {rest}' if rest else ''}."
    fields = {name: f"1: {text}" for name, text in found.items()}
    return Decoded("pf_error", value, True, meaning, SOURCE, fields, tuple(found))
