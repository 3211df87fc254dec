"""`install` and `uninstall`: below a folder of their own, as a package would be made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench_cli import Cli, Result
from bench_usb import UsbBench
from serialwatch.bundled import bundled_dir
from serialwatch.cli import install as module
from serialwatch.cli import install_steps
from serialwatch.cli.errors import CliError
from serialwatch.config import load_config
from serialwatch.store.state_dir import StateLock

SHIPPED = bundled_dir("systemd")
UNIT = "etc/systemd/system/serialwatch.service"
RULES = "etc/udev/rules.d/60-serialwatch.rules"
CONFIG = "etc/serialwatch/serialwatch.toml"
FILES = {
    "usr/lib/sysusers.d/serialwatch.conf": "serialwatch.sysusers",
    "usr/lib/tmpfiles.d/serialwatch.conf": "serialwatch.tmpfiles",
    UNIT: "serialwatch.service",
    RULES: "60-serialwatch.rules",
}


class Pc:
    """A PC in a folder."""

    def __init__(self, root: Path, cli: Cli) -> None:
        self.root = root
        self._cli = cli

    def __call__(self, *args: str) -> Result:
        """Run a command for it."""
        return self._cli(*args, "--root", str(self.root))

    def steps(self, *args: str) -> dict[str, str]:
        """Return what was done, by place."""
        told = json.loads(self(*args, "--json").out)
        return {step["what"]: step["do"] for step in told["steps"]}

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in self.root.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "sw", capsys)


@pytest.fixture
def pc(tmp_path: Path, cli: Cli) -> Pc:
    (tmp_path / "pc").mkdir()
    return Pc(tmp_path / "pc", cli)


def test_every_file_is_put_where_it_belongs(pc: Pc) -> None:
    told = pc("install")
    files = pc.files()

    assert told.code == 0, told.err
    assert set(files) == {*FILES, CONFIG}
    for place, name in FILES.items():
        assert files[place] == (SHIPPED / name).read_text()
        assert (pc.root / place).stat().st_mode & 0o777 == 0o644
    assert load_config(pc.root / CONFIG).port == {}


def test_a_dry_run_tells_the_same_and_does_nothing(pc: Pc) -> None:
    told = pc("install", "--dry-run")
    files = pc.files()
    dry = pc.steps("install", "--dry-run")

    assert (told.code, files) == (0, {})
    assert told.out.endswith("Nothing was done: this is what it would do.\n")
    assert dry == pc.steps("install")
    assert set(dry) == {f"/{place}" for place in (*FILES, CONFIG)}


def test_adapters_that_are_plugged_in_are_in_the_configuration(pc: Pc) -> None:
    UsbBench(pc.root).plug("ttyUSB0", "1-2:1.0", kind="0403:6001", serial="A1", by_id="usb-A1")
    pc("install")

    assert load_config(pc.root / CONFIG).port["ftdi"].device == "/dev/serial/by-id/usb-A1"


def test_it_can_be_run_again(pc: Pc) -> None:
    pc("install")
    before = pc.files()
    again = pc.steps("install")

    assert pc.files() == before
    assert set(again.values()) == {"same", "keep"}


def test_an_edited_configuration_is_kept_whatever_is_asked(pc: Pc) -> None:
    pc("install")
    (pc.root / CONFIG).write_text("# mine\n")
    pc("install", "--force")
    pc("uninstall")
    pc("install")

    assert (pc.root / CONFIG).read_text() == "# mine\n"


def test_a_unit_of_another_version_is_replaced_and_kept_beside(pc: Pc) -> None:
    pc("install")
    (pc.root / UNIT).write_text("# of last year\n")
    told = pc("install")

    assert "replace   /etc/systemd/system/serialwatch.service" in told.out
    assert (pc.root / UNIT).read_text() == (SHIPPED / "serialwatch.service").read_text()
    assert (pc.root / f"{UNIT}.old").read_text() == "# of last year\n"


def test_edited_udev_rules_are_kept_unless_forced(pc: Pc) -> None:
    pc("install")
    (pc.root / RULES).write_text("# my boards\n")
    kept = pc.steps("install")[f"/{RULES}"]
    text = (pc.root / RULES).read_text()
    forced = pc.steps("install", "--force")[f"/{RULES}"]

    assert (kept, text, forced) == ("keep", "# my boards\n", "replace")
    assert (pc.root / f"{RULES}.old").read_text() == "# my boards\n"


def test_a_masked_unit_stays_masked(pc: Pc) -> None:
    (pc.root / UNIT).parent.mkdir(parents=True)
    (pc.root / UNIT).symlink_to("/dev/null")
    told = [pc("install").out, pc("uninstall").out]

    assert os.readlink(pc.root / UNIT) == "/dev/null"
    assert all("it is a link to /dev/null" in out for out in told)


def test_what_was_installed_goes_and_what_is_peoples_stays(pc: Pc) -> None:
    pc("install")
    log = pc.root / "var/lib/serialwatch/log/dut1/x.log"
    log.parent.mkdir(parents=True)
    log.write_text("bytes")
    (pc.root / "var/cache/serialwatch").mkdir(parents=True)
    wants = pc.root / "etc/systemd/system/multi-user.target.wants/serialwatch.service"
    wants.parent.mkdir()
    wants.symlink_to("/etc/systemd/system/serialwatch.service")
    told = pc("uninstall")

    assert told.code == 0
    assert set(pc.files()) == {CONFIG, "var/lib/serialwatch/log/dut1/x.log"}
    assert not (pc.root / "var/cache/serialwatch").exists()
    assert not wants.is_symlink()
    assert "keep      /var/lib/serialwatch: logs and database: --purge removes it" in told.out


def test_a_purge_removes_the_rest_and_says_how_much_it_is(pc: Pc) -> None:
    pc("install")
    (pc.root / RULES).write_text("# my boards\n")
    log = pc.root / "var/lib/serialwatch/log/dut1/x.log"
    log.parent.mkdir(parents=True)
    log.write_text("bytes")
    dry = pc("uninstall", "--purge", "--dry-run")
    before = set(pc.files())
    pc("uninstall", "--purge")

    assert log.name in {Path(each).name for each in before}
    assert "remove    /var/lib/serialwatch: logs and database, 5 bytes\n" in dry.out
    assert pc.files() == {}


def test_edited_udev_rules_outlive_a_plain_uninstall(pc: Pc) -> None:
    pc("install")
    (pc.root / RULES).write_text("# my boards\n")
    pc("uninstall")

    assert (pc.root / RULES).exists()


def test_a_purge_while_a_daemon_runs_is_refused(pc: Pc) -> None:
    with StateLock(pc.root / "var/lib/serialwatch"):
        told = pc("uninstall", "--purge")

    assert told.code == 1
    assert "a daemon still runs on it: end that first" in told.err
    assert (pc.root / "var/lib/serialwatch/lock").exists()


def test_logs_that_lie_elsewhere_are_told_and_left(pc: Pc, tmp_path: Path) -> None:
    pc("install")
    (pc.root / CONFIG).write_text(f'[daemon]\nstate_dir = "{tmp_path}/elsewhere"\n')
    (tmp_path / "elsewhere").mkdir()
    told = pc("uninstall", "--purge")

    assert f"{tmp_path}/elsewhere: state_dir of the configuration: remove it" in told.out
    assert (tmp_path / "elsewhere").exists()


def test_where_nothing_is_installed_nothing_is_removed(pc: Pc) -> None:
    told = pc("uninstall")

    assert (told.code, told.out, pc.files()) == (0, "", {})


def test_a_folder_that_cannot_be_written_ends_it_with_the_reason(pc: Pc) -> None:
    (pc.root / "usr").touch()
    told = pc("install")

    assert told.code == 1
    assert "usr/lib/sysusers.d/serialwatch.conf: cannot be " in told.err


def live(monkeypatch: pytest.MonkeyPatch, *, systemd: bool = True) -> None:
    """Let the PC be an ordinary one, whatever this one is. Only for --dry-run."""
    monkeypatch.setattr(module, "has_systemd", lambda: systemd)
    monkeypatch.setattr(module, "_HIDDEN", ())


def test_on_the_pc_itself_the_programs_of_systemd_take_the_files_in_use(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch)
    told = json.loads(cli("install", "--dry-run", "--now", "--json").out)
    ran = [step["what"] for step in told["steps"] if step["do"] == "run"]

    assert ran[:2] == [
        "systemd-sysusers serialwatch.conf",
        "systemd-tmpfiles --create serialwatch.conf",
    ]
    assert ran[-2:] == ["systemctl daemon-reload", "systemctl enable --now serialwatch.service"]


def test_nothing_is_started_or_enabled_that_was_not_asked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch)
    told = json.loads(cli("install", "--dry-run", "--json").out)

    assert not [step for step in told["steps"] if "enable" in step["what"]]
    assert any("systemctl enable --now serialwatch" in words for words in told["next"])


def test_in_a_chroot_systemd_is_not_asked_to_do_anything(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch, systemd=False)
    told = cli("install", "--dry-run")
    refused = cli("install", "--dry-run", "--now")

    assert "systemctl" not in told.out
    assert "systemd-sysusers" in told.out
    assert (refused.code, refused.out) == (1, "")
    assert "--now: there is no systemd here" in refused.err


def test_a_program_that_the_service_cannot_see_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch)
    monkeypatch.setattr(module, "_program", lambda: Path("/home/jo/sw/bin/serialwatch"))
    monkeypatch.setattr(module, "_HIDDEN", ("/home",))
    told = cli("install", "--dry-run")

    assert told.code == 1
    assert told.out.startswith("refuse    /home/jo/sw/bin/serialwatch: the service sees nothing")


def test_who_is_not_root_is_told_the_whole_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(module, "_program", lambda: Path("/opt/serialwatch/bin/serialwatch"))
    for name in ("install", "uninstall"):
        told = cli(name)

        assert told.code == 1
        assert f"`sudo /opt/serialwatch/bin/serialwatch {name}`; with --user" in told.err


def test_a_service_without_a_port_is_not_started(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.toml"
    path.write_text("")
    with pytest.raises(CliError, match="names no port, so nothing was started"):
        module._check_ports(path)
    path.write_text('[port.dut1]\ndevice = "pty:"\n')
    module._check_ports(path)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a user without a session."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_program", lambda: Path("/srv/my tools/serialwatch"))
    return tmp_path


def test_a_user_gets_a_unit_of_their_own(own: Path, cli: Cli) -> None:
    told = cli("install", "--user")
    unit = own / "config/systemd/user/serialwatch.service"
    again = cli("install", "--user", "--json")

    assert told.code == 0, told.err
    assert 'ExecStart="/srv/my tools/serialwatch" run\n' in unit.read_text()
    assert load_config(own / "config/serialwatch/serialwatch.toml")
    assert "systemctl --user enable --now serialwatch" in told.out
    assert {step["do"] for step in json.loads(again.out)["steps"]} == {"same", "keep"}


def test_a_users_unit_goes_and_their_logs_stay_unless_purged(own: Path, cli: Cli) -> None:
    cli("install", "--user")
    (own / "state/serialwatch").mkdir(parents=True)
    (own / "cache/serialwatch").mkdir(parents=True)
    cli("uninstall", "--user")
    cache_is_there = (own / "cache/serialwatch").exists()
    unit_is_there = (own / "config/systemd/user/serialwatch.service").exists()
    state_is_there = (own / "state/serialwatch").exists()
    cli("uninstall", "--user", "--purge")

    assert (unit_is_there, cache_is_there, state_is_there) == (False, False, True)
    assert not (own / "state/serialwatch").exists()
    assert not (own / "config/serialwatch").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="Debian package systemd")
def test_the_users_unit_is_clean(tmp_path: Path) -> None:
    unit = tmp_path / "serialwatch.service"
    text = (SHIPPED / "serialwatch.user.service").read_text()
    unit.write_text(text.replace(str(module.PROGRAM), "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", unit], capture_output=True, text=True,
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip

    assert text.count(str(module.PROGRAM)) == 1
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_program_that_fails_ends_it_with_what_it_said() -> None:
    failing = install_steps.run("sh", "-c", "echo 'no \x1b[2Jbus' >&2; exit 3").do
    missing = install_steps.run("no-such-program-here").do
    assert failing is not None
    assert missing is not None
    with pytest.raises(CliError, match=r"failed with status 3: no \\x1b\[2Jbus"):
        failing()
    with pytest.raises(CliError, match="no such program"):
        missing()


def test_a_link_to_the_program_is_made_and_another_serialwatch_is_left(tmp_path: Path) -> None:
    program, other, place = tmp_path / "new", tmp_path / "other", tmp_path / "bin/serialwatch"
    program.touch()
    other.touch()
    made = install_steps.link(place, program)
    assert made.do is not None
    made.do()
    again = install_steps.link(place, program)
    place.unlink()
    place.symlink_to(tmp_path / "gone")
    over_nothing = install_steps.link(place, program)
    place.unlink()
    place.symlink_to(other)
    kept = install_steps.link(place, program)

    assert [step.verb for step in (made, again, over_nothing, kept)] == [
        "link", "same", "link", "keep",
    ]  # fmt: skip
    assert kept.do is None
