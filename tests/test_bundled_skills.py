"""The skills that ship pass their own cases."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bench_cli import Cli
from serialwatch.bundled import bundled_dir


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands where no skills but those that ship are installed."""
    for module in ("cli.skills", "cli.skills_load"):
        monkeypatch.setattr(f"serialwatch.{module}.search_path", lambda kind: [bundled_dir(kind)])
    return Cli(tmp_path / "sw", capsys)


def test_their_cases_pass(cli: Cli) -> None:
    result = cli("skills", "test", "--json")
    told = json.loads(result.out)

    assert [row for row in told["cases"] if not row["ok"]] == []
    assert told["without"] == []
    assert min(Counter(row["skill"] for row in told["cases"]).values()) >= 2
