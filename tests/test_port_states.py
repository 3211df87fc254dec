"""What happens to a port itself becomes an incident, from the driver up."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bench_cable import Cable
from running_daemon import running


def test_a_device_that_vanishes_from_a_talking_board_becomes_an_incident(
    cable: Cable, tmp_path: Path
) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b"sensor: 23.4 C\r\n")
        daemon.wait_for(lambda: b"23.4" in daemon.saved("dut1"), "bytes")
        cable.unplug()
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "absent", "loss")
        cable.plug()
        (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")

    assert incident["trigger"] == "link.port_vanished"
    assert incident["title"].startswith("the serial adapter vanished and ")
    assert incident["first_seq"] == 1


def test_a_connection_that_is_lost_becomes_an_incident(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        running(tmp_path, {"dut1": f"socket://127.0.0.1:{server.getsockname()[1]}"}) as daemon,
    ):
        far_end, _ = server.accept()
        with far_end:
            far_end.sendall(b"sensor: 23.4 C\r\n")
            daemon.wait_for(lambda: b"23.4" in daemon.saved("dut1"), "bytes")
        again, _ = server.accept()
        with again:
            (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
            again.settimeout(0)
            with pytest.raises(BlockingIOError):
                again.recv(1)  # and nothing was sent

    assert incident["trigger"] == "link.port_vanished"
    assert incident["title"].startswith("the connection to the port's server was lost and came ")
    assert incident["first_seq"] == 1
