"""How the configuration of a port bears on it while it is open."""

from __future__ import annotations

from dataclasses import replace

from serialwatch.config import Config, PortConfig
from serialwatch.wire import Json


def is_same_port(one: PortConfig | None, other: PortConfig) -> bool:
    """Tell whether a port can stay open: as far as opening it goes, nothing has changed."""
    return one is not None and _as_opened(one) == _as_opened(other)


def about_ports(config: Config) -> dict[str, Json]:
    """Return what the agent is told of each port."""
    return {
        name: {"device": port.device, "elf": port.elf, "board": port.board}
        for name, port in config.port.items()
    }


def _as_opened(port: PortConfig) -> PortConfig:
    return replace(port, elf="", board="", pty="off")
