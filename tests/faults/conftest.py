"""`make faults`: each test prints the figure that its fault is judged by, in one table."""

from __future__ import annotations

import pytest
from fault_bed import Tell

_ROWS = pytest.StashKey[list[tuple[int, str, str]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out unless they are asked for: they take minutes."""
    if "faults" in config.option.markexpr:
        return
    ours = [item for item in items if item.get_closest_marker("faults")]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for a daemon than other tests do: some of these take all of a small machine."""
    monkeypatch.setattr("running_daemon.LIMIT_S", 60.0)


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Tell:
    """Note the figure of a row of the table: its number, the fault, what was measured."""

    def note(row: int, fault: str, figure: str) -> None:
        pytestconfig.stash.setdefault(_ROWS, []).append((row, fault, figure))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if rows := terminalreporter.config.stash.get(_ROWS, []):
        terminalreporter.section("faults")
        for row, fault, figure in sorted(rows):
            terminalreporter.write_line(f"{row:3}  {fault:44} {figure}")
