"""Who did what."""

from __future__ import annotations

from pathlib import Path

from serialwatch.store.audit import AuditRow, load_audit, save_audit
from serialwatch.store.sqlite_file import open_file

UTC = 1_782_000_000_123_456_000


def test_deeds_come_back_newest_first(tmp_path: Path) -> None:
    db = open_file(tmp_path / "serialwatch.db")
    rows = [
        AuditRow(UTC + n * 1000, 1000, "ann", 42, "send", port, 3, {"text": "md.l 0"}, "ok")
        for n, port in enumerate(("dut1", "dut2", "dut1"))
    ]
    for row in rows:
        save_audit(db, row)

    assert load_audit(db) == rows[::-1]
    assert load_audit(db, port="dut2") == [rows[1]]
    assert load_audit(db, limit=1) == [rows[2]]
    db.close()
