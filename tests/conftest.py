"""Fixtures of all tests: the cable, and guards against leaks and a blocked loop."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench_cable import Cable
from bench_ear import waited_s
from serialwatch_drivers.opening import start_opener, stop_opener

LOOP_LIMIT_S = 0.5  # a loop that does not turn for so long is blocked, on any machine
LOOK_S = 0.05  # how often it is looked; what is much later was kept from the cores by others


# Hundreds of processes import the same modules: let the first of them keep what it compiled, also
# where the environment forbids it, as that of many containers does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell has what it starts with `&` ignore Ctrl-C, and so would all that we start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, the longest first: one that came last would keep one process busy
# while the others have nothing left to do. Those that wait a lot run beside those that compute.
LONGEST = (
    "real/test_linux.py",
    "test_service.py",
    "test_disguises.py",
    "real/test_unattended.py",
    "test_cli_attach.py",
    "test_release.py",
    "test_analyst.py",
    "test_agent_process.py",
    "test_cli_main.py",
    "test_watch.py",
    "test_analysis.py",
    "test_log_writer.py",
    "test_demo.py",
    "test_answering.py",
    "test_ask.py",
    "test_going_on.py",
    "test_cli_rules.py",
    "test_dashboard.py",
    "real/test_uboot.py",
    "test_policies.py",
    "test_hostile_rules.py",
    "test_packs.py",
    "test_reader.py",
    "test_database.py",
    "test_worker.py",
    "test_remote.py",
    "test_load.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have several processes take files in our order, not by the number of their tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first where all are run, and leave the order in each."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture
def cable(tmp_path: Path) -> Iterator[Cable]:
    """One board on one cable."""
    made = Cable(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="session")
def rules_compiled_once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Let all daemons and commands share what they compile, and leave nothing at home."""
    before = os.environ.get("CACHE_DIRECTORY")
    cache = getattr(request.config, "cache", None)  # none with -p no:cacheprovider
    folder = cache.mkdir("compiled") if cache else tmp_path_factory.mktemp("compiled")
    os.environ["CACHE_DIRECTORY"] = str(folder)
    yield
    if before is None:
        del os.environ["CACHE_DIRECTORY"]
    else:
        os.environ["CACHE_DIRECTORY"] = before


@pytest.fixture(autouse=True, scope="session")
def opener() -> Iterator[None]:
    """Let all tests share the process that opens ttys: it is started once and for all."""
    start_opener()
    yield
    stop_opener()


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    """Fail a test that leaves a descriptor of a tty, file or socket open."""
    before = _descriptors()
    yield
    deadline = time.monotonic() + 2
    while (left := _descriptors() - before) and time.monotonic() < deadline:
        threading.Event().wait(0.02)  # threads may still be closing theirs
    assert not left, f"left open: {sorted(left)}"


@pytest.fixture(autouse=True)
def no_blocked_loop(request: pytest.FixtureRequest, no_descriptor_left: None) -> None:
    """Fail a test during which the event loop did not turn for half a second."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("watched_loop")  # a loop for each other test would cost seconds


@pytest_asyncio.fixture
async def watched_loop(no_descriptor_left: None) -> AsyncIterator[None]:
    """Look whether the loop turns; end before `no_descriptor_left` may wait for threads."""
    loop = asyncio.get_running_loop()
    main = threading.get_ident()
    waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    turned = [_had_s(waits)]
    stuck: list[str] = []
    stop = threading.Event()

    def beat() -> None:
        turned[0] = _had_s(waits)
        handle[0] = loop.call_later(0.02, beat)

    def watch() -> None:
        looked_s, seen, blocked_s = time.monotonic(), turned[0], 0.0
        while not stop.wait(LOOK_S):
            before_s, looked_s = looked_s, time.monotonic()
            if turned[0] != seen:
                seen, blocked_s = turned[0], 0.0
            elif looked_s - before_s < 2 * LOOK_S:
                blocked_s += LOOK_S
            if min(blocked_s, _had_s(waits) - seen) <= LOOP_LIMIT_S or stuck:
                continue
            frame = sys._current_frames()[main]
            if frame.f_code.co_filename != selectors.__file__:  # there it waits, ready to turn
                stuck.append("".join(traceback.format_stack(frame)))

    handle = [loop.call_soon(beat)]
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield
    stop.set()
    handle[0].cancel()
    watcher.join()
    assert not stuck, f"the loop was blocked here:\n{stuck[0]}"


def _had_s(schedstat: Path) -> float:
    """Return the time without that in which the thread waited for a core: others' doing."""
    return time.monotonic() - waited_s(schedstat)


def _descriptors() -> set[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if "anon_inode" not in target and "/proc/" not in target and target != "/dev/null":
            found.add((int(name), target))
    return found
