from __future__ import annotations

import pytest

from serialwatch.agent.text.line_shape import level_of, shape, untimed


@pytest.mark.parametrize(
    "line",
    [
        "[   12.345678] usb 1-1: reset",
        "[    0.5][ T123] usb 1-1: reset",
        "[2019-09-04 17:37:28.368] usb 1-1: reset",
        "21:00:32.457 -> usb 1-1: reset",
        "Sep  6 23:47:06 [   12.3] usb 1-1: reset",
        "[00:00:11.659,393] usb 1-1: reset",
        "00> [00:00:11.659,393] usb 1-1: reset",
    ],
)
def test_times_before_a_line_are_taken_off(line: str) -> None:
    assert untimed(line) == "usb 1-1: reset"


def test_a_shape_has_no_numbers() -> None:
    assert (
        shape("[  1.5] dma 7: lost 12 of 4096 at 0x3ffb8a10") == "dma <n>: lost <n> of <n> at <x>"
    )
    assert shape("E (1234) task_wdt: CPU 0") == shape("E (99) task_wdt: CPU 1")
    assert shape("sha 9f8e7d6c and face") == "sha <x> and face"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("Kernel panic - not syncing: x", "critical"),
        ("Guru Meditation Error: Core  0 panic'ed", "critical"),
        ("<2>fire", "critical"),
        ("E (10) wifi: no", "error"),
        ("[00:00:01.000,000] <err> os: no", "error"),
        ("mmc0: error -110", "error"),
        ("W (10) wifi: weak", "warning"),
        ("warning: x", "warning"),
        ("I (10) wifi: up", "note"),
        ("0 terrors, default vault", "note"),
        ("", "note"),
    ],
)
def test_a_line_looks_as_bad_as_it_says(line: str, level: str) -> None:
    assert level_of(line) == level
