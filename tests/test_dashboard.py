"""The Grafana dashboard, against a real Prometheus that scrapes a real daemon."""

import json
import math
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench_cable import Cable
from running_daemon import RunningDaemon, running
from serialwatch.bundled import bundled_dir

DASHBOARD = json.loads((bundled_dir("config") / "grafana/serialwatch.json").read_text())
PANELS = [p for p in DASHBOARD["panels"] if p["type"] != "row"]

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Debian package prometheus"
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """Run Prometheus on the daemon's metrics; yields its address."""
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms}\n"
        "scrape_configs:\n"
        f"  - {{job_name: serialwatch, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    port = free_port()
    process = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def evaluated(address: str, expression: str) -> list[float]:
    """Return the values of an expression; raises on one that Prometheus refuses."""
    url = f"{address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: Any = json.load(answer)
    assert found["status"] == "success"
    return [float(series["value"][1]) for series in found["data"]["result"]]


def filled_in(expression: str) -> str:
    for name, value in {
        "$__rate_interval": "10s",
        "$job": "serialwatch",
        "$instance": ".*",
        "$port": ".*",
    }.items():
        expression = expression.replace(name, value)
    return expression


def keep_failing(cables: list[Cable], stop: threading.Event) -> None:
    """Let one board after the other fail, so that every rate has something to count."""
    for cable in cables:
        if stop.wait(0.5):
            return
        cable.prints(
            b'[   41.590224] irq 45: nobody cared (try booting with the "irqpoll" option)\r\n'
        )


def test_every_variable_and_panel_is_explained() -> None:
    assert DASHBOARD["schemaVersion"] == 41
    assert DASHBOARD["editable"] is False
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "job",
        "instance",
        "port",
    ]
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'job="$job"' in target["expr"]


def test_counters_are_only_shown_as_rates() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for name in re.findall(r"serialwatch_\w+_total", target["expr"]):
                shown_whole = target["expr"].startswith(f"sum({name}{{") and panel["type"] == "stat"
                assert shown_whole or re.search(rf"(?:rate|increase)\({name}", target["expr"]), (
                    target["expr"]
                )


@needs_prometheus
def test_every_expression_evaluates_to_data(tmp_path: Path) -> None:
    target = free_port()
    stop = threading.Event()
    cables = {f"dut{n}": Cable(tmp_path, f"dut{n}") for n in range(60)}
    failing = threading.Thread(target=keep_failing, args=(list(cables.values()), stop))
    ports = {name: str(cable.path) for name, cable in cables.items()}
    extra = f'[api]\nlisten = "127.0.0.1:{target}"\n'
    with running(tmp_path, ports, extra) as daemon, prometheus(tmp_path, target) as address:
        failing.start()
        try:
            wait_until_all_evaluate(daemon, address)
        finally:
            stop.set()
            failing.join()
    for cable in cables.values():
        cable.close()


def wait_until_all_evaluate(daemon: RunningDaemon, address: str) -> None:
    expressions = [t["expr"] for p in PANELS for t in p["targets"]]
    end = time.monotonic() + 35
    while True:
        empty = []
        try:
            for expression in expressions:
                values = evaluated(address, filled_in(expression))
                if not values or any(map(math.isnan, values)):
                    empty.append(expression)
        except urllib.error.HTTPError as exc:
            raise AssertionError(f"{expression}: {exc.read().decode()}") from exc
        except OSError:
            empty = ["Prometheus does not answer yet"]
        if not empty:
            return
        assert time.monotonic() < end, f"no data for {empty}\n{daemon.log()}"
        time.sleep(0.2)


@needs_prometheus
def test_promtool_has_nothing_to_say_about_a_live_daemon(cable: Cable, tmp_path: Path) -> None:
    target = free_port()
    with running(
        tmp_path, {"dut1": str(cable.path)}, f'[api]\nlisten = "127.0.0.1:{target}"\n'
    ) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        with urllib.request.urlopen(f"http://127.0.0.1:{target}/metrics") as answer:
            text = answer.read()

    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@needs_prometheus
def test_the_scrape_job_we_ship_is_valid() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", bundled_dir("config") / "prometheus/prometheus.yml"],
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
