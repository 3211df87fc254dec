"""The daemon: what starts, runs and stops together, and how its parts are wired."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from serialwatch_drivers.port import PortOptions, UartCounters

from serialwatch.api.caller import policy_of_this_process
from serialwatch.api.server import ApiPlaces, ApiServer
from serialwatch.bundled import bundled_dir, own_dirs
from serialwatch.capture.reader import Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import Config, PortConfig, config_home, run_dir, state_dir
from serialwatch.incidents import Incidents
from serialwatch.metrics import Metrics, PortNumbers
from serialwatch.notify.command import CommandNotifier, Notification
from serialwatch.records import Boot, Finding, Hit, IncidentChange, Lines, Ready, Severity
from serialwatch.service import systemd
from serialwatch.service.agent_desk import AgentDesk
from serialwatch.service.bench import ServiceBench
from serialwatch.service.supervise import supervise
from serialwatch.service.upkeep import Upkeep
from serialwatch.store import boots as boot_rows
from serialwatch.store import incidents as incident_rows
from serialwatch.store import memories as memory_rows
from serialwatch.store import ports as port_rows
from serialwatch.store import runs as run_rows
from serialwatch.store.database import Database, StoreError
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_writer import LogWriter
from serialwatch.store.state_dir import StateLock
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch, WatchOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S = 0.05
HEARTBEAT_S = 0.005
HEARTBEAT_EVERY_S = 1.0
MAX_CATCH_UP = 1024 * 1024  # bytes of log that are searched again at a start
MAX_WAITING = 1024 * 1024  # bytes of a port that wait for the rules to be compiled
RESERVE_AHEAD = 32_768  # lines left of a block when the next one is reserved
POSITIONS_S = 1.0
TASK_LIMIT_S = 15.0  # a task that shows no life for so long: the watchdog is no longer fed
OWN_PORT = "serialwatch"  # the pseudo-port of incidents of the daemon itself
