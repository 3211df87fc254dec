"""The configuration: one TOML file, checked once, then frozen.

No file is needed: `serialwatch run --port dut1=/dev/...` works with the defaults here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticKnownError

from serialwatch.config_file import found_config, is_system
from serialwatch.records import OWN_PORT
from serialwatch.tomlfile import TomlError, TomlFile, read_toml

LINKS = Path("/dev/serial")  # udev's stable names of ttys
MAX_PORT_NAME = 32  # characters
PORT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
BOARD_NAME = re.compile(r"[\w.-]{1,64}")
PATTERN_NAME = re.compile(r"[a-z0-9]{1,12}")

_STRICT = ConfigDict(extra="forbid")
_UNSTABLE = re.compile(r"/dev/tty(?:USB|ACM)\d+")
_BASE_URL = re.compile(r"https?://[^/\s]+\S*")
_USB_ID = re.compile(r"usbid:[0-9a-fA-F]{4}:[0-9a-fA-F]{4}:[^:].*", re.DOTALL)
_REMOTE = re.compile(r"[a-z0-9]+://(?:\[[0-9a-fA-F:.]+\]|[^][/@:?#\s]+):(\d{1,5})")
_USB_PLACE = re.compile(r"usb:\d+-\d+(?:\.\d+)*(?::\d+\.\d+(?:-port\d+)?)?")


def _bit_rate(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 20_000_000:
        raise ValueError(f"must be a number such as 115200 (bit/s), not {value!r}")
    return value


def _listen(value: str) -> str:
    place = re.fullmatch(r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", value)
    if value and (place is None or int(place[1]) > 65535):
        raise ValueError(
            f'must be HOST:PORT such as "127.0.0.1:9808", or "" for none, not {value!r}'
        )
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value.encode())
    except re.error as exc:
        raise ValueError(f"is no regular expression: {exc}") from exc
    return value


def _secret(value: str) -> str:
    """Check a pattern of `redact_patterns`: it is searched in every line that a model is shown."""
    try:
        pattern = re.compile(value)
    except re.error as exc:
        raise ValueError(f"is no regular expression: {exc}") from exc
    if pattern.match(""):
        raise ValueError("matches nothing at all, so it would hide everything")
    if re.search(r"[*+}]\)+(?:[*+]|\{\d*,)", value):
        raise ValueError("repeats a repeat such as (a+)+, which can take for ever")
    return value


def _version(value: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", value):
        raise ValueError(f'must be a version such as "1.2.0", not {value!r}')
    return value


def _skill_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", value):
        raise ValueError(f"must be the name of a skill such as log-read, not {value!r}")
    return value


def _usb_kind(value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-fA-F*?]{1,4}:[0-9a-fA-F*?]{1,4}", value):
        raise ValueError(f'must be VENDOR:PRODUCT such as "0403:6001" or "0403:*", not {value!r}')
    return value


BitRate = Annotated[Any, AfterValidator(_bit_rate)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Count = Annotated[Whole, Field(ge=0)]
Price = Annotated[Number, Field(ge=0)]
Version = Annotated[str, AfterValidator(_version)]
SkillName = Annotated[str, AfterValidator(_skill_name)]


def _no_key(value: object) -> object:
    raise PydanticKnownError("unexpected_keyword_argument")


def _board(text: str) -> str:
    if text and not BOARD_NAME.fullmatch(text):
        raise ValueError("must be a name of 1 to 64 letters, digits, . _ -")
    return text


@dataclass(frozen=True, slots=True)
class ResetStep:
    """One step of a reset by modem lines: set them, then wait."""

    __pydantic_config__ = _STRICT

    dtr: Flag | None = None
    rts: Flag | None = None
    ms: Annotated[Whole, Field(ge=0, le=10_000)] = 0


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """A program that resets the board, e.g. one that switches its supply."""

    __pydantic_config__ = _STRICT

    command: Annotated[list[str], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One port of the bench."""

    __pydantic_config__ = _STRICT

    device: Annotated[str, Field(min_length=1)]
    name: str = ""  # from the table's name
    bit_rate: BitRate = 115200  # bit/s
    eol: Literal["auto", "lf", "cr"] = "auto"
    dtr: Flag | None = None  # None: as it is found
    rts: Flag | None = None
    write: Flag = True  # False: nobody may send, whatever rights they have
    pty: Literal["read", "write", "off"] = "read"  # what <run_dir>/tty/<port> is for
    reset: list[ResetStep] | ResetCommand = field(default_factory=list)
    ready: Annotated[str, AfterValidator(_regex)] = ""  # a line that says "boot finished"
    expect_faults: Flag = False  # the firmware crashes on purpose: count, never wake
    allow_unstable: Flag = False  # ttyUSBn may be another board after a reboot
    open_delay_s: Annotated[Number, Field(ge=0, le=60)] = 0.0  # after the device has appeared
    line_errors: Flag = False  # cp210x: count line errors, which turns bad bytes into NUL
    elf: str = ""  # the firmware with its symbols: backtraces are decoded with it
    board: Annotated[str, AfterValidator(_board)] = ""  # what is on the port: memories follow it
    rules: list[str] = field(default_factory=list)  # packs to apply; empty: all


@dataclass(frozen=True, slots=True)
class DiscoverConfig:
    """USB adapters that become ports by themselves when they are plugged in: all it says must fit.

    What says which they are may hold `*` and `?`; the rest is as for a port.
    """

    __pydantic_config__ = _STRICT

    usb: Annotated[str, AfterValidator(_usb_kind)] = ""  # vendor and product, e.g. 0403:6001
    driver: str = ""  # of the kernel, e.g. ftdi_sio
    serial: str = ""
    place: str = ""  # where it is plugged in, e.g. 1-2.*
    bit_rate: BitRate = 115200
    eol: Literal["auto", "lf", "cr"] = "auto"
    dtr: Flag | None = None
    rts: Flag | None = None
    write: Flag = True
    reset: list[ResetStep] | ResetCommand = field(default_factory=list)
    ready: Annotated[str, AfterValidator(_regex)] = ""
    expect_faults: Flag = False
    open_delay_s: Annotated[Number, Field(ge=0, le=60)] = 0.0
    line_errors: Flag = False
    rules: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Where the daemon keeps and shows itself; empty: the place of the system or the user."""

    __pydantic_config__ = _STRICT

    state_dir: str = ""
    run_dir: str = ""


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """The loopback TCP listener."""

    __pydantic_config__ = _STRICT

    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:9808"  # "": none
    token_file: str = ""  # whoever knows its content may view over TCP


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How long logs are kept: by age and by size of all ports."""

    __pydantic_config__ = _STRICT

    keep_days: Annotated[Whole, Field(ge=1)] = 90
    keep_bytes: Annotated[Whole, Field(ge=1_000_000)] = 20_000_000_000


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The investigator; without `base_url` no model is asked."""

    __pydantic_config__ = _STRICT

    base_url: str = ""
    model: str = ""
    cheap_model: str = ""  # of the same endpoint, for mechanical steps; "": the model itself
    temperature: Annotated[Number, Field(ge=0, le=0.3)] = 0.2
    context_tokens: Annotated[Whole, Field(ge=4096, le=1_000_000)] = 6144  # of one prompt
    tokens_per_incident: Annotated[Whole, Field(ge=8000)] = 48_000
    tokens_per_day: Count = 400_000  # 0: no cap
    incidents_per_hour: Count = 12  # 0: no cap
    price_in: Price = 0.0  # for a million tokens; 0: not known
    price_out: Price = 0.0
    cheap_price_in: Price | None = None  # of cheap_model; None: as price_in
    cheap_price_out: Price | None = None
    cost_per_day: Price = 0.0  # 0: no cap
    cache: Flag = False  # answers to exactly the same request, for a day
    redact: Flag = True  # hide secrets from the model
    redact_patterns: list[Annotated[str, AfterValidator(_secret)]] = field(default_factory=list)
    skill_versions: dict[SkillName, Version] = field(default_factory=dict)  # of several
    approvals: Literal["queue", "deny"] = "queue"  # of actions on boards that it proposes


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """A program that is run for each new report or action that waits, told as JSON on stdin."""

    __pydantic_config__ = _STRICT

    command: Annotated[list[str], Field(min_length=1)]
    severity: Literal["warning", "error", "critical"] = "error"  # and above


@dataclass(frozen=True, slots=True)
class Config:
    """Everything, checked."""

    __pydantic_config__ = _STRICT

    daemon: DaemonConfig = DaemonConfig()
    api: ApiConfig = ApiConfig()
    log: LogConfig = LogConfig()
    agent: AgentConfig = AgentConfig()
    notify: list[NotifyConfig] = field(default_factory=list)
    port: dict[str, PortConfig] = field(default_factory=dict)
    discover: dict[str, DiscoverConfig] = field(default_factory=dict)
    # What was read: it knows the lines. No key of the file, and no difference between two.
    source: Annotated[TomlFile | None, BeforeValidator(_no_key)] = field(
        default=None, compare=False, repr=False
    )

    def place_of(self, *key: str) -> str:
        """Return where a key stands, as "FILE:LINE: ", or its table; "" if it was in no file."""
        if self.source is None or key[1] not in self.source.data.get(key[0], {}):
            return ""
        return f"{self.source.path}:{self.source.line_of(*key)}: "


_ADAPTER = TypeAdapter(Config)
_TABLES = tuple(f.name for f in fields(Config) if f.name != "source")


def load_config(path: Path | None, ports: Sequence[str] = ()) -> Config:
    """Read a file (None: what `found_config` finds) and add `NAME=DEVICE` ports.

    Raises:
        TomlError: every problem with file, line, key and what is allowed.

    """
    config, problems = read_config(path, ports)
    if problems:
        raise TomlError(problems)
    return config


def read_config(path: Path | None, ports: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """Return a configuration without the tables that cannot be used, and every problem with it.

    Raises:
        TomlError: the file cannot be read, or is no TOML.

    """
    path = path or found_config()
    file = TomlFile("--port", "", {}) if path is None else read_toml(path)
    config, problems = _good_tables(file)
    problems += [*_bad_port_names(file), *_problems(file, config)]
    named = dict(config.port)
    for text in ports:
        name, _, device = text.partition("=")
        if not device:
            problems.append(f"--port {text}: must be NAME=DEVICE such as dut1=/dev/ttyUSB0")
        elif not PORT_NAME.fullmatch(name):
            problems.append(f"--port {text}: {_bad_name(name)}")
        elif name in named:
            problems.append(f"--port {text}: port {name!r} is already configured")
        else:
            named[name] = PortConfig(device=device, allow_unstable=True)
    seen: dict[str, str] = {}
    for name, port in named.items():
        if (other := seen.setdefault(_plain_device(port.device), name)) != name and (
            port.device != "pty:"
        ):
            line = file.line_of("port", name, "device")
            place = f"{file.path}:{line}" if name in config.port else "--port"
            problems.append(
                f'{place}: port "{name}": device {port.device} is already port "{other}"'
            )
    return _with_names(config, named, None if path is None else file), problems


def _good_tables(file: TomlFile) -> tuple[Config, list[str]]:
    """Return what is right in a file by itself, and what is wrong with the rest."""
    try:
        return _ADAPTER.validate_python(file.data), []
    except ValidationError as exc:
        good = {k: dict(v) if isinstance(v, dict) else v for k, v in file.data.items()}
        for error in exc.errors():
            table, name = (*error["loc"], "", "")[:2]
            if table in ("port", "discover") and isinstance(good.get(table), dict) and name:
                good[table].pop(name, None)
            else:
                good.pop(str(table), None)
        told = _explained(file, exc)
    try:
        return _ADAPTER.validate_python(good), told
    except ValidationError:  # more is wrong than was told
        return Config(), told


def config_to_json(config: Config) -> dict[str, Any]:
    """Return the configuration as plain data, in the shape of the file."""
    return {name: _plain(getattr(config, name)) for name in _TABLES}


def state_dir(config: Config) -> Path:
    """Return where logs and the database are kept."""
    if config.daemon.state_dir:
        return Path(config.daemon.state_dir)
    if is_system():
        return Path(os.environ.get("STATE_DIRECTORY") or "/var/lib/serialwatch")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "serialwatch"


def run_dir(config: Config | None = None) -> Path:
    """Return where the socket is: the system's for root, the user's for anybody else."""
    if config is not None and config.daemon.run_dir:
        return Path(config.daemon.run_dir)
    if is_system():
        return Path(os.environ.get("RUNTIME_DIRECTORY") or "/run/serialwatch")
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/serialwatch-{os.geteuid()}"  # noqa: S108 -- refused if another's
    return Path(runtime) / "serialwatch"


def _bad_port_names(file: TomlFile) -> list[str]:
    ports = file.data.get("port")
    return [
        f"{file.path}:{file.line_of('port', name)}: {_bad_name(name)}"
        for name in (ports if isinstance(ports, dict) else ())
        if not PORT_NAME.fullmatch(name)
    ]


def _problems(file: TomlFile, config: Config) -> list[str]:
    told = []
    for name, port in config.port.items():
        if name == OWN_PORT:
            told.append(
                f"{file.path}:{file.line_of('port', name)}: port name {name!r} is taken: faults of "
                "the daemon itself have it"
            )
        if port.name:
            told.append(f"{file.path}:{file.line_of('port', name, 'name')}: unknown key")
        if port.pty == "write" and not port.write:
            told.append(
                f'{file.path}:{file.line_of("port", name, "pty")}: port "{name}": '
                'pty = "write" contradicts write = false'
            )
        if port.elf and not Path(port.elf).is_absolute():
            told.append(
                f'{file.path}:{file.line_of("port", name, "elf")}: port "{name}": elf: '
                f"must be a path from / on, not {port.elf!r}"
            )
        if problem := _usb_name(port.device):
            line = file.line_of("port", name, "device")
            told.append(f'{file.path}:{line}: port "{name}": {port.device}: {problem}')
        if problem := _remote_name(port.device):
            line = file.line_of("port", name, "device")
            told.append(f'{file.path}:{line}: port "{name}": {port.device}: {problem}')
        if isinstance(port.reset, list) and port.reset and not any(map(_sets_a_line, port.reset)):
            told.append(
                f'{file.path}:{file.line_of("port", name, "reset")}: port "{name}": reset: '
                "no step of it sets dtr or rts"
            )
        if _UNSTABLE.fullmatch(_plain_device(port.device)) and not port.allow_unstable:
            told.append(
                f'{file.path}:{file.line_of("port", name, "device")}: port "{name}": '
                f"{port.device} may be another board after a reboot; use "
                f"{_link_to(_plain_device(port.device))}, or say allow_unstable = true"
            )
    for name, pattern in config.discover.items():
        place = f"{file.path}:{file.line_of('discover', name)}"
        if not PATTERN_NAME.fullmatch(name):
            told.append(f"{place}: discover {name!r}: its name must be 1 to 12 of a-z and 0-9")
        if not (pattern.usb or pattern.driver or pattern.serial or pattern.place):
            told.append(
                f'{place}: discover "{name}": must say which adapters: usb, driver, serial or place'
            )
    for key in ("state_dir", "run_dir"):
        folder = getattr(config.daemon, key)
        if folder and not Path(folder).is_absolute():
            line = file.line_of("daemon", key)
            told.append(
                f"{file.path}:{line}: daemon.{key}: must be a path from / on, not {folder!r}"
            )
    if config.agent.base_url and not _BASE_URL.fullmatch(config.agent.base_url):
        line = file.line_of("agent", "base_url")
        told.append(
            f"{file.path}:{line}: agent.base_url must be an address such as "
            f"http://127.0.0.1:11434/v1, not {config.agent.base_url!r}"
        )
    if config.agent.base_url and not config.agent.model:
        line = file.line_of("agent", "base_url")
        told.append(f"{file.path}:{line}: agent.base_url needs a model beside it")
    agent = config.agent
    if agent.cheap_model and not agent.model:
        line = file.line_of("agent", "cheap_model")
        told.append(f"{file.path}:{line}: agent.cheap_model needs a model beside it")
    for key in ("cheap_price_in", "cheap_price_out"):
        if getattr(agent, key) is not None and not agent.cheap_model:
            line = file.line_of("agent", key)
            told.append(f"{file.path}:{line}: agent.{key} needs a cheap_model beside it")
    if agent.cost_per_day and not (agent.price_in or agent.price_out):
        line = file.line_of("agent", "cost_per_day")
        told.append(
            f"{file.path}:{line}: agent.cost_per_day needs price_in and price_out, "
            "for a million tokens each"
        )
    if config.api.token_file and not Path(config.api.token_file).is_file():
        line = file.line_of("api", "token_file")
        told.append(f"{file.path}:{line}: api.token_file: {config.api.token_file}: no such file")
    return told


def _sets_a_line(step: ResetStep) -> bool:
    return step.dtr is not None or step.rts is not None


def _plain_device(device: str) -> str:
    """Return a path as it is written most simply, other names as they are."""
    path = device.removeprefix("tty:")
    return re.sub(r"^/+", "/", os.path.normpath(path)) if path.startswith("/") else device


def _link_to(device: str) -> str:
    """Return the link that leads to a tty now, else where it would be."""
    for folder in ("by-id", "by-path"):
        for link in sorted((LINKS / folder).glob("*")):
            if os.path.realpath(link) == device:
                return str(link)
    return f"its link in {LINKS}/by-id"


def _usb_name(device: str) -> str:
    """Return why a USB name can never lead to one adapter, "" if it can."""
    if device.startswith("usbid:") and not _USB_ID.fullmatch(device):
        return (
            "write usbid:VENDOR:PRODUCT:SERIAL, e.g. usbid:0403:6001:A50285BI (an adapter without "
            "a serial number goes by its place: usb:1-2.3)"
        )
    if device.startswith("usb:") and not _USB_PLACE.fullmatch(device):
        return "write usb:PLACE as the kernel calls it, e.g. usb:1-2.3 or usb:1-2.3:1.0"
    return ""


def _remote_name(device: str) -> str:
    """Return why the address of another machine is none, "" if it may be one."""
    scheme = device.partition(":")[0]
    if scheme not in ("rfc2217", "socket"):
        return ""
    place = _REMOTE.fullmatch(device.removesuffix("?ask=1") if scheme == "rfc2217" else device)
    if place is None or not 0 < int(place[1]) < 65536:
        return f"must be {scheme}://HOST:PORT such as {scheme}://lab2:3001"
    return ""


def _explained(file: TomlFile, exc: ValidationError) -> list[str]:
    told = file.problems(exc)
    known: Mapping[str, tuple[str, ...]] = {
        "port": tuple(f.name for f in fields(PortConfig) if f.name != "name"),
        "discover": tuple(f.name for f in fields(DiscoverConfig)),
        "daemon": tuple(f.name for f in fields(DaemonConfig)),
        "api": tuple(f.name for f in fields(ApiConfig)),
        "log": tuple(f.name for f in fields(LogConfig)),
        "agent": tuple(f.name for f in fields(AgentConfig)),
        "notify": tuple(f.name for f in fields(NotifyConfig)),
    }
    out = []
    for problem in told:
        place, key, words = problem.split(": ", 2)
        parts = key.split(".")
        if words == "unknown key":
            allowed = _TABLES if len(parts) == 1 else known.get(parts[0], ())
            if "reset" in parts[:-1]:
                allowed = ("dtr", "rts", "ms")
            words += f"; known here: {', '.join(allowed)}" if allowed else ""
        if parts[0] in ("port", "discover") and len(parts) > 2:
            key = f'{parts[0]} "{parts[1]}": {".".join(parts[2:])}'
        out.append(f"{place}: {key}{'' if words.startswith('must') else ':'} {words}")
    return out


def _bad_name(name: str) -> str:
    return (
        f"port name {name!r} must be 1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit"
    )


def _with_names(config: Config, ports: Mapping[str, PortConfig], source: TomlFile | None) -> Config:
    named = {
        name: PortConfig(**{f.name: getattr(port, f.name) for f in fields(port)} | {"name": name})
        for name, port in ports.items()
    }
    return Config(
        daemon=config.daemon,
        api=config.api,
        log=config.log,
        agent=config.agent,
        notify=config.notify,
        port=named,
        discover=config.discover,
        source=source,
    )


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {
            f.name: _plain(v)
            for f in fields(value)
            if f.name != "name" and (v := getattr(value, f.name)) is not None
        }
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value
