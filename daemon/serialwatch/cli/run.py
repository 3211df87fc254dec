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

from serialwatch.config import Config, load_config
from serialwatch.service.core import Service
from serialwatch.store.state_dir import StateBusy, StateError
from serialwatch.tomlfile import TomlError


@click.command()
@click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="The configuration file."
)
@click.option("--port", "ports", multiple=True, metavar="NAME=DEVICE", help="Watch this one too.")
@click.option("--verbose", is_flag=True, help="Log what only developers want to know.")
def run(path: Path | None, ports: tuple[str, ...], verbose: bool) -> None:
    """Watch the ports of the configuration until SIGTERM; SIGHUP reads it again.

    Without a configuration: serialwatch run --port dut1=/dev/ttyUSB0
    """
    faulthandler.enable()  # systemd's watchdog sends SIGABRT: the journal then says where we hung
    log_to_stderr(logging.DEBUG if verbose else logging.INFO)

    def load() -> Config:
        return load_config(path, ports)

    try:
        config = load()
        if not config.port:
            raise TomlError(
                ["no port to watch: name one, e.g. serialwatch run --port dut1=/dev/ttyUSB0"]
            )
        asyncio.run(_serve(config, load))
    except TomlError as exc:
        for problem in exc.problems:
            click.echo(f"serialwatch: {problem}", err=True)
        sys.exit(2)
    except (StateBusy, StateError) as exc:
        click.echo(f"serialwatch: {exc}", err=True)
        sys.exit(1)


async def _serve(config: Config, load: Callable[[], Config]) -> None:
    loop = asyncio.get_running_loop()
    service = Service(config, load)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    await service.run()


def log_to_stderr(level: int) -> None:
    """Log one line an event; under systemd the journal adds the time itself."""
    if "JOURNAL_STREAM" in os.environ:
        form = "%(levelname)s %(message)s"
    else:
        form = "%(asctime)s %(levelname)-7s %(message)s"
    logging.basicConfig(level=level, format=form, stream=sys.stderr)
    for noisy in ("apscheduler", "aiohttp.access", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
