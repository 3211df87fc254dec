"""`config init`: what it finds on a PC, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bench_cli import Cli
from bench_usb import UsbBench
from serialwatch.cli import config_init
from serialwatch.cli.config_init import config_text, find_adapters
from serialwatch.config import load_config

FTDI = "usb-FTDI_UART_A1-if00-port0"


@pytest.fixture
def usb(tmp_path: Path) -> UsbBench:
    """A PC without an adapter."""
    return UsbBench(tmp_path / "pc")


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], usb: UsbBench,
        monkeypatch: pytest.MonkeyPatch) -> Cli:  # fmt: skip
    """Run commands on that PC."""
    monkeypatch.setattr(config_init, "find_adapters", lambda: find_adapters(tmp_path / "pc"))
    return Cli(tmp_path / "sw", capsys)


def say(usb: UsbBench, place: str, **words: str) -> None:
    for name, text in words.items():
        (usb.sysfs / "devices/pci0000:00/usb1" / place / name).write_text(text)


def test_adapters_are_named_by_kind_and_numbered_by_place(tmp_path: Path, usb: UsbBench) -> None:
    usb.plug("ttyUSB1", "1-4:1.0", kind="0403:6001", serial="B2", by_id="usb-FTDI_B2-if00-port0")
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id=FTDI)
    usb.plug("ttyACM0", "1-3:1.0", kind="303a:1001", serial="E5", by_id="usb-Espressif_E5-if00")
    usb.plug("ttyUSB2", "1-5:1.0", kind="dead:beef", serial="Z", by_id="usb-Z-if00-port0")

    found = [(each.name, each.tty) for each in find_adapters(tmp_path / "pc")]

    assert found == [
        ("ftdi1", "ttyUSB0"), ("esp", "ttyACM0"), ("ftdi2", "ttyUSB1"), ("usb", "ttyUSB2"),
    ]  # fmt: skip


def test_a_device_is_named_so_that_the_daemon_takes_it(tmp_path: Path, usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id=FTDI)
    usb.plug("ttyUSB1", "1-3:1.0", by_id="usb-1a86_USB_Serial-if00-port0")  # no serial number

    devices = [each.device for each in find_adapters(tmp_path / "pc")]

    assert devices == [
        f"/dev/serial/by-id/{FTDI}",
        "/dev/serial/by-path/pci-0000:00:14.0-usb-0:3:1.0-port0",
    ]


def test_without_udev_an_adapter_goes_by_its_place(tmp_path: Path, usb: UsbBench) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", serial="A1")
    for link in (usb.dev / "serial/by-path").iterdir():
        link.unlink()

    assert [each.device for each in find_adapters(tmp_path / "pc")] == ["usb:1-2:1.0-port0"]


def test_without_sysfs_udevs_links_are_enough(tmp_path: Path) -> None:
    folder = tmp_path / "pc/dev/serial/by-path"
    folder.mkdir(parents=True)
    (tmp_path / "pc/dev/ttyUSB3").touch()
    (folder / "platform-1-port0").symlink_to("../../ttyUSB3")

    (found,) = find_adapters(tmp_path / "pc")

    assert (found.name, found.device) == ("usb", "/dev/serial/by-path/platform-1-port0")


def test_what_is_written_passes_the_check_and_names_the_ports(
    tmp_path: Path, usb: UsbBench, cli: Cli
) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id=FTDI)
    say(usb, "1-2", manufacturer="FTDI\n", product="FT232R \x1b[2J]\n[port.evil]\n")
    usb.plug("ttyACM1", "1-4:1.0", kind="1546:01a8", serial="G", by_id="usb-u-blox-if00")
    path = tmp_path / "new/serialwatch.toml"
    told = cli("config", "init", str(path))
    checked = cli("config", "check", str(path))
    config = load_config(path)

    assert (told.code, checked.code) == (0, 0), checked.err
    assert f"{path}: 1 port: ftdi" in told.out
    assert f"  serialwatch run -c {path}\n" in told.out
    assert list(config.port) == ["ftdi"]
    assert config.port["ftdi"].device == f"/dev/serial/by-id/{FTDI}"
    text = path.read_text()
    assert "\x1b" not in text
    assert "# Left out: /dev/serial/by-id/usb-u-blox-if00" in text
    assert "a satellite receiver" in told.out
    assert "# line_errors = false" in text, "every key is explained"
    assert stat.S_IMODE(path.stat().st_mode) & 0o400


def test_a_pc_without_an_adapter_gets_one_to_fill_in(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "serialwatch.toml"
    told = cli("config", "init", "-c", str(path))

    assert "no adapter is plugged in" in told.out
    assert cli("config", "check", str(path)).code == 0
    assert load_config(path).port == {}


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "serialwatch.toml"
    path.write_text("# mine\n")
    kept = cli("config", "init", str(path))
    before = path.read_text()
    forced = cli("config", "init", str(path), "--force")

    assert (kept.code, before) == (1, "# mine\n")
    assert kept.err == f"serialwatch: {path}: is there already: --force writes over it\n"
    assert forced.code == 0
    assert "# mine" not in path.read_text()


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "serialwatch.toml"
    path.symlink_to("/nowhere")

    assert cli("config", "init", str(path)).code == 1
    assert path.is_symlink()


def test_it_can_be_printed_and_told_as_json(tmp_path: Path, usb: UsbBench, cli: Cli) -> None:
    usb.plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id=FTDI)
    printed = cli("config", "init", "-")
    told = json.loads(cli("config", "init", "-", "--json").out)

    assert told["toml"] == printed.out == config_text(find_adapters(tmp_path / "pc"))
    assert [port["name"] for port in told["ports"]] == ["ftdi"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").touch()
    told = cli("config", "init", str(tmp_path / "file/serialwatch.toml"))

    assert told.code == 1
    assert ": cannot be written: " in told.err


@pytest.mark.parametrize("uid", [0, 1000])
def test_it_goes_where_run_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, uid: int
) -> None:
    system = tmp_path / "etc/serialwatch.toml"
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", system)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    told = cli("config", "init")
    place = tmp_path / "own/serialwatch/serialwatch.toml" if uid else system

    assert place.exists(), told.err
    assert told.out.endswith("  serialwatch config check\n  serialwatch run\n")
    assert cli("config", "check").out.startswith(f"{place}: good")


def test_a_users_own_configuration_goes_before_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = tmp_path / "etc/serialwatch.toml", tmp_path / "serialwatch/serialwatch.toml"
    system.parent.mkdir()
    system.write_text("[log]\nkeep_days = 7\n")
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", system)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    without = load_config(None).log.keep_days
    own.parent.mkdir()
    own.write_text("[log]\nkeep_days = 8\n")
    with_own = load_config(None).log.keep_days
    monkeypatch.setattr("os.geteuid", lambda: 0)

    assert (without, with_own) == (7, 8)
    assert load_config(None).log.keep_days == 7, "root's is the system's"
