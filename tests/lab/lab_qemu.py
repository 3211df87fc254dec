"""QEMU as the lab's PC: its power, its USB sockets, and what its adapters were told to do."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QEMU = "qemu-system-x86_64"
START_LIMIT_S = 20.0
QMP_LIMIT_S = 20.0
COMMAND_LINE = (
    "root=/dev/vda rw console=ttyS0 quiet fsck.mode=skip mitigations=off audit=0 "
    "random.trust_cpu=on tsc=unstable no_timer_check nokaslr cryptomgr.notests"
)

# FTDI's request to set modem lines: the low byte is their state, the high one says which are meant.
_SET_MODEM_LINES = re.compile(
    r"@(?P<at>\d+\.\d+):usb_serial_handle_control .*control 0x4001, value 0x(?P<value>[\da-f]+)"
)
_DTR, _RTS = 0x01, 0x02
_RESET = b"control 0x4000, value 0x0\n"


class LabError(Exception):
    """The lab itself does not work: no figure can be had."""


@dataclass(frozen=True, slots=True)
class ModemLines:
    """What an adapter was told to do with its modem lines; None: leave one alone."""

    at_s: float  # time.time() of this machine
    dtr: bool | None
    rts: bool | None


class Qemu:
    """A PC with the kernel in `image` and the disk in `folder`, which takes sockets and logs too.

    Each name in `boards` is a serial cable that an adapter can be plugged onto.
    """

    def __init__(self, image: Path, folder: Path, boards: Sequence[str]) -> None:
        self.folder = folder
        self._image = image
        self._boards = tuple(boards)
        self._adapters: dict[str, dict[str, Any]] = {}  # that are plugged in, by their names
        self._stderr = folder / "qemu.log"
        self._starts = 0
        self._start()

    def close(self) -> None:
        """Switch it off."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> None:
        self._starts += 1
        trace = self.folder / f"trace-{self._starts}.log"
        with self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                _arguments(self._image, self.folder, trace, self._boards, self._adapters),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        try:
            self._qmp = self.connect("qmp")
            self._answers = self._qmp.makefile("rb")
            self._answers.readline()  # its greeting
            self._command("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """See that it runs.

        Raises:
            LabError: it has ended.

        """
        if self._process.poll() is not None:
            said = self._stderr.read_text(errors="replace")
            raise LabError(f"QEMU ended with {self._process.returncode}: {said}")

    def connect(self, name: str) -> socket.socket:
        """Return a connection to one of its sockets."""
        deadline = time.monotonic() + START_LIMIT_S
        path = str(self.folder / f"{name}.sock")
        while True:
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(QMP_LIMIT_S)
            if link.connect_ex(path) == 0:
                return link
            link.close()
            self.check()
            if time.monotonic() > deadline:
                raise LabError(f"{path}: QEMU does not listen")
            time.sleep(0.02)

    def power_cycle(self) -> float:
        """Cut its power for a moment; return when it is back, as time.monotonic().

        What is plugged in stays, connections end. (A reset of QEMU 7.2 takes minutes in the end:
        it keeps what it has translated of the kernel, and the next one is unpacked over that.)
        """
        self.close()
        for path in self.folder.glob("*.sock"):
            path.unlink()
        at_s = time.monotonic()
        self._start()
        return at_s

    def plug(self, adapter: str, board: str, port: str, serial: str) -> float:
        """Plug in an FTDI adapter called `adapter`; return when, as time.monotonic().

        `port` is a socket of the PC such as 1, or of a hub such as 4.1; `serial` is the adapter's
        serial number.
        """
        at_s = time.monotonic()
        device = {
            "driver": "usb-serial", "id": adapter, "chardev": board, "serial": serial,
            "bus": "xhci.0", "port": port, "always-plugged": True,
        }  # fmt: skip
        self._command("device_add", **device)
        self._adapters[adapter] = device
        return at_s

    def plug_hub(self, port: str) -> None:
        """Plug in a hub of eight sockets, called `hub`."""
        self._command("device_add", driver="usb-hub", id="hub", bus="xhci.0", port=port)

    def is_quiet(self, board: str) -> bool:
        """Tell whether nothing more comes from a board that was switched off."""
        for chardev in self._command("query-chardev"):
            if chardev["label"] == board:
                return str(chardev["filename"]).startswith("disconnected")
        raise LabError(f"{board}: no such cable")

    def pull(self, device: str) -> float:
        """Pull out an adapter or the hub; return when, as time.monotonic().

        The boards behind it must be quiet: QEMU 7.2 crashes on a byte for an adapter that it is
        about to take away.
        """
        at_s = time.monotonic()
        self._command("device_del", id=device)
        if device in self._adapters:
            del self._adapters[device]
        else:  # the hub, and what is plugged into it
            self._adapters = {
                name: each for name, each in self._adapters.items() if "." not in each["port"]
            }
        return at_s

    def resets(self) -> int:
        """Return how often its driver has reset an adapter: at an open, which empties it."""
        return sum(path.read_bytes().count(_RESET) for path in self._traces())

    def modem_lines(self, since_s: float) -> list[ModemLines]:
        """Return what the adapters were told since a time.time(), oldest first."""
        found = []
        told = "".join(path.read_text(errors="replace") for path in self._traces())
        for match in _SET_MODEM_LINES.finditer(told):
            at_s, value = float(match["at"]), int(match["value"], 16)
            if at_s >= since_s:
                dtr = bool(value & _DTR) if value & _DTR << 8 else None
                rts = bool(value & _RTS) if value & _RTS << 8 else None
                found.append(ModemLines(at_s, dtr, rts))
        return found

    def _traces(self) -> list[Path]:
        return [self.folder / f"trace-{n}.log" for n in range(1, self._starts + 1)]

    def _command(self, name: str, **arguments: Any) -> Any:
        request = {"execute": name, "arguments": arguments}
        self._qmp.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line = self._answers.readline()
            if not line:
                self.check()
                raise LabError("QEMU has closed its control socket")
            answer = json.loads(line)
            if "error" in answer:
                raise LabError(f"{name} {arguments}: {answer['error']['desc']}")
            if "return" in answer:  # else an event
                return answer["return"]


def _arguments(
    image: Path,
    folder: Path,
    trace: Path,
    boards: Sequence[str],
    adapters: Mapping[str, Mapping[str, Any]],
) -> list[str | os.PathLike[str]]:
    def listening(name: str) -> str:
        return f"socket,id={name},path={folder / name}.sock,server=on,wait=off"

    cables = [word for board in boards for word in ("-chardev", listening(board))]
    plugged = [word for each in adapters.values() for word in ("-device", json.dumps(each))]
    return [
        # /dev/kvm may be there and not work (a nested guest that never starts): emulate always.
        QEMU, "-accel", "tcg,thread=multi", "-cpu", "Nehalem,+rdrand", "-smp", "2", "-m", "1024",
        "-nodefaults", "-display", "none", "-msg", "timestamp=on",
        "-kernel", image / "vmlinuz", "-initrd", image / "initrd", "-append", COMMAND_LINE,
        "-drive", f"file={folder / 'disk'},format=raw,if=virtio,cache=unsafe",
        "-device", "virtio-rng-pci",
        "-serial", f"file:{folder / 'console.log'}",
        "-qmp", f"unix:{folder / 'qmp.sock'},server=on,wait=off",
        "-device", "virtio-serial-pci",
        "-chardev", listening("agent"),
        "-device", "virtserialport,chardev=agent,name=lab",
        "-device", "qemu-xhci,id=xhci,addr=8",
        "-trace", "usb_serial_handle_control", "-D", trace,
        *cables,
        *plugged,
    ]  # fmt: skip
