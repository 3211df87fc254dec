from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from serialwatch_drivers import find
from serialwatch_drivers.command import open_command
from serialwatch_drivers.device import DeviceName, parse_device, split_options
from serialwatch_drivers.find import find_opener
from serialwatch_drivers.port import PortOpenError
from serialwatch_drivers.pty import open_pty
from serialwatch_drivers.replay import open_replay
from serialwatch_drivers.tty import open_tty


@pytest.fixture
def lab_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of a lab whose driver cannot be imported."""
    broken = EntryPoint("jlink", "lab_drivers.jlink:open_jlink", find.GROUP)
    find._installed.cache_clear()
    monkeypatch.setattr(find, "entry_points", lambda group: [broken])
    yield
    find._installed.cache_clear()


@pytest.mark.parametrize(
    ("device", "scheme", "body"),
    [
        ("/dev/ttyUSB0", "tty", "/dev/ttyUSB0"),
        (
            "/dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0",
            "tty",
            "/dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0",
        ),
        ("ttyUSB0", "tty", "ttyUSB0"),
        ("./a:b", "tty", "./a:b"),
        ("", "tty", ""),
        ("usb:1-2.3:1.0", "usb", "1-2.3:1.0"),
        ("usbid:303a:1001:7C:DF:A1", "usbid", "303a:1001:7C:DF:A1"),
        ("pty:", "pty", ""),
        ("pty:/run/x", "pty", "/run/x"),
        ("rfc2217://lab:4000", "rfc2217", "//lab:4000"),
        ("command:qemu -serial 'a b'", "command", "qemu -serial 'a b'"),
        ("replay:/a:b?loop=1", "replay", "/a:b?loop=1"),
    ],
)
def test_a_device_is_a_path_or_a_scheme_and_its_body(device: str, scheme: str, body: str) -> None:
    assert parse_device(device) == DeviceName(scheme, body)


@pytest.mark.parametrize(
    ("device", "body", "chosen"),
    [
        ("replay:boot.log", "boot.log", {"bit_rate": 115200, "loop": 0}),
        ("replay:boot.log?", "boot.log", {"bit_rate": 115200, "loop": 0}),
        ("replay:boot.log?loop=1", "boot.log", {"bit_rate": 115200, "loop": 1}),
        ("replay:a?bit_rate=0&loop=1", "a", {"bit_rate": 0, "loop": 1}),
        ("replay:why?.log?", "why?.log", {"bit_rate": 115200, "loop": 0}),
    ],
)
def test_options_follow_the_last_question_mark(
    device: str, body: str, chosen: dict[str, int]
) -> None:
    assert split_options(device, {"bit_rate": 115200, "loop": 0}) == (body, chosen)


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("replay:a?rate=1", "unknown option 'rate' (known: bit_rate, loop)"),
        ("replay:a?bit_rate=fast", "option bit_rate: 'fast' is not a number from 0 up"),
        ("replay:a?bit_rate=-1", "option bit_rate: '-1' is not a number from 0 up"),
        ("replay:a?bit_rate", "option bit_rate: '' is not a number from 0 up"),
        ("replay:a?bit_rate=²", "option bit_rate: '²' is not a number from 0 up"),
    ],
)
def test_a_wrong_option_is_named(device: str, problem: str) -> None:
    with pytest.raises(PortOpenError) as raised:
        split_options(device, {"bit_rate": 115200, "loop": 0})

    assert str(raised.value) == f"{device}: {problem}"
    assert raised.value.kind == "broken"


def test_every_scheme_has_its_opener() -> None:
    found = {
        device: find_opener(device)
        for device in (
            "/dev/ttyUSB0",
            "usb:1-2:1.0",
            "usbid:1:2:3",
            "pty:",
            "command:x",
            "replay:x",
        )
    }

    assert list(found.values()) == [
        open_tty,
        open_tty,
        open_tty,
        open_pty,
        open_command,
        open_replay,
    ]


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(PortOpenError) as raised:
        find_opener("jtag:0")

    assert raised.value.kind == "broken"
    assert str(raised.value).startswith("jtag:0: no driver for 'jtag' (there are: command, pty, ")


@pytest.mark.usefixtures("lab_driver")
def test_a_driver_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(PortOpenError) as raised:
        find_opener("jlink:123")

    assert raised.value.kind == "broken"
    assert "driver 'jlink' cannot be loaded from 'lab_drivers.jlink:open_jlink'" in str(
        raised.value
    )
