"""What a shell asks the daemon for to complete a word, such as names of ports: quickly, or none."""

from __future__ import annotations

import json
import socket
import tomllib
from contextlib import closing

from serialwatch.cli.client import find_daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.row_answer import RowAnswer
from serialwatch.config_file import found_config
from serialwatch.spelling import Json

LIMIT_S = 0.5  # for the daemon: somebody has pressed Tab


def port_names(named: str | None) -> list[str]:
    """Return the ports of the daemon at `named` or found, else those of the configuration.

    What goes wrong is not told: whoever presses Tab is not served by it.
    """
    return [str(port["name"]) for port in listed(named, "ports")] or _of_config()


def listed(named: str | None, what: str) -> list[Json]:
    """Return the rows that the daemon at `named` or found lists under `/v1/<what>`, else none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(LIMIT_S)
            daemon = find_daemon(named, is_quiet=True)
            sock.connect(str(daemon.path))
            daemon.check(sock)
            with closing(RowAnswer(sock, "GET", f"/v1/{what}", None)) as answer:
                return list(json.loads(answer.read())[what])
    except (OSError, ValueError, KeyError, TypeError, CliError):
        return []


def _of_config() -> list[str]:
    # Not by load_config, which takes half a second to import.
    path = found_config()
    try:
        ports = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("port") if path else None
    except (OSError, ValueError):
        return []
    return list(ports) if isinstance(ports, dict) else []
