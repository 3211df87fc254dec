"""Many faults at once: counted to the last one, told once. How late the loop is: see the bench."""

from __future__ import annotations

from pathlib import Path

from fault_load import fault_load


def test_a_thousand_hits_a_second_are_counted_and_open_one_incident_a_fault(
    tmp_path: Path,
) -> None:
    load = fault_load(tmp_path, ports=8, hits_per_s=1000, seconds=1.5)

    assert load.hits > 1000
    assert (load.counted, load.stored) == (load.hits, load.hits)
    assert load.most_open == 1
    assert load.missing_bytes == 0
