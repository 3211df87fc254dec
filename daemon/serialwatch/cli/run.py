"""`serialwatch run`: the service."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from serialwatch.api.listen import SocketBusy
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.config import Config, load_config
from serialwatch.service.core import Service
from serialwatch.service.orphans import Orphans
from serialwatch.store.database import SchemaTooNewError
from serialwatch.store.state_dir import StateBusy, StateError
from serialwatch.tomlfile import TomlError

log = logging.getLogger(__name__)

# How long another thread may keep the interpreter while the loop waits for it (default 5 ms): the
# threads that write logs and SQLite must not make a fault late.
SWITCH_S = 0.0005


@click.command()
@click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="The configuration file."
)
@click.option("--port", "ports", multiple=True, metavar="NAME=DEVICE", help="Watch this one too.")
@click.option("--verbose", is_flag=True, help="Log what only developers want to know.")
def run(path: Path | None, ports: tuple[str, ...], verbose: bool) -> int:
    """Watch the ports of the configuration until SIGTERM; SIGHUP reads it again.

    Without a configuration: serialwatch run --port dut1=/dev/ttyUSB0
    """
    sys.setswitchinterval(SWITCH_S)
    faulthandler.enable()  # systemd's watchdog sends SIGABRT: the journal then says where we hung
    log_to_stderr(logging.DEBUG if verbose else logging.INFO)

    def load() -> Config:
        return load_config(path, ports)

    try:
        config = load()
        if not config.port and not config.discover:
            where = f"{config.source.path}: " if config.source else ""
            raise TomlError(
                [
                    f"{where}no port to watch: name one, e.g. "
                    "`serialwatch run --port dut1=/dev/ttyUSB0`, "
                    "or begin with `serialwatch config init`"
                ]
            )
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    try:
        asyncio.run(_serve(config, load))
    except (SocketBusy, StateBusy, StateError) as exc:
        raise CliError(str(exc), FAULT) from exc
    except ExceptionGroup as group:
        if (refused := group.subgroup(SchemaTooNewError)) is not None:
            raise CliError(str(refused.exceptions[0]), FAULT) from group
        # A fault of our own in capture: end, say where, and let systemd start us again.
        log.critical("serialwatch failed", exc_info=group)
        return FAULT
    return 0


async def _serve(config: Config, load: Callable[[], Config]) -> None:
    loop = asyncio.get_running_loop()
    service, orphans = Service(config, load), Orphans()
    orphans.adopt()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    try:
        await service.run()
    finally:
        orphans.close()


def log_to_stderr(level: int) -> None:
    """Log one line an event; under systemd the journal adds the time itself."""
    if "JOURNAL_STREAM" in os.environ:
        form = "%(levelname)s %(message)s"
    else:
        form = "%(asctime)s %(levelname)-7s %(message)s"
    logging.basicConfig(level=level, format=form, stream=sys.stderr)
    for noisy in ("apscheduler", "aiohttp.access", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
