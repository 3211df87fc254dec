from pathlib import Path

import pytest

from serialwatch import config as config_module
from serialwatch.config import (
    Config,
    ResetCommand,
    ResetStep,
    config_to_json,
    load_config,
    run_dir,
    state_dir,
)
from serialwatch.config_file import system_config
from serialwatch.tomlfile import TomlError
from test_bundled import denied_below


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "serialwatch.toml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(TomlError) as caught:
        load_config(written(tmp_path, text))
    return [p.replace(f"{tmp_path}/", "") for p in caught.value.problems]


def test_no_file_and_one_named_port_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", tmp_path / "none.toml")

    config = load_config(None, ["dut1=/dev/ttyUSB0"])

    assert config.port["dut1"].device == "/dev/ttyUSB0"
    assert config.port["dut1"].name == "dut1"
    assert config.port["dut1"].bit_rate == 115200


@pytest.mark.parametrize(("uid", "is_read"), [(1000, False), (0, True)])
def test_a_system_file_that_is_not_for_us_stops_only_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, is_read: bool
) -> None:
    path = tmp_path / "serialwatch.toml"
    monkeypatch.setattr("serialwatch.config_file.SYSTEM_CONFIG", path)
    monkeypatch.setattr(Path, "stat", denied_below(tmp_path, Path.stat))
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)

    assert system_config() == (path if is_read else None)


def test_an_unknown_key_names_file_line_key_and_what_is_known(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[log]\nkeep_days = 3\nkeep_byte = 5\n")

    assert (
        problem
        == "serialwatch.toml:3: log.keep_byte: unknown key; known here: keep_days, keep_bytes"
    )


def test_an_unknown_table_is_told(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[prot.dut1]\ndevice = '/x'\n")

    assert problem.startswith("serialwatch.toml:1: prot: unknown key; known here: daemon, api, log")


def test_a_wrong_type_names_the_port_and_what_is_allowed(tmp_path: Path) -> None:
    told = problems(tmp_path, '[port.dut1]\ndevice = "/x"\nbit_rate = "115k2"\nwrite = "no"\n')

    assert told == [
        "serialwatch.toml:3: port \"dut1\": bit_rate must be a number such as 115200 (bit/s), not '115k2'",
        "serialwatch.toml:4: port \"dut1\": write must be true or false, not 'no'",
    ]


def test_a_missing_device_is_told(tmp_path: Path) -> None:
    assert problems(tmp_path, "[port.dut1]\nbit_rate = 9600\n") == [
        'serialwatch.toml:1: port "dut1": device: missing'
    ]


def test_a_duplicate_port_is_no_toml(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[port.a]\ndevice = "/x"\n[port.a]\ndevice = "/y"\n')

    assert problem.startswith("serialwatch.toml:3: not TOML: ")


def test_two_ports_cannot_have_one_device(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[port.a]\ndevice = "/x"\n[port.b]\ndevice = "/x"\n')

    assert problem == 'serialwatch.toml:4: port "b": device /x is already port "a"'


def test_a_named_port_cannot_double_a_configured_one(tmp_path: Path) -> None:
    path = written(tmp_path, '[port.a]\ndevice = "/x"\n')

    with pytest.raises(TomlError, match="port 'a' is already configured"):
        load_config(path, ["a=/y"])


@pytest.mark.parametrize("text", ["dut1", "=x", "DUT=/x", "a/b=/x"])
def test_a_bad_port_argument_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(TomlError, match="--port"):
        load_config(written(tmp_path, ""), [text])


def test_a_bad_port_name_is_told_with_what_else_is_wrong(tmp_path: Path) -> None:
    told = problems(tmp_path, '[log]\nkeep_days = 0\n[port."../b"]\ndevice = "/x"\n')

    assert [problem.split(": ")[0] for problem in told] == [
        "serialwatch.toml:2",
        "serialwatch.toml:3",
    ]
    assert "port name '../b' must be" in told[1]


def test_an_unknown_table_is_told_where_a_part_of_it_stands(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[log]\nkeep_days = 3\n[prot.dut1]\n[prot.dut2]\n")

    assert problem.startswith("serialwatch.toml:3: prot: unknown key")


def test_a_bad_port_name_is_told(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[port."../x"]\ndevice = "/x"\n')

    assert "port name '../x' must be 1 to 32 of a-z" in problem


def test_a_number_in_dev_is_no_identity(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[port.a]\ndevice = "/dev/ttyUSB0"\n')

    assert problem.startswith('serialwatch.toml:2: port "a": /dev/ttyUSB0 may be another board')


@pytest.mark.parametrize("folder", ["by-id", "by-path"])
def test_a_number_in_dev_is_told_with_the_name_that_the_adapter_has_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(config_module, "LINKS", tmp_path / "serial")
    link = tmp_path / "serial" / folder / "usb-FTDI_A1-if00-port0"
    link.parent.mkdir(parents=True)
    link.symlink_to("/dev/ttyUSB0")
    (link.parent / "usb-FTDI_A2-if00-port0").symlink_to("/dev/ttyUSB1")
    (problem,) = problems(tmp_path, '[port.a]\ndevice = "/dev/ttyUSB0"\n')

    assert f"; use {link.relative_to(tmp_path)}, or say allow_unstable" in problem


@pytest.mark.parametrize(
    "device",
    ["usbid:0403:6001:", "usbid:0403:6001", "usbid:FT4", "usb:", "usb:1-2:1.0-port", "usb:x"],
)
def test_a_usb_name_that_any_adapter_or_none_would_have_is_told_with_its_line(
    tmp_path: Path, device: str
) -> None:
    (told,) = problems(tmp_path, f'[port.a]\ndevice = "{device}"\n')

    assert told.startswith(f'serialwatch.toml:2: port "a": {device}: write usb')


@pytest.mark.parametrize(
    "device", ["usbid:0403:6001:A1:B2", "usb:1-2", "usb:1-2.3:1.0", "usb:1-2.3:1.0-port1"]
)
def test_a_usb_name_that_can_lead_to_one_adapter_is_taken(tmp_path: Path, device: str) -> None:
    config = load_config(written(tmp_path, f'[port.a]\ndevice = "{device}"\n'))

    assert config.port["a"].device == device


def test_resets_are_steps_or_a_command(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            '[port.a]\ndevice = "/x"\nreset = [{rts = true, ms = 100}, {rts = false}]\n'
            '[port.b]\ndevice = "/y"\nreset = {command = ["power", "cycle"]}\n',
        )
    )

    assert config.port["a"].reset == [ResetStep(rts=True, ms=100), ResetStep(rts=False)]
    assert config.port["b"].reset == ResetCommand(command=["power", "cycle"])


def test_a_bad_reset_step_names_its_line(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[port.a]\ndevice = "/x"\nreset = [{volts = 3}]\n')

    assert problem.startswith('serialwatch.toml:3: port "a": reset.0.volts: unknown key')


@pytest.mark.parametrize(("text", "line"), [("[port.c\n", 1), ("\n\nx = \n", 3), ('a = "\n', 1)])
def test_what_is_no_toml_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    (problem,) = problems(tmp_path, text)

    assert problem.startswith(f"serialwatch.toml:{line}: not TOML: ")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match=r"none\.toml: no such file"):
        load_config(tmp_path / "none.toml")


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    text = '[port.a]\ndevice = "/x"\nrts = false\n[[notify]]\ncommand = ["mail"]\n'
    shown = config_to_json(load_config(written(tmp_path, text)))

    assert shown["port"]["a"]["rts"] is False
    assert "dtr" not in shown["port"]["a"]
    assert shown["notify"] == [{"command": ["mail"], "severity": "error"}]


def test_the_agent_is_configured_within_limits(tmp_path: Path) -> None:
    text = (
        '[agent]\nbase_url = "http://x/v1"\nmodel = "m"\ncheap_model = "s"\ntemperature = 0\n'
        "price_in = 0.15\nprice_out = 0.6\ncost_per_day = 2\ntokens_per_day = 0\n"
        "redact_patterns = ['LAB-[0-9]{4}']\nskill_versions = {log-read = \"1.2.0\"}\n"
    )
    agent = load_config(written(tmp_path, text)).agent

    assert (agent.temperature, agent.cost_per_day, agent.tokens_per_day) == (0, 2, 0)
    assert agent.redact_patterns == ["LAB-[0-9]{4}"]
    assert agent.skill_versions == {"log-read": "1.2.0"}
    assert (agent.redact, agent.cache, agent.tokens_per_incident) == (True, False, 48_000)


def test_under_systemd_the_places_are_the_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/sw")
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/sw")
    monkeypatch.setattr("os.geteuid", lambda: 997)

    assert str(state_dir(Config())) == "/var/lib/sw"
    assert str(run_dir(Config())) == "/run/sw"


def test_a_users_own_daemon_uses_the_users_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/u/.state")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert str(state_dir(Config())) == "/home/u/.state/serialwatch"
    assert str(run_dir(Config())) == "/run/user/1000/serialwatch"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[port.a]\ndevice = ""\n', 'port "a": device must be a string that is not empty'),
        ('[port.a]\ndevice = "/x"\nBaud = 3\n', 'port "a": Baud: unknown key; known here: device'),
        ('[[notify]]\ncommand = []\n', "notify.0.command must be an array that is not empty"),
        ('[agent]\nbase_url = "http://x/v1"\n', "agent.base_url needs a model beside it"),
        ("[agent]\ntemperature = 0.7\n", ":2: agent.temperature must be less than or equal to 0.3"),
        ("[agent]\ncontext_tokens = 100\n", "agent.context_tokens must be greater than"),
        ("[agent]\ncache = 1\n", "agent.cache must be true or false, not 1"),
        ("[agent]\nprice_in = -1\n", "agent.price_in must be greater than or equal to 0"),
        ("[agent]\nprice_in = nan\n", "agent.price_in must be a finite number"),
        ("[agent]\ncost_per_day = 3\n", "agent.cost_per_day needs price_in and price_out"),
        ('[agent]\ncheap_model = "x"\n', "agent.cheap_model needs a model beside it"),
        ("[agent]\ncheap_price_in = 1\n", "agent.cheap_price_in needs a cheap_model beside it"),
        ('[agent]\nredact_patterns = ["("]\n', "redact_patterns.0: is no regular expression"),
        ('[agent]\nredact_patterns = ["x*"]\n', "redact_patterns.0: matches nothing at all"),
        ('[agent]\nredact_patterns = ["(a+)+"]\n', "redact_patterns.0: repeats a repeat"),
        ('[agent]\nskill_versions = {log-read = "2"}\n', 'skill_versions.log-read must be a version such as "1.2.0"'),
        ('[agent]\nskill_versions = {"a b" = "1.0.0"}\n', "must be the name of a skill"),
        ('[api]\nlisten = "127.0.0.1:99999"\n', "api.listen must be HOST:PORT such as"),
        ('[api]\ntoken_file = "/does/not/exist"\n', "/does/not/exist: no such file"),
        ('[agent]\nbase_url = "localhost:11434"\nmodel = "x"\n', ":2: agent.base_url must be an address such as"),
        ('[agent]\nbase_url = "ftp://x/v1"\nmodel = "x"\n', "not 'ftp://x/v1'"),
        ('[daemon]\nstate_dir = "state"\n', ":2: daemon.state_dir: must be a path from / on, not 'state'"),
        ('[port.serialwatch]\ndevice = "/x"\n', "port name 'serialwatch' is taken: faults of"),
        ('[daemon]\nrun_dir = "~/run"\n', ":2: daemon.run_dir: must be a path from / on, not '~/run'"),
        ('[port.a]\ndevice = "/x"\nreset = [{}, {ms = 100}]\n', ':3: port "a": reset: no step of it sets'),
        ('[port.a]\ndevice = "tty:/dev/ttyUSB0"\n', "may be another board after a reboot"),
        ('[port.a]\ndevice = "/dev//ttyACM0"\n', "may be another board after a reboot"),
        ('[port.a]\ndevice = "/dev/s/x"\n[port.b]\ndevice = "tty:/dev/s//x"\n', 'is already port "a"'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_words(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text)

    assert told in problem


def test_a_firmware_file_has_a_whole_path(tmp_path: Path) -> None:
    text = '[port.dut1]\ndevice = "/dev/serial/by-id/x"\nelf = "{}"\n'

    assert problems(tmp_path, text.format("build/app.elf")) == [
        "serialwatch.toml:3: port \"dut1\": elf: must be a path from / on, not 'build/app.elf'"
    ]
    good = load_config(written(tmp_path, text.format("/srv/app.elf")))
    assert good.port["dut1"].elf == "/srv/app.elf"


def test_a_board_has_a_plain_name(tmp_path: Path) -> None:
    text = '[port.dut1]\ndevice = "/dev/serial/by-id/x"\nboard = "{}"\n'

    (problem,) = problems(tmp_path, text.format("evk 7"))
    assert problem == (
        'serialwatch.toml:3: port "dut1": board must be a name of 1 to 64 letters, digits, . _ -'
    )
    assert load_config(written(tmp_path, text.format("evk-7"))).port["dut1"].board == "evk-7"
