from __future__ import annotations

from pathlib import Path

import pytest

from bench_usb import UsbBench
from serialwatch_drivers.identity import UsbTty, is_twin, resolve, stable_name, usb_ttys
from serialwatch_drivers.port import PortOpenError


@pytest.fixture
def bench(tmp_path: Path) -> UsbBench:
    return UsbBench(tmp_path)


def test_an_adapter_with_a_serial_number_goes_by_its_id(bench: UsbBench) -> None:
    ftdi = "usb-FTDI_UART_A10K-if00-port0"
    path = bench.plug("ttyUSB0", "1-2:1.0", serial="A10K", by_id=ftdi)

    assert bench.name(path) == f"by-id/{ftdi}"
    assert bench.name(f"{bench.dev}/serial/by-id/{ftdi}") == f"by-id/{ftdi}"


def test_an_adapter_without_a_serial_number_goes_by_its_place(bench: UsbBench) -> None:
    path = bench.plug("ttyUSB0", "1-2:1.0", by_id="usb-1a86_USB_Serial-if00-port0")

    assert bench.name(path) == "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0"


def test_twins_with_one_link_between_them_go_by_their_places(bench: UsbBench) -> None:
    link = "usb-Silicon_Labs_CP2102_0001-if00-port0"
    first = bench.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001", by_id=link)
    second = bench.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001", by_id=link)

    assert bench.name(first) == "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0"
    assert bench.name(second) == "by-path/pci-0000:00:14.0-usb-0:3:1.0-port0"


def test_the_ports_of_one_adapter_are_no_twins(bench: UsbBench) -> None:
    names = [f"usb-FTDI_Quad_FT4-if0{n}-port0" for n in range(2)]
    paths = [bench.plug(f"ttyUSB{n}", f"1-2:1.{n}", serial="FT4", by_id=names[n]) for n in range(2)]

    assert [bench.name(path) for path in paths] == [f"by-id/{name}" for name in names]


def test_without_sysfs_an_adapter_that_lost_its_link_makes_links_doubtful(bench: UsbBench) -> None:
    link = "usb-1a86_USB_Serial-if00-port0"
    bench.plug("ttyUSB0", "1-2:1.0", by_id=link)
    second = bench.plug("ttyUSB1", "1-3:1.0", by_id=link)
    nowhere = bench.dev / "no-sysfs"

    assert stable_name(second, bench.dev, nowhere) == str(
        bench.dev / "serial/by-path/pci-0000:00:14.0-usb-0:3:1.0-port0"
    )


def test_without_sysfs_a_lone_link_is_believed(bench: UsbBench) -> None:
    link = "usb-FTDI_UART_A10K-if00-port0"
    path = bench.plug("ttyUSB0", "1-2:1.0", serial="A10K", by_id=link)

    assert stable_name(path, bench.dev, bench.dev / "no-sysfs") == str(
        bench.dev / "serial/by-id" / link
    )


def test_a_device_without_links_has_no_stable_name(bench: UsbBench) -> None:
    (bench.dev / "ttyS0").touch()

    assert bench.name(f"{bench.dev}/ttyS0") is None
    assert stable_name("/dev/null", Path("/nowhere"), Path("/nowhere")) is None


def test_a_path_is_what_it_is(bench: UsbBench) -> None:
    assert resolve("/dev/ttyUSB3", bench.sysfs, bench.dev) == "/dev/ttyUSB3"
    assert resolve("tty:/dev/ttyUSB3", bench.sysfs, bench.dev) == "/dev/ttyUSB3"


def test_a_place_leads_to_the_tty_that_is_there_now(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0")
    bench.plug("ttyACM4", "1-2.3:1.0", kind="303a:1001")

    assert bench.find("usb:1-2.3:1.0") == "ttyACM4"
    assert bench.find("usb:1-2:1.0") == "ttyUSB0"
    assert bench.find("usb:1-2") == "ttyUSB0"


def test_an_identity_leads_to_the_adapter_wherever_it_is_plugged_in(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench.plug("ttyUSB1", "1-3:1.0", kind="0403:6001", serial="A2")

    assert bench.find("usbid:0403:6001:A2") == "ttyUSB1"


def test_a_serial_number_may_hold_colons_and_hex_may_be_large(bench: UsbBench) -> None:
    bench.plug("ttyACM0", "1-2:1.0", kind="303a:1001", serial="7C:DF:A1:E0:00:00")
    bench.plug("ttyACM1", "1-3:1.0", kind="303a:1001", serial="7C:DF:A1:E0:00")

    assert bench.find("usbid:303A:1001:7C:DF:A1:E0:00:00") == "ttyACM0"
    assert bench.find("usbid:303A:1001:7C:DF:A1:E0:00") == "ttyACM1"


def test_the_interface_number_chooses_among_several_ttys_of_an_adapter(bench: UsbBench) -> None:
    for number in range(4):
        bench.plug(f"ttyUSB{number}", f"1-2:1.{number}", kind="0403:6011", serial="FT4")

    assert bench.find("usbid:0403:6011:FT4:2") == "ttyUSB2"
    assert bench.find("usbid:0403:6011:FT4:02") == "ttyUSB2"


@pytest.mark.parametrize(
    ("device", "kind", "problem"),
    [
        ("usb:9-9:1.0", "absent", "no such USB adapter is plugged in"),
        ("usb:1-2", "broken", "this name fits several ttys: ttyUSB0 (usb:1-2:1.0-port0)"),
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
    bench: UsbBench, device: str, kind: str, problem: str
) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="0403:6011", serial="FT4")
    bench.plug("ttyUSB1", "1-2:1.1", kind="0403:6011", serial="FT4")

    with pytest.raises(PortOpenError) as raised:
        bench.find(device)

    assert raised.value.kind == kind
    assert problem in str(raised.value)


def test_an_adapter_without_a_serial_number_is_never_met_by_identity(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="1a86:7523")

    with pytest.raises(PortOpenError) as raised:
        bench.find("usbid:1a86:7523::0")

    assert raised.value.kind == "absent"


def test_a_tty_of_a_usb_adapter_is_described(bench: UsbBench) -> None:
    bench.plug("ttyUSB3", "1-2.4:1.1", kind="0403:6010", serial="B7", port=1)

    assert usb_ttys(bench.sysfs) == [UsbTty("ttyUSB3", "1-2.4:1.1", "0403", "6010", "B7", 1, 1)]


def test_the_ttys_of_one_interface_are_told_apart_by_their_port(bench: UsbBench) -> None:
    for port in range(2):
        bench.plug(f"ttyUSB{port}", "1-2:1.0", kind="110a:1410", serial="M1", port=port)

    assert bench.find("usb:1-2:1.0-port1") == "ttyUSB1"
    with pytest.raises(PortOpenError, match=r"ttyUSB1 \(usb:1-2:1.0-port1\)"):
        bench.find("usb:1-2:1.0")


CP210X = "usb-Silicon_Labs_CP2102_0001-if00-port0"
CH340 = "usb-1a86_USB_Serial-if00-port0"


def test_a_link_that_two_adapters_claim_is_refused_with_the_places_to_use(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001", by_id=CP210X)
    bench.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001", by_id=CP210X)

    for allow_unstable in (False, True):
        with pytest.raises(PortOpenError) as raised:
            bench.refuse(CP210X, allow_unstable=allow_unstable)
        assert raised.value.kind == "broken"
        assert "2 adapters say that they are this one (serial number '0001')" in str(raised.value)
        assert "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0 or " in str(raised.value)
        assert "by-path/pci-0000:00:14.0-usb-0:3:1.0-port0" in str(raised.value)


def test_when_one_of_two_twins_is_unplugged_the_other_is_not_taken_for_it(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001", by_id=CP210X)
    bench.refuse(CP210X)
    bench.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001", by_id=CP210X)
    with pytest.raises(PortOpenError):
        bench.refuse(CP210X)
    bench.unplug("ttyUSB1")
    bench.link(CP210X, "ttyUSB0")

    for name in (lambda: bench.refuse(CP210X), lambda: bench.find("usbid:10c4:ea60:0001")):
        with pytest.raises(PortOpenError, match="two adapters with serial number '0001'") as raised:
            name()
        assert raised.value.kind == "broken"
        assert "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0" in str(raised.value)
    assert bench.find("usb:1-2") == "ttyUSB0"


def test_of_two_adapters_without_a_serial_number_none_is_met_by_its_link(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", by_id=CH340)
    bench.plug("ttyUSB1", "1-3:1.0", by_id=CH340)
    bench.unplug("ttyUSB1")
    bench.link(CH340, "ttyUSB0")

    with pytest.raises(PortOpenError, match="no serial number, so any of its kind") as raised:
        bench.refuse(CH340)
    assert raised.value.kind == "broken"
    assert "by-path/pci-0000:00:14.0-usb-0:2:1.0-port0, or say allow_un" in str(raised.value)


def test_a_lone_adapter_without_a_serial_number_may_be_allowed(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", by_id=CH340)

    bench.refuse(CH340, allow_unstable=True)


def test_links_that_can_mean_one_adapter_only_and_other_paths_are_fine(bench: UsbBench) -> None:
    names = [f"usb-FTDI_Quad_FT4-if0{n}-port0" for n in range(2)]
    for number, name in enumerate(names):
        bench.plug(f"ttyUSB{number}", f"1-2:1.{number}", serial="FT4", by_id=name)
        bench.refuse(name)
    bench.refuse("usb-not-plugged-in")
    bench.refuse("../by-path/pci-0000:00:14.0-usb-0:2:1.0-port0")


def test_without_sysfs_a_link_is_refused_while_an_adapter_has_none(bench: UsbBench) -> None:
    bench.plug("ttyUSB0", "1-2:1.0", by_id=CH340)
    bench.plug("ttyUSB1", "1-3:1.0", by_id=CH340)
    bench.sysfs = bench.dev / "no-sysfs"

    with pytest.raises(PortOpenError, match="use a link in /dev/serial/by-path"):
        bench.refuse(CH340, allow_unstable=True)


def test_a_twin_is_an_adapter_elsewhere_that_says_the_same(bench: UsbBench) -> None:
    first = bench.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001")
    second = bench.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001")
    other = bench.plug("ttyUSB2", "1-4:1.0", kind="10c4:ea60", serial="0002")

    found = [is_twin(one, first, bench.sysfs, bench.twins) for one in (second, other, first)]

    assert found == [True, False, False]
