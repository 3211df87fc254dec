"""The daemon: what starts, runs and stops together, and how its parts are wired."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from serialwatch_drivers.port import PortOptions, UartCounters

from serialwatch.api.events import Events
from serialwatch.capture.reader import Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import Config, PortConfig, config_home, state_dir
from serialwatch.bundled import bundled_dir, own_dirs
from serialwatch.incidents import Incidents
from serialwatch.metrics import Metrics, PortNumbers
from serialwatch.records import Boot, Finding, Hit, IncidentChange, Lines, Ready
from serialwatch.service import systemd
from serialwatch.store.database import Database
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_writer import LogWriter, recover
from serialwatch.store.state_dir import StateLock

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S = 0.05
MAX_CATCH_UP = 1024 * 1024  # bytes of log that are searched again at a start
BEAT_LIMIT_S = 10.0  # a task that shows no life for so long: the watchdog is no longer fed
OWN_PORT = "serialwatch"  # incidents of the daemon itself


@dataclass(slots=True)
class BenchPort:
    """A port with everything that belongs to it while the daemon runs."""

    config: PortConfig
    ring: Ring
    reader: Reader
    task: asyncio.Task[None] | None = None
