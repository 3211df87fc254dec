import shutil
import subprocess

import pytest

from serialwatch.metrics import MAX_READINGS, Metrics, PortNumbers
from serialwatch.records import PortStats


def made(*ports: PortNumbers) -> Metrics:
    return Metrics("1.2.3", lambda: ports)


def lines(metrics: Metrics, start: str) -> list[str]:
    return [line for line in metrics.render().decode().splitlines() if line.startswith(start)]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian package prometheus")
def test_promtool_has_nothing_to_say() -> None:
    stats = PortStats(uart_errors={"overrun": 3}, tx_bytes={"send": 4})
    metrics = made(PortNumbers("dut1", "up", stats))
    metrics.port_added("dut1")
    metrics.count_hit("dut1", "linux.oops", "critical")

    done = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.render(), capture_output=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_known_port_has_its_hits_from_zero() -> None:
    metrics = made()
    metrics.port_added("dut1")

    assert 'serialwatch_hits_total{port="dut1",severity="critical"} 0.0' in lines(
        metrics, "serialwatch_hits"
    )


def test_a_removed_port_leaves_no_series() -> None:
    ports = [PortNumbers("dut1", "up", PortStats())]
    metrics = Metrics("1.2.3", lambda: ports)
    metrics.port_added("dut1")
    ports.clear()
    metrics.port_removed("dut1")

    assert [line for line in metrics.render().decode().splitlines() if "dut1" in line] == []


def test_a_counter_the_driver_does_not_have_is_absent_and_not_zero() -> None:
    metrics = made(PortNumbers("dut1", "up", PortStats(uart_errors={"overrun": 0})))

    told = lines(metrics, "serialwatch_uart_errors_total")

    assert told == ['serialwatch_uart_errors_total{kind="overrun",port="dut1"} 0.0']


def test_at_most_40_series_per_port() -> None:
    stats = PortStats(
        uart_errors=dict.fromkeys(("overrun", "framing", "parity", "break", "buffer_overrun"), 1),
        tx_bytes={"attach": 1, "send": 1, "reset": 1},
        opens=dict.fromkeys(("ok", "absent", "busy", "denied", "broken"), 1),
        lost_bytes=dict.fromkeys(("uart", "tty", "log", "client"), 1),
    )
    metrics = made(PortNumbers("dut1", "up", stats))
    metrics.port_added("dut1")

    series = [
        line
        for line in metrics.render().decode().splitlines()
        if 'port="dut1"' in line and "_created" not in line
    ]
    assert len(series) <= 40


def test_the_names_that_dashboards_rely_on() -> None:
    metrics = made(PortNumbers("dut1", "up", PortStats()))
    metrics.port_added("dut1")
    text = metrics.render().decode()

    for name in [
        "port_state",
        "rx_bytes_total",
        "rx_lines_total",
        "invalid_bytes_total",
        "tx_bytes_total",
        "uart_errors_total",
        "lost_bytes_total",
        "opens_total",
        "boots_total",
        "hits_total",
        "rule_hits_total",
        "incidents_total",
        "incidents_open",
        "wake_seconds",
        "report_seconds",
        "loop_lateness_seconds",
        "skill_calls_total",
        "skill_seconds",
        "param_errors_total",
        "llm_requests_total",
        "llm_seconds",
        "llm_tokens_total",
        "breaker_state",
        "memories",
        "approvals",
        "report_claims_total",
        "task_beat_seconds",
        "log_bytes",
        "build_info",
    ]:
        assert f"# HELP serialwatch_{name} " in text, name


def test_the_numbers_of_boards_are_shown_a_few_of_each_port() -> None:
    readings = {f"mine.gauge{n}": n / 2 for n in range(50)}
    metrics = made(PortNumbers("dut1", "up", PortStats(), readings))
    labels = {"port": "dut1", "rule": "mine.gauge3"}

    assert metrics.registry.get_sample_value("serialwatch_reading", labels) == 1.5
    assert metrics.render().count(b"serialwatch_reading{") == MAX_READINGS
