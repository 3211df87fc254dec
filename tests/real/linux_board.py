"""A PC with Debian's cloud kernel and a BusyBox in its initramfs, small enough to emulate."""

from __future__ import annotations

import platform
import shutil
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

QEMU = "qemu-system-x86_64"
BUSYBOX = Path("/bin/busybox")
KERNELS = (Path("/boot"), Path("/var/cache/serialwatch-tests"))  # the second: debian_kernel.sh

# IRQ lines of slots that are four apart are one: the card with the UART shares its line with `edu`.
HARDWARE = (
    "-M", "pc", "-cpu", "qemu64,+rdrand", "-m", "192",
    "-device", "pci-serial,addr=4,chardev=none", "-chardev", "null,id=none",
    "-device", "edu,addr=8",
)  # fmt: skip
COMMAND_LINE = (
    "console=ttyS0 panic=1 random.trust_cpu=on "
    "tsc=unstable "  # or a message about it breaks into what BusyBox prints
    "no_timer_check nokaslr cryptomgr.notests"  # a second less to emulate
)

INITTAB = """\
::sysinit:/bin/busybox mount -t devtmpfs dev /dev
::sysinit:/bin/busybox mount -t proc proc /proc
::sysinit:/bin/busybox mount -t sysfs sys /sys
::sysinit:/bin/busybox --install -s /bin
::askfirst:-/bin/sh
"""

START = """\
#!/bin/sh
exec /sbin/init
"""  # which is not there

# What the shell of the board gets to do. `edu` raises its interrupt when 1 is written to 0x60 of
# its memory, and no driver takes it back; the UART's driver is asked each time and denies.
STORM = """\
#!/bin/sh
read first _ < /sys/bus/pci/devices/0000:00:08.0/resource
exec 3<>/dev/$(ls /sys/bus/pci/devices/0000:00:04.0/tty)
devmem $((first + 0x60)) 32 1
sleep 60
"""
CRASH = bytes.fromhex(
    "31 ff"  # xor edi, edi
    "8b 07"  # mov eax, [rdi]
)
# The UART receives 64 characters while its interrupt is off, as from a sender that floods a busy
# CPU: in loopback the sender is the UART itself. Its FIFO holds 16.
FLOOD = bytes.fromhex(
    "b8 ac 00 00 00 bf 03 00 00 00 0f 05"  # iopl(3)
    "66 ba f9 03 ec 88 c7"  # mov dx, 0x3f9 (IER); in al, dx; mov bh, al
    "30 c0 ee"  # xor al, al; out dx, al
    "66 ba fc 03 ec 88 c3"  # mov dx, 0x3fc (MCR); in al, dx; mov bl, al
    "0c 10 ee"  # or al, 0x10 (loop); out dx, al
    "66 ba f8 03 b0 78 b9 40 00 00 00"  # mov dx, 0x3f8; mov al, 'x'; mov ecx, 64
    "ee e2 fd"  # out dx, al; loop -1
    "66 ba fc 03 88 d8 ee"  # MCR as before
    "66 ba f9 03 88 f8 ee"  # IER as before
    "b8 3c 00 00 00 31 ff 0f 05"  # exit(0)
)


def kernel() -> Path | None:
    """Return the newest cloud kernel that can be read."""
    found = [path for folder in KERNELS for path in folder.glob("vmlinuz-*-cloud-amd64")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def missing() -> str:
    """Return what to install for the board, "" if it is all there."""
    if platform.machine() != "x86_64":
        return "needs an amd64 machine: the board runs its BusyBox"
    if shutil.which(QEMU) is None or not BUSYBOX.exists():
        return "apt install qemu-system-x86 busybox-static"
    if kernel() is None:
        return "no vmlinuz-*-cloud-amd64: make debian-packages"
    return ""


def linux_board(
    *arguments: str | Path, line: str = "", initramfs: Path | None
) -> Sequence[str | Path]:
    """Return how QEMU is called; `line` is added to the kernel's command line."""
    found = kernel()
    assert found is not None
    called = [QEMU, *HARDWARE, "-kernel", found, "-append", f"{COMMAND_LINE} {line}".strip()]
    if initramfs is not None:
        called += ["-initrd", initramfs]
    return [*called, *arguments]


def make_initramfs() -> bytes:
    """Return a cpio archive: BusyBox and what breaks the board."""
    folders = ["bin", "dev", "etc", "proc", "sys"]
    files = {
        "bin/busybox": BUSYBOX.read_bytes(),
        "bin/crash": _program(CRASH),
        "bin/flood": _program(FLOOD),
        "bin/start": START.encode(),
        "bin/storm": STORM.encode(),
        "etc/inittab": INITTAB.encode(),
    }
    links = {"init": "bin/busybox", "bin/sh": "busybox"}
    members = [_member(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    members += [_member(name, stat.S_IFREG | 0o755, body) for name, body in files.items()]
    members += [_member(name, stat.S_IFLNK | 0o777, to.encode()) for name, to in links.items()]
    members += [_member("dev/console", stat.S_IFCHR | 0o600, b"", major=5, minor=1)]
    return b"".join(members) + _member("TRAILER!!!", 0, b"")


def _member(name: str, mode: int, body: bytes, *, major: int = 0, minor: int = 0) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(body), 0, 0, major, minor, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(body)


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 4)


def _program(code: bytes) -> bytes:
    """Return an ELF file for x86-64: one segment that holds `code` and nothing else."""
    base, start = 0x400000, 64 + 56
    head = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH",
        b"\x7fELF", 2, 1, 1, 0, 0, 2, 62, 1, base + start, 64, 0, 0, 64, 56, 1, 64, 0, 0,
    )  # fmt: skip
    size = start + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return head + segment + code
