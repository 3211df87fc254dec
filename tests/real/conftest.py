"""Fixture of the tests with real boards: one daemon for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_bench import RealBench, devices

from running_daemon import running


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBench]:
    """Run a daemon whose ports wait for boards."""
    folder = tmp_path_factory.mktemp("bench")
    with running(folder, devices(folder)) as daemon:
        daemon.wait_for(lambda: "watching" in daemon.log(), "rules")
        yield RealBench(daemon, folder)
