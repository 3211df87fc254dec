"""Adapters that become ports by themselves, and those that must not."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from bench_cable import within_s
from bench_usb import Looks, UsbBench
from serialwatch.capture.discover import Look, look, port_of
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import (
    PORT_NAME,
    Config,
    DiscoverConfig,
    PortConfig,
    config_to_json,
    load_config,
)
from serialwatch.service.discovery import Discovery
from serialwatch.service.faults import Faults
from serialwatch.service.ports import Ports
from serialwatch.store.database import Database
from serialwatch.store.log_writer import LogWriter
from serialwatch.tomlfile import TomlError
from serialwatch_drivers.port import Port

T = TypeVar("T")

FTDI = {"ftdi": DiscoverConfig(usb="0403:*", bit_rate=921600)}
ANY = {"any": DiscoverConfig(usb="*:*")}


@pytest.fixture
def usb(tmp_path: Path) -> UsbBench:
    return UsbBench(tmp_path)


def looked(usb: UsbBench, patterns: dict[str, DiscoverConfig], *taken: str) -> Look:
    return look(patterns, taken, usb.dev.parent, usb.twins)


def named(usb: UsbBench, patterns: dict[str, DiscoverConfig], *taken: str) -> dict[str, str]:
    return {found.name: found.device for found in looked(usb, patterns, *taken).found}


def put(usb: UsbBench, path: str, text: str) -> None:
    file = usb.dev.parent / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


# Which, and what they are called


def test_an_adapter_is_called_after_its_serial_number_wherever_it_is_plugged_in(
    usb: UsbBench,
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A50285BI")
    first = named(usb, FTDI)
    usb.unplug("ttyUSB0")
    usb.plug("ttyUSB3", "1-4.1:1.0", kind="0403:6001", serial="A50285BI")

    assert first == named(usb, FTDI) == {"ftdi-a50285bi": "usbid:0403:6001:A50285BI"}
    assert usb.find("usbid:0403:6001:A50285BI") == "ttyUSB3"


def test_without_a_serial_number_or_with_a_twin_it_is_called_after_its_place(
    usb: UsbBench,
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0")
    usb.plug("ttyUSB1", "1-3.1:1.0", kind="10c4:ea60", serial="0001")
    usb.plug("ttyUSB2", "1-3.2:1.0", kind="10c4:ea60", serial="0001")

    found = named(usb, ANY)
    assert found["any-at-1-2"] == "usb:1-2:1.0-port0"
    assert found["any-at-1-3_1"] == "usb:1-3.1:1.0-port0"
    assert found["any-at-1-3_2"] == "usb:1-3.2:1.0-port0"


def test_the_ttys_of_one_adapter_have_names_that_do_not_depend_on_who_came_first(
    usb: UsbBench,
) -> None:
    usb.plug("ttyUSB1", "1-2:1.1", kind="0403:6010", serial="FT2")
    (usb.sysfs / "devices/pci0000:00/usb1/1-2/bNumInterfaces").write_text(" 2\n")
    alone = named(usb, FTDI)
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6010", serial="FT2")

    assert alone == {"ftdi-ft2-1": "usbid:0403:6010:FT2:1"}
    assert named(usb, FTDI) == {
        "ftdi-ft2-0": "usbid:0403:6010:FT2:0",
        "ftdi-ft2-1": "usbid:0403:6010:FT2:1",
    }


@pytest.mark.parametrize(
    "serial", ["../../etc", "x" * 200, "A B", "a b", "\x1b[2J", "ÄÖÜ", "'\";$("]
)
def test_whatever_an_adapter_calls_itself_its_port_has_a_proper_name(
    usb: UsbBench, serial: str
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial=serial)
    (name,) = named(usb, FTDI)

    assert PORT_NAME.fullmatch(name)


def test_serial_numbers_that_differ_in_case_only_are_two_ports(usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A B")
    usb.plug("ttyUSB1", "1-3:1.0", kind="0403:6001", serial="A-B")

    assert len(named(usb, FTDI)) == 2


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (DiscoverConfig(usb="0403:6001"), True),
        (DiscoverConfig(usb="0403:60*"), True),
        (DiscoverConfig(usb="10c4:*"), False),
        (DiscoverConfig(driver="ftdi_sio"), True),
        (DiscoverConfig(driver="cp210x"), False),
        (DiscoverConfig(serial="A5*"), True),
        (DiscoverConfig(serial="B*"), False),
        (DiscoverConfig(place="1-2.*"), True),
        (DiscoverConfig(place="2-*"), False),
        (DiscoverConfig(usb="0403:*", serial="B*"), False),
        (DiscoverConfig(), False),
    ],
)
def test_all_that_a_pattern_says_must_fit(
    usb: UsbBench, pattern: DiscoverConfig, fits: bool
) -> None:
    usb.plug("ttyUSB0", "1-2.3:1.0", kind="0403:6001", serial="A50", driver="ftdi_sio")

    assert bool(named(usb, {"p": pattern})) == fits


def test_a_port_gets_the_settings_of_its_pattern(usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    (found,) = looked(usb, FTDI).found

    port = port_of(found, FTDI["ftdi"])
    assert (port.name, port.bit_rate, port.dtr, port.rts) == ("ftdi-a1", 921600, None, None)


# What is left alone


def test_nothing_is_found_where_nothing_was_asked_for(usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")

    assert named(usb, {}) == {}
    assert named(usb, FTDI, "ttyUSB0") == {}


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("sys/class/tty/console/active", "tty0 ttyUSB0\n", "the console of this PC's kernel"),
        ("{usb}/product", "SIMCOM LTE modem\n", "something else by its own words (LTE)"),
        ("{usb}/manufacturer", "u-blox AG - www.u-blox.com\n", "something else by its own words"),
        ("{usb}/product", "Sonoff Zigbee 3.0 USB Dongle Plus\n", "something else by its own words"),
        ("{usb}/1-2:1.4/net/wwan0/type", "1\n", "a modem: it is a network card too"),
    ],
)
def test_a_tty_that_is_for_something_else_is_left_alone(
    usb: UsbBench, path: str, text: str, why: str
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    put(usb, path.format(usb="sys/devices/pci0000:00/usb1/1-2"), text)
    seen = looked(usb, FTDI)

    assert seen.found == ()
    assert seen.left_alone["ttyUSB0"].startswith(why)


@pytest.mark.parametrize("driver", ["option", "qcserial", "sierra"])
def test_a_modem_is_left_alone_by_its_driver(usb: UsbBench, driver: str) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", driver=driver)

    assert looked(usb, FTDI).left_alone == {"ttyUSB0": f"a device of driver {driver}"}


@pytest.mark.parametrize(
    ("command", "arguments", "tty", "why"),
    [
        ("agetty", "-\0vt220", 188 << 8, "a login (agetty, pid 912)"),
        ("bash", "-l", 188 << 8, "a login (bash, pid 912)"),
        ("agetty", "ttyUSB0\x00115200", 0, "a login (agetty, pid 912)"),
        ("gpsd", "/dev/ttyUSB0", 0, "gpsd (pid 912)"),
    ],
)
def test_a_tty_that_a_login_or_a_program_has_is_left_alone(
    usb: UsbBench, command: str, arguments: str, tty: int, why: str
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    put(usb, "proc/912/comm", f"{command}\n")
    put(usb, "proc/912/cmdline", f"{command}\0{arguments}\0")
    put(usb, "proc/912/stat", f"912 ({command}) S 1 912 912 {tty} -1 4194560 0\n")

    assert looked(usb, FTDI).left_alone == {"ttyUSB0": why}


def test_an_adapter_that_udev_is_still_busy_with_waits(usb: UsbBench) -> None:
    put(usb, "run/udev/data/c4:64", "")
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    early = looked(usb, FTDI)
    put(usb, "run/udev/data/c188:0", "E:ID_BUS=usb\n")

    assert (early.found, early.is_complete) == ((), False)
    assert list(named(usb, FTDI)) == ["ftdi-a1"]


# While the daemon runs


class Bench:
    """A service's ports and their configuration."""

    def __init__(self, usb: UsbBench, config: Config) -> None:
        listener: Any = SimpleNamespace(on_bytes=lambda *_: None, on_state=lambda *_: None)
        self.ports = Ports(
            usb.dev.parent, cast(Database, None), cast(LogWriter, None), cast(Faults, None),
            listener, cast(Any, None),
        )  # fmt: skip
        self.config = config
        self.added: asyncio.Queue[list[str]] = asyncio.Queue()
        self.path = usb.dev.parent / "discovered.json"
        self.discovery = Discovery(
            self.ports, cast(Any, self.in_thread), self.path, usb.dev.parent, usb.twins
        )

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def look(self) -> list[str]:
        await self.discovery.look(self.config)
        self.config = self.discovery.extended(self.config)
        return sorted(self.config.port)

    async def add(self) -> None:
        before = self.config.port.keys()
        self.config = self.discovery.extended(self.config)
        await self.added.put(sorted(self.config.port.keys() - before))

    def open(self, name: str, device: str, tty: str) -> None:
        config = PortConfig(device=device, name=name)
        port = self.ports._read(config, Ring(name, RingBudget()))
        port.reader.port = cast(Port, SimpleNamespace(device=tty))


async def test_an_adapter_that_is_plugged_in_becomes_a_port_at_once_and_stays_one(
    usb: UsbBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.capture.path_watch.SAFETY_S", 60.0)
    looks = Looks(monkeypatch)
    bench = Bench(usb, Config(discover=FTDI))
    task = asyncio.create_task(bench.discovery.run(lambda: bench.config, bench.add))
    await looks.beyond(0)
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    first = await within_s(5, bench.added.get())
    usb.unplug("ttyUSB0")
    usb.plug("ttyUSB0", "1-3:1.0", kind="0403:6001", serial="A2")
    second = await within_s(5, bench.added.get())
    task.cancel()
    await asyncio.wait([task])

    assert (first, second) == (["ftdi-a1"], ["ftdi-a2"])
    assert sorted(bench.config.port) == ["ftdi-a1", "ftdi-a2"]


@pytest.mark.parametrize(
    "device",
    ["usb:1-2", "usb:1-2:1.0", "usbid:0403:6001:A1", "{dev}/serial/by-id/usb-A1", "{dev}/ttyUSB0"],
)
async def test_what_a_port_of_the_configuration_names_is_not_discovered(
    usb: UsbBench, device: str
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id="usb-A1")
    named_port = PortConfig(name="dut1", device=device.format(dev=usb.dev))
    bench = Bench(usb, Config(discover=FTDI, port={"dut1": named_port}))

    assert await bench.look() == ["dut1"]


async def test_twins_that_a_port_may_mean_are_not_discovered(usb: UsbBench) -> None:
    for number in range(2):
        usb.plug(
            f"ttyUSB{number}", f"1-{number + 2}:1.0", kind="0403:6001", serial="A1", by_id="usb-A1"
        )
    for device in (f"{usb.dev}/serial/by-id/usb-A1", "usbid:0403:6001:A1"):
        named_port = PortConfig(name="dut1", device=device)
        bench = Bench(usb, Config(discover=FTDI, port={"dut1": named_port}))

        assert await bench.look() == ["dut1"]


async def test_a_device_that_a_port_has_open_is_not_discovered(usb: UsbBench) -> None:
    path = usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench = Bench(usb, Config(discover=FTDI))
    bench.open("dut1", "/dev/somewhere-else", path)

    assert await bench.look() == []


async def test_a_reload_keeps_what_its_patterns_still_cover(usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench = Bench(usb, Config(discover=FTDI))
    await bench.look()
    slower = {"ftdi": DiscoverConfig(usb="0403:*", bit_rate=9600)}

    kept = bench.discovery.extended(Config(discover=slower))
    assert kept.port["ftdi-a1"].bit_rate == 9600
    other = bench.discovery.extended(Config(discover={"ftdi": DiscoverConfig(usb="10c4:*")}))
    assert other.port == {}
    assert bench.discovery.extended(Config()).port == {}


async def test_a_discovered_port_is_still_one_after_a_restart_though_it_is_not_there(
    usb: UsbBench,
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    await Bench(usb, Config(discover=FTDI)).look()
    usb.unplug("ttyUSB0")

    again = Bench(usb, Config(discover=FTDI))
    again.discovery.restore()
    assert await again.look() == ["ftdi-a1"]
    assert again.config.port["ftdi-a1"].device == "usbid:0403:6001:A1"

    other = Bench(usb, Config(discover={"ftdi": DiscoverConfig(usb="10c4:*")}))
    other.discovery.restore()
    assert await other.look() == [], "its pattern means others now"


async def test_an_adapter_that_was_not_seen_for_a_month_is_forgotten(usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench = Bench(usb, Config(discover=FTDI))
    await bench.look()
    usb.unplug("ttyUSB0")
    kept = json.loads(bench.path.read_text())
    kept["ports"][0]["seen"] = "2024-02-29"
    bench.path.write_text(json.dumps(kept))

    again = Bench(usb, Config(discover=FTDI))
    again.discovery.restore()
    assert await again.look() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"ports": [{"name": "a"}]}',
        '{"ports": [{"name": "../a", "device": "usb:1-2", "pattern": "ftdi", "tty": "ttyUSB0", '
        '"selects": ["", "", "", ""], "seen": "2026-01-01"}]}',
    ],
)
async def test_a_damaged_list_of_discovered_ports_is_told_and_made_anew(
    usb: UsbBench, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench = Bench(usb, Config(discover=FTDI))
    bench.path.write_text(text)
    bench.discovery.restore()

    assert "discovered.json: ports that were discovered are not known" in caplog.text
    assert await bench.look() == ["ftdi-a1"]
    assert json.loads(bench.path.read_text())["ports"][0]["name"] == "ftdi-a1"


async def test_a_port_that_was_named_since_then_takes_the_place_of_the_discovered_one(
    usb: UsbBench,
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1")
    bench = Bench(usb, Config(discover=FTDI))
    await bench.look()
    mine = PortConfig(name="dut1", device="usbid:0403:6001:A1")

    assert list(bench.discovery.extended(Config(discover=FTDI, port={"dut1": mine})).port) == [
        "dut1"
    ]


async def test_what_is_left_alone_is_told_once(
    usb: UsbBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.service.discovery")
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", driver="option")
    bench = Bench(usb, Config(discover=FTDI))
    for _ in range(3):
        await bench.look()

    assert [record.getMessage() for record in caplog.records] == [
        "ttyUSB0: not opened, though [discover] covers it: it is a device of driver option"
    ]


# The configuration


def test_a_pattern_is_read_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[discover.ftdi]\nusb = "0403:*"\nbit_rate = 9600\nrts = false\n')
    config = load_config(file)

    assert config.discover["ftdi"] == DiscoverConfig(usb="0403:*", bit_rate=9600, rts=False)
    assert config_to_json(config)["discover"]["ftdi"]["usb"] == "0403:*"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[discover.ftdi]\nbit_rate = 9600\n",
            'c.toml:1: discover "ftdi": must say which adapters',
        ),
        ('[discover.ftdi]\nusb = "ftdi"\n', 'must be VENDOR:PRODUCT such as "0403:6001"'),
        ('[discover.Ftdi-2]\nusb = "0403:*"\n', "its name must be 1 to 12 of a-z and 0-9"),
        ('[discover.ftdi]\nvid = "0403"\n', "known here: usb, driver, serial, place"),
        ('[discover]\nusb = "0403:*"\n', "c.toml:2"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_told_with_its_line(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "c.toml").write_text(text)

    with pytest.raises(TomlError) as raised:
        load_config(tmp_path / "c.toml")

    assert told in str(raised.value)
