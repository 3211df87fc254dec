from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch_drivers.identity import UsbTty, resolve, stable_name, usb_ttys
from serialwatch_drivers.port import PortOpenError


class Bench:
    """A /dev and a /sys with USB adapters in them, laid out as the kernel and udev do."""

    def __init__(self, folder: Path) -> None:
        self.dev = folder / "dev"
        self.sysfs = folder / "sys"
        for name in ("by-id", "by-path"):
            (self.dev / "serial" / name).mkdir(parents=True)
        (self.sysfs / "class/tty").mkdir(parents=True)

    def plug(
        self,
        tty: str,
        interface: str,
        *,
        kind: str = "1a86:7523",
        serial: str = "",
        by_id: str = "",
        port: int = 0,
    ) -> str:
        vendor, product = kind.split(":")
        usb_device = self.sysfs / "devices/pci0000:00/usb1" / interface.partition(":")[0]
        folder = usb_device / interface
        node = folder if tty.startswith("ttyACM") else folder / tty
        node.mkdir(parents=True, exist_ok=True)
        (usb_device / "idVendor").write_text(f"{vendor}\n")
        (usb_device / "idProduct").write_text(f"{product}\n")
        if serial:
            (usb_device / "serial").write_text(f"{serial}\n")
        number = int(interface.rpartition(".")[2])
        (folder / "bInterfaceNumber").write_text(f"{number:02x}\n")
        if node is not folder:
            (node / "port_number").write_text(f"{port}\n")
        (node / "tty" / tty).mkdir(parents=True)
        (node / "tty" / tty / "device").symlink_to(node)
        (self.sysfs / "class/tty" / tty).symlink_to(node / "tty" / tty)
        device = self.dev / tty
        device.touch()
        place = interface.partition("-")[2]
        (self.dev / f"serial/by-path/pci-0000:00:14.0-usb-0:{place}-port{port}").symlink_to(device)
        if by_id:
            link = self.dev / "serial/by-id" / by_id
            link.unlink(missing_ok=True)  # udev: the last one wins
            link.symlink_to(device)
        return str(device)

    def name(self, path: str) -> str | None:
        found = stable_name(path, self.dev, self.sysfs)
        return found and found.removeprefix(f"{self.dev}/serial/")

    def find(self, device: str) -> str:
        return resolve(device, self.sysfs, self.dev).removeprefix(f"{self.dev}/")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_adapter_with_a_serial_number_goes_by_its_id(bench: Bench) -> None:
    ftdi = "usb-FTDI_UART_A10K-if00-port0"
    path = bench.plug("ttyUSB0", "1-2:1.0", serial="A10K", by_id=ftdi)

    assert bench.name(path) == f"by-id/{ftdi}"
    assert bench.name(f"{bench.dev}/serial/by-id/{ftdi}") == f"by-id/{ftdi}"


def test_an_adapter_without_a_serial_number_goes_by_its_place(bench: Bench) -> None:
    path = bench.plug("ttyUSB0", "1-2:1.0", by_id="usb-1a86_USB_Serial-if00-port0")

    assert bench.name(path) == "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0"


def test_twins_with_one_link_between_them_go_by_their_places(bench: Bench) -> None:
    link = "usb-Silicon_Labs_CP2102_0001-if00-port0"
    first = bench.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001", by_id=link)
    second = bench.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001", by_id=link)

    assert bench.name(first) == "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0"
    assert bench.name(second) == "by-path/pci-0000:00:14.0-usb-0:3:1.0-port0"


def test_the_ports_of_one_adapter_are_no_twins(bench: Bench) -> None:
    names = [f"usb-FTDI_Quad_FT4-if0{n}-port0" for n in range(2)]
    paths = [bench.plug(f"ttyUSB{n}", f"1-2:1.{n}", serial="FT4", by_id=names[n]) for n in range(2)]

    assert [bench.name(path) for path in paths] == [f"by-id/{name}" for name in names]


def test_without_sysfs_an_adapter_that_lost_its_link_makes_links_doubtful(bench: Bench) -> None:
    link = "usb-1a86_USB_Serial-if00-port0"
    bench.plug("ttyUSB0", "1-2:1.0", by_id=link)
    second = bench.plug("ttyUSB1", "1-3:1.0", by_id=link)
    nowhere = bench.dev / "no-sysfs"

    assert stable_name(second, bench.dev, nowhere) == str(
        bench.dev / "serial/by-path/pci-0000:00:14.0-usb-0:3:1.0-port0"
    )


def test_without_sysfs_a_lone_link_is_believed(bench: Bench) -> None:
    link = "usb-FTDI_UART_A10K-if00-port0"
    path = bench.plug("ttyUSB0", "1-2:1.0", serial="A10K", by_id=link)

    assert stable_name(path, bench.dev, bench.dev / "no-sysfs") == str(
        bench.dev / "serial/by-id" / link
    )


def test_a_device_without_links_has_no_stable_name(bench: Bench) -> None:
    (bench.dev / "ttyS0").touch()

    assert bench.name(f"{bench.dev}/ttyS0") is None
    assert stable_name("/dev/null", Path("/nowhere"), Path("/nowhere")) is None


def test_a_path_is_what_it_is(bench: Bench) -> None:
    assert resolve("/dev/ttyUSB3", bench.sysfs, bench.dev) == "/dev/ttyUSB3"
    assert resolve("tty:/dev/ttyUSB3", bench.sysfs, bench.dev) == "/dev/ttyUSB3"


def test_a_place_leads_to_the_tty_that_is_there_now(bench: Bench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0")
    bench.plug("ttyACM4", "1-2.3:1.0", kind="303a:1001")

    assert bench.find("usb:1-2.3:1.0") == "ttyACM4"
    assert bench.find("usb:1-2:1.0") == "ttyUSB0"
    assert bench.find("usb:1-2") == "ttyUSB0"


def test_an_identity_leads_to_the_adapter_wherever_it_is_plugged_in(bench: Bench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench.plug("ttyUSB1", "1-3:1.0", kind="0403:6001", serial="A2")

    assert bench.find("usbid:0403:6001:A2") == "ttyUSB1"


def test_a_serial_number_may_hold_colons_and_hex_may_be_large(bench: Bench) -> None:
    bench.plug("ttyACM0", "1-2:1.0", kind="303a:1001", serial="7C:DF:A1:E0:00:00")
    bench.plug("ttyACM1", "1-3:1.0", kind="303a:1001", serial="7C:DF:A1:E0:00")

    assert bench.find("usbid:303A:1001:7C:DF:A1:E0:00:00") == "ttyACM0"
    assert bench.find("usbid:303A:1001:7C:DF:A1:E0:00") == "ttyACM1"


def test_the_interface_number_chooses_among_several_ttys_of_an_adapter(bench: Bench) -> None:
    for number in range(4):
        bench.plug(f"ttyUSB{number}", f"1-2:1.{number}", kind="0403:6011", serial="FT4")

    assert bench.find("usbid:0403:6011:FT4:2") == "ttyUSB2"
    assert bench.find("usbid:0403:6011:FT4:02") == "ttyUSB2"


@pytest.mark.parametrize(
    ("device", "kind", "problem"),
    [
        ("usb:9-9:1.0", "absent", "no such USB adapter is plugged in"),
        ("usb:1-2", "broken", "this name fits several ttys: ttyUSB0 (usb:1-2:1.0), ttyUSB1"),
        ("usbid:0403:6011:OTHER", "absent", "no such USB adapter is plugged in"),
        ("usbid:0403:6011:FT4", "broken", "this name fits several ttys"),
        ("usbid:0403:6011:", "broken", "an empty serial number fits any adapter"),
        ("usbid:0403:6011", "broken", "an empty serial number fits any adapter"),
        ("usbid:FT4", "broken", "write usbid:VID:PID:SERIAL"),
        ("usbid:", "broken", "write usbid:VID:PID:SERIAL"),
        ("usb:", "absent", "no such USB adapter is plugged in"),
    ],
)
def test_a_name_that_leads_nowhere_says_why(
    bench: Bench, device: str, kind: str, problem: str
) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="0403:6011", serial="FT4")
    bench.plug("ttyUSB1", "1-2:1.1", kind="0403:6011", serial="FT4")

    with pytest.raises(PortOpenError) as raised:
        bench.find(device)

    assert raised.value.kind == kind
    assert problem in str(raised.value)


def test_an_adapter_without_a_serial_number_is_never_met_by_identity(bench: Bench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="1a86:7523")

    with pytest.raises(PortOpenError) as raised:
        bench.find("usbid:1a86:7523::0")

    assert raised.value.kind == "absent"


def test_a_tty_of_a_usb_adapter_is_described(bench: Bench) -> None:
    bench.plug("ttyUSB3", "1-2.4:1.1", kind="0403:6010", serial="B7", port=1)

    assert usb_ttys(bench.sysfs) == [UsbTty("ttyUSB3", "1-2.4:1.1", "0403", "6010", "B7", 1, 1)]
