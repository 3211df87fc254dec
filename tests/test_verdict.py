"""Where a fault of a serial line lies: board, cable, PC or settings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from serialwatch.verdict import judged

NOW = datetime(2026, 6, 22, 12, 0, tzinfo=UTC)
HEALTHY: dict[str, Any] = {
    "state": "up",
    "last_rx_at": "2026-06-22T11:59:58Z",
    "rx_bytes": 100_000,
    "uart_errors": {"overrun": 0, "framing": 0, "parity": 0, "breaks": 0},
}


def kernel(text: str) -> dict[str, Any]:
    return {"host_messages": [{"at": "2026-06-22T11:00:00Z", "text": text}]}


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({}, "nothing"),
        ({"uart_errors": {"overrun": 3}}, "PC"),
        ({"uart_errors": {"buffer_overrun": 3}}, "PC"),
        ({"lost_bytes": {"log": 4096}}, "PC"),
        ({"log_problem": "No space left"}, "PC"),
        ({"state": "busy", "holder": "minicom"}, "PC"),
        ({"others": "cat (pid 7, uid 0)"}, "PC"),
        ({"uart_errors": {"framing": 4000}}, "settings"),
        ({"uart_errors": {"framing": 30, "parity": 10}}, "cable"),
        ({"uart_errors": {"framing": 2}}, "nothing"),
        ({"state": "absent"}, "cable"),
        ({"state": "flapping", "reconnects": 9}, "cable"),
        ({"state": "absent", "device": "command:qemu"}, "PC"),
        ({"state": "broken", "device": "command:qemu", "reconnects": 9}, "PC"),
        ({"uart_errors": {"breaks": 2}}, "board"),
        (kernel("usb usb1-port3: over-current condition"), "cable"),
        (kernel("usb 1-2-port3: Cannot enable. Maybe the USB cable is bad?"), "cable"),
        (kernel("usb 1-2: device descriptor read/64, error -71"), "cable"),
        (
            kernel("usb 1-2: usbfs: interface 0 claimed by ch341 while 'brltty' sets config #1"),
            "PC",
        ),
        (kernel("cp210x ttyUSB0: failed set request 0x12 status: -110"), "PC"),
        (kernel("usb 1-2: USB disconnect, device number 5"), "nothing"),
    ],
)
def test_the_strongest_sign_says_where_the_fault_lies(state: dict[str, Any], place: str) -> None:
    found = judged(HEALTHY | state, NOW)

    assert found["place"] == place
    assert found["is_weak"] == (place == "nothing")


def test_silence_and_an_earlier_loss_need_not_be_faults() -> None:
    silent = judged(HEALTHY | {"last_rx_at": "2026-06-22T11:50:00Z"}, NOW)
    never = judged(HEALTHY | {"last_rx_at": None}, NOW)
    back = judged(HEALTHY | {"reconnects": 2}, NOW)

    assert (silent["place"], silent["is_weak"]) == ("board", True)
    assert (never["place"], never["is_weak"]) == ("unknown", True)
    assert (back["place"], back["is_weak"]) == ("cable", True)


def test_what_was_counted_once_is_told_in_the_singular() -> None:
    back = judged(HEALTHY | {"reconnects": 1}, NOW)
    held = judged(HEALTHY | {"uart_errors": {"breaks": 1}}, NOW)

    assert back["text"] == "the device was lost and found again once"
    assert held["text"].startswith("1 break: ")


@pytest.mark.parametrize("last_rx_at", ["2026-06-22T11:50:00Z", None])
def test_a_silent_port_tells_how_its_modem_lines_stand(last_rx_at: str | None) -> None:
    lines = {"cts": False, "rts": True}
    found = judged(HEALTHY | {"last_rx_at": last_rx_at, "modem_lines": lines}, NOW)

    assert found["text"].endswith("; CTS off, RTS on")


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"last_rx_at": "2026-06-22T11:50:00Z"}, "PC"),
        ({"last_rx_at": None}, "PC"),
        ({}, "nothing"),  # it prints all the same
    ],
)
def test_a_console_that_was_stopped_by_a_key_is_told_how_to_go_on(
    state: dict[str, Any], place: str
) -> None:
    found = judged(HEALTHY | {"is_stopped": True} | state, NOW)

    assert found["place"] == place
    assert ("XON (Ctrl-Q" in found["text"]) == (place == "PC")


def test_what_an_adapter_does_not_count_is_unknown_and_not_zero() -> None:
    found = judged(HEALTHY | {"uart_errors": {}}, NOW)

    assert len(found["not_counted"]) == 5


def test_a_brace_in_a_kernel_message_is_text() -> None:
    found = judged(HEALTHY | kernel("ftdi_sio ttyUSB0: failed {0} {x}"), NOW)

    assert "{0} {x}" in found["text"]


def test_all_signs_are_kept_in_order() -> None:
    found = judged(HEALTHY | {"others": "cat", "uart_errors": {"overrun": 1, "breaks": 1}}, NOW)

    assert [sign["place"] for sign in found["signs"]] == ["PC", "PC", "board"]
