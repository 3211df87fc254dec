"""`make faults`: each test prints the figure that its fault is judged by, in one table."""

from __future__ import annotations

import os

import pytest
from fault_bed import Tell

_ROWS = pytest.StashKey[list[tuple[int, str, str, str, bool]]]()


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
    """Note a row of the table: its number, the fault, what was measured, the goal, if it is met.

    A goal of time or memory depends on the machine: a missed one is marked, and the run fails.
    """

    def note(row: int, fault: str, figure: str, goal: str = "", is_met: bool = True) -> None:
        pytestconfig.stash.setdefault(_ROWS, []).append((row, fault, figure, goal, is_met))

    return note


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a goal was missed, though each fault was borne."""
    rows = session.config.stash.get(_ROWS, [])
    if session.exitstatus == pytest.ExitCode.OK and not all(is_met for *_, is_met in rows):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if rows := terminalreporter.config.stash.get(_ROWS, []):
        terminalreporter.section("faults")
        for row, fault, figure, goal, is_met in sorted(rows):
            terminalreporter.write_line(f"{row:3}  {fault:44} {figure}")
            if goal:
                word = "met" if is_met else "MISSED"
                terminalreporter.write_line(f"     {'':44} goal: {goal}: {word}")
        missed = sum(not is_met for *_, is_met in rows)
        terminalreporter.write_line(f"{missed} goals missed; load {os.getloadavg()[0]:.1f}")
