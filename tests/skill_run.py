"""A run of the agent over saved logs, for tests of skills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.context import CtxServer
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.skills import load_skills


@contextmanager
def opened_run(
    skills: Sequence[Path],
    *,
    log_dir: Path = Path("/nonexistent"),
    db_path: Path | None = None,
    knowledge: Knowledge | None = None,
    **about: Any,
) -> Iterator[CtxServer]:
    """Give a run with the skills below `skills`; `about` goes to the `CtxServer`."""
    archive = Archive(logs_below(log_dir), db_path)
    about.setdefault("run_id", "run-1")
    try:
        yield CtxServer(archive, load_skills(skills), knowledge or Knowledge({}), **about)
    finally:
        archive.close()
