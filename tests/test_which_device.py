"""Which device is on a port: the same words for the same one, others for another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench_cable import Cable
from bench_usb import UsbBench
from serialwatch.service.which_device import device_words
from serialwatch_drivers.identity import Identity, identify


@dataclass
class Opened:
    """An open device, as far as it is told from others."""

    device: str
    identity: Identity | None


def test_nothing_open_is_no_device() -> None:
    assert device_words(None) == ""


def test_another_pty_under_the_same_link_is_another_device(tmp_path: Path) -> None:
    cable, other = Cable(tmp_path, "a"), Cable(tmp_path, "b")
    try:
        words = [
            device_words(Opened(str(each.path.resolve()), identify(str(each.path))))  # type: ignore[arg-type]
            for each in (cable, cable, other)
        ]
    finally:
        cable.close()
        other.close()

    assert words[0] == words[1] != words[2]


def test_a_remote_line_is_known_by_its_address() -> None:
    assert device_words(Opened("rfc2217://lab2:3001", None)) == "rfc2217://lab2:3001"  # type: ignore[arg-type]


def test_a_usb_adapter_is_known_by_its_serial_number_wherever_it_is(tmp_path: Path) -> None:
    bench = UsbBench(tmp_path)
    bench.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A5")
    bench.plug("ttyUSB7", "1-4:1.0", kind="0403:6001", serial="A5")
    bench.plug("ttyUSB1", "1-3:1.0", kind="0403:6001", serial="B7")
    bench.plug("ttyUSB2", "1-5:1.0")

    def words(tty: str) -> str:
        opened = Opened(f"/dev/{tty}", Identity((5, 9), 188, f"/sys/devices/x/tty/{tty}"))
        return device_words(opened, bench.sysfs)  # type: ignore[arg-type]

    assert words("ttyUSB0") == words("ttyUSB7") == "usb 0403:6001 A5 if0.0"
    assert words("ttyUSB1") == "usb 0403:6001 B7 if0.0"
    assert words("ttyUSB2") == "usb 1a86:7523 in 1-5 if0.0"
    assert words("ttyS0") == "/sys/devices/x/tty/ttyS0"
