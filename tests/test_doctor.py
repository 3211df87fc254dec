"""What `serialwatch doctor` finds wrong with a PC, and what it says helps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench_usb import UsbBench
from serialwatch.bundled import bundled_dir
from serialwatch.cli import doctor as doctor_module
from serialwatch.cli.doctor import examine
from serialwatch.cli.main import run_cli
from serialwatch.config import Config, LogConfig, PortConfig
from serialwatch.doctor.machine import Caller, Finding, Machine

SHIPPED = bundled_dir("systemd")
JO = Caller(1000, "jo", frozenset({1000}), frozenset({1000}))
ROOT = Caller(0, "root", frozenset({0}), frozenset({0}))
FTDI = "usb-FTDI_UART_A1-if00-port0"


class Pc:
    """A PC in a folder, healthy until a test does something to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.usb = UsbBench(folder)
        self.put("proc/self/mounts", "udev /dev devtmpfs rw 0 0\n")
        self.put("dev/kmsg", "")
        self.put("run/systemd/timesync/synchronized", "")
        self.ports: dict[str, PortConfig] = {}
        self.more: dict[str, Any] = {}

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def runs(self, pid: int, command: str, *arguments: str, tty: int = 0) -> None:
        self.put(f"proc/{pid}/comm", f"{command}\n")
        self.put(f"proc/{pid}/cmdline", "\0".join((command, *arguments)) + "\0")
        self.put(f"proc/{pid}/stat", f"{pid} ({command}) S 1 1 1 {tty} -1 4194560 0\n")
        (self.root / f"proc/{pid}/fd").mkdir(exist_ok=True)

    def port(self, name: str, device: str, **more: Any) -> None:
        self.ports[name] = PortConfig(name=name, device=device, **more)

    def examined(self) -> list[Finding]:
        options = {
            "root": self.root,
            "caller": ROOT,
            "libc": (2, 36),
            "pyserial": "3.5",
            "is_clock_kept": True,
            "free_bytes": 100 * 10**9,
            "state_dir": self.root / "state",
        }
        machine = Machine(Config(port=self.ports, log=LogConfig()), **(options | self.more))
        return list(examine(machine, SHIPPED))

    def found(self, check: str) -> Finding:
        """Return the worst of what a check found."""
        order = ("good", "note", "wrong")
        found = [f for f in self.examined() if f.check == check]
        return max(found, key=lambda f: order.index(f.state))


@pytest.fixture
def pc(tmp_path: Path) -> Pc:
    made = Pc(tmp_path)
    made.usb.plug(
        "ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id=FTDI, driver="ftdi_sio"
    )
    return made


def test_on_a_good_pc_nothing_is_wrong(pc: Pc) -> None:
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}")
    wrong = [f for f in pc.examined() if f.state != "good"]

    assert [f.check for f in wrong] == ["service"]  # it is not installed, which need not be


# Rights


def test_who_is_not_in_the_group_of_the_device_is_told_how_to_get_in(pc: Pc) -> None:
    pc.more["caller"] = JO
    (pc.root / "dev/ttyUSB0").chmod(0o660)
    os.chown(pc.root / "dev/ttyUSB0", 0, 20)
    found = pc.found("rights")

    assert found.state == "wrong"
    assert "jo may not open /dev/ttyUSB0: it belongs to group dialout" in found.text
    assert found.remedy == "sudo usermod -aG dialout jo, then log in again"


def test_who_was_added_after_the_login_is_told_to_log_in_again(pc: Pc) -> None:
    pc.more["caller"] = Caller(1000, "jo", frozenset({1000}), frozenset({1000, 20}))
    (pc.root / "dev/ttyUSB0").chmod(0o660)
    os.chown(pc.root / "dev/ttyUSB0", 0, 20)

    assert pc.found("rights").remedy == "log in again"


def test_a_member_of_the_group_may_open_the_ports(pc: Pc) -> None:
    pc.more["caller"] = Caller(1000, "jo", frozenset({1000, 20}), frozenset({1000, 20}))
    (pc.root / "dev/ttyUSB0").chmod(0o660)
    os.chown(pc.root / "dev/ttyUSB0", 0, 20)

    assert pc.found("rights") == Finding("rights", "good", "jo may open the serial ports")


# Other programs


def test_modem_manager_that_may_type_into_an_adapter_is_wrong(pc: Pc) -> None:
    pc.runs(812, "ModemManager")
    found = pc.found("modemmanager")
    assert found.state == "wrong"
    assert "may type AT commands into ttyUSB0" in found.text
    assert "60-serialwatch.rules /etc/udev/rules.d/" in found.remedy
    pc.put("run/udev/data/c188:0", "E:ID_MM_DEVICE_IGNORE=1\n")
    pc.put("etc/udev/rules.d/60-serialwatch.rules", (SHIPPED / "60-serialwatch.rules").read_text())

    assert pc.found("modemmanager").state == "good"


def test_brltty_that_took_an_adapter_away_is_wrong(pc: Pc) -> None:
    pc.put("sys/bus/usb/devices/1-4/idVendor", "1a86\n")
    pc.put("sys/bus/usb/devices/1-4/idProduct", "7523\n")
    pc.put(
        "usr/lib/udev/rules.d/85-brltty.rules",
        'ENV{PRODUCT}=="1a86/7523/*", ENV{BRLTTY_BRAILLE_DRIVER}="bm"\n',
    )
    found = pc.found("brltty")

    assert found.state == "wrong"
    assert "1a86:7523 at usb:1-4" in found.text
    assert "apt remove brltty" in found.remedy


def test_brltty_rules_that_take_adapters_are_told_before_they_do(pc: Pc) -> None:
    pc.put("lib/udev/rules.d/85-brltty.rules", 'ENV{PRODUCT}=="10c4/ea60/*", ENV{X}="y"\n')
    before = pc.found("brltty").state
    pc.put("etc/udev/rules.d/60-serialwatch.rules", (SHIPPED / "60-serialwatch.rules").read_text())

    assert before == "note"
    assert pc.found("brltty").state == "good"


@pytest.mark.parametrize(("arguments", "tty"), [(("-", "vt220"), 188 << 8), (("ttyUSB0",), 0)])
def test_a_login_on_a_configured_port_is_wrong(
    pc: Pc, arguments: tuple[str, ...], tty: int
) -> None:
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}")
    pc.runs(912, "agetty", *arguments, tty=tty)
    found = pc.found("logins")

    assert found.state == "wrong"
    assert found.text == "dut1: /dev/ttyUSB0 is a login (agetty, pid 912)"
    assert found.remedy == "sudo systemctl disable --now serial-getty@ttyUSB0.service"


def test_the_console_of_the_kernel_is_no_port_for_a_board(pc: Pc) -> None:
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}")
    pc.put("sys/class/tty/console/active", "tty0 ttyUSB0\n")
    found = pc.found("logins")

    assert found.state == "wrong"
    assert found.remedy == "take console=ttyUSB0 out of the kernel's command line"


@pytest.fixture
def open_null(pc: Pc) -> Pc:
    """A tty with the number of /dev/null, which a process has open."""
    (pc.root / "sys/class/tty/ttyUSB0/dev").write_text("1:3\n")
    for pid, command in ((4121, "picocom"), (77, "serialwatch")):
        pc.runs(pid, command)
        (pc.root / f"proc/{pid}/fd/5").symlink_to("/dev/null")
    return pc


def test_another_program_that_has_a_port_open_is_named_and_the_daemon_is_not(
    open_null: Pc,
) -> None:
    open_null.port("dut1", f"/dev/serial/by-id/{FTDI}")
    open_null.more["daemon_pid"] = 77
    found = open_null.found("openers")

    assert found.state == "wrong"
    assert found.text == f"dut1: /dev/ttyUSB0 is open in picocom (pid 4121, uid {os.getuid()})"


# Adapters


def test_adapters_that_cannot_be_told_apart_are_listed_with_their_places(pc: Pc) -> None:
    link = "usb-1a86_USB_Serial-if00-port0"
    pc.usb.plug("ttyUSB1", "1-3:1.0", by_id=link)
    pc.usb.plug("ttyUSB2", "1-4:1.0", by_id=link)
    found = pc.found("adapters")

    assert found.state == "note"
    assert found.text == "ttyUSB1, ttyUSB2 (1a86:7523) cannot be told apart: no serial number"
    assert found.remedy == (
        "use /dev/serial/by-path/pci-0000:00:14.0-usb-0:3:1.0-port0 and "
        "/dev/serial/by-path/pci-0000:00:14.0-usb-0:4:1.0-port0"
    )


def test_every_adapter_is_listed_with_the_name_to_use_though_others_are_twins(pc: Pc) -> None:
    for number in (1, 2):
        pc.usb.plug(f"ttyUSB{number}", f"1-{number + 3}:1.0", by_id="usb-1a86_USB_Serial-if00")
    found = [(f.state, f.text) for f in pc.examined() if f.check == "adapters"]

    assert found == [
        ("good", f"ttyUSB0 is /dev/serial/by-id/{FTDI}"),
        ("note", "ttyUSB1, ttyUSB2 (1a86:7523) cannot be told apart: no serial number"),
    ]


def test_a_configured_link_that_two_adapters_claim_is_wrong(pc: Pc) -> None:
    pc.usb.plug("ttyUSB1", "1-3:1.0", kind="0403:6001", serial="A1", by_id=FTDI)
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}")
    found = pc.found("ports")

    assert found.state == "wrong"
    assert "2 adapters say that they are this one" in found.text
    assert found.remedy.startswith("use /dev/serial/by-path/pci-0000:00:14.0-usb-0:")
    assert str(pc.root) not in found.text + found.remedy


def test_a_port_that_is_not_plugged_in_is_worth_knowing(pc: Pc) -> None:
    pc.port("dut1", "usbid:0403:6001:GONE")
    pc.port("dut2", "/dev/serial/by-id/usb-gone")

    assert [f.state for f in pc.examined() if f.check == "ports"] == ["note", "note"]


def test_an_ftdi_adapter_that_waits_16_ms_is_told(pc: Pc) -> None:
    pc.put("sys/bus/usb-serial/devices/ttyUSB0/latency_timer", "16\n")
    found = pc.found("latency")

    assert found.state == "note"
    assert "ttyUSB0 (16 ms)" in found.text
    pc.put("sys/bus/usb-serial/devices/ttyUSB0/latency_timer", "1\n")
    assert not [f for f in pc.examined() if f.check == "latency"]


# The machine


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", "run/systemd/container"])
def test_in_a_container_with_its_own_dev_nothing_that_is_plugged_in_appears(
    pc: Pc, mark: str
) -> None:
    pc.put(mark, "docker\n")
    assert pc.found("container").state == "note"
    pc.put("proc/self/mounts", "overlay / overlay rw 0 0\ntmpfs /dev tmpfs rw 0 0\n")
    found = pc.found("container")

    assert found.state == "wrong"
    assert "docker run -v /dev:/dev" in found.remedy


def test_a_clock_that_nobody_keeps_is_told(pc: Pc) -> None:
    (pc.root / "run/systemd/timesync/synchronized").unlink()
    pc.more["is_clock_kept"] = False
    assert pc.found("clock").remedy == "sudo timedatectl set-ntp true"
    pc.runs(300, "chronyd")

    assert "not right yet (chronyd runs)" in pc.found("clock").text


def test_odd_bit_rates_are_told_where_other_programs_cannot_set_them(pc: Pc) -> None:
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}", bit_rate=74880)
    assert not [f for f in pc.examined() if f.check == "bit rates"]
    pc.more["libc"] = (2, 42)
    found = pc.found("bit rates")

    assert found.state == "note"
    assert "glibc 2.42 with pyserial 3.5: other programs cannot set 74880 bit/s" in found.text


@pytest.mark.parametrize(
    ("free", "state"), [(10**8, "wrong"), (5 * 10**9, "note"), (50 * 10**9, "good")]
)
def test_room_on_the_disk_is_compared_with_what_logs_may_take(
    pc: Pc, free: int, state: str
) -> None:
    pc.more["free_bytes"] = free

    assert pc.found("disk").state == state


def test_an_old_unit_is_told_with_what_replaces_it(pc: Pc) -> None:
    unit = pc.put("etc/systemd/system/serialwatch.service", "[Unit]\nDescription=old\n")
    found = pc.found("service")
    assert found.state == "note"
    assert found.remedy == "sudo serialwatch install"
    unit.write_text((SHIPPED / "serialwatch.service").read_text())
    rules = pc.put("etc/udev/rules.d/60-serialwatch.rules", "# mine\n")
    edited = pc.found("service")
    rules.unlink()

    assert f"has your own changes: compare it with {SHIPPED}/60-serialwatch.rules" in edited.text
    assert pc.found("service") == Finding("service", "good", "the unit is of this version")


def test_a_kernel_log_that_cannot_be_read_is_told_with_the_group_that_may(pc: Pc) -> None:
    (pc.root / "dev/kmsg").unlink()
    pc.more["caller"] = JO
    found = pc.found("kernel log")

    assert found.state == "note"
    assert found.remedy == "sudo usermod -aG systemd-journal jo, then log in again"


# The command


def test_it_opens_no_port_and_exits_with_0_if_nothing_is_wrong(
    pc: Pc, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pc.port("dut1", f"/dev/serial/by-id/{FTDI}")
    opened: list[str] = []
    real = os.open

    def noting(path: Any, *more: Any, **named: Any) -> int:
        opened.append(str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", noting)
    monkeypatch.setattr(doctor_module, "machine_of", lambda path: machine(pc))
    code = run_cli(["doctor"])

    shown = capsys.readouterr().out
    assert code == 0
    assert shown.splitlines()[-1].startswith("0 wrong, 1 to know, ")
    assert not [path for path in opened if "ttyUSB" in path]


def test_it_exits_with_1_if_something_is_wrong_and_names_the_remedy(
    pc: Pc, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pc.runs(812, "ModemManager")
    monkeypatch.setattr(doctor_module, "machine_of", lambda path: machine(pc))
    code = run_cli(["doctor", "--json"])

    body = json.loads(capsys.readouterr().out)
    assert (code, body["ok"]) == (1, False)
    (wrong,) = [f for f in body["findings"] if f["state"] == "wrong"]
    assert wrong["check"] == "modemmanager"
    assert wrong["remedy"]


def test_a_broken_configuration_is_one_of_its_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text('[port.dut1]\ndevice = "/dev/ttyUSB0"\n')
    code = run_cli(["doctor", "-c", str(tmp_path / "c.toml")])

    assert code == 1
    assert "c.toml:2" in capsys.readouterr().out


def machine(pc: Pc) -> Machine:
    return Machine(
        Config(port=pc.ports), root=pc.root, caller=ROOT, is_clock_kept=True, free_bytes=10**12,
        state_dir=pc.root / "state",
    )  # fmt: skip
