"""The numbers of the daemon, for Prometheus. Names and labels are a contract: dashboards use them.

What changes for each chunk or line is a plain integer elsewhere (`PortStats`) and is read here when
somebody asks; what changes rarely is a prometheus-client object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serialwatch.records import SEVERITIES, PortState, PortStats, Severity
from serialwatch.store.approvals import STATES as APPROVAL_STATES

MAX_READINGS = 12  # of one port: no pack makes more series than that
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ROUND_KINDS = ("act", "nudge", "repair", "draft", "redraft")
RUN_ENDS = ("done", "partial", "baseline", "failed", "cut short")
CODES = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12")

_FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_SLOW_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


@dataclass(frozen=True, slots=True)
class PortNumbers:
    """One port as the numbers see it."""

    name: str
    state: PortState
    stats: PortStats
    readings: Mapping[str, float] = field(default_factory=dict)  # by detector


class Metrics:
    """All of them, in a registry of their own; `render` may run in any thread."""

    def __init__(
        self,
        version: str,
        ports: Callable[[], Iterable[PortNumbers]],
        beat_ages_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        registry.register(_Ports(ports))
        registry.register(_Beats(beat_ages_s))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"serialwatch_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"serialwatch_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                f"serialwatch_{name}", text, labels, registry=registry, buckets=buckets
            )

        self.hits = counter("hits", "Hits of rules and detectors.", "port", "severity")
        self.rule_hits = counter("rule_hits", "Hits by rule or detector, once seen.", "rule")
        self.incidents = counter("incidents", "Incidents opened.", "port", "severity")
        self.incidents_open = gauge("incidents_open", "Incidents not resolved.", "severity")
        self.wake_seconds = histogram(
            "wake_seconds",
            "From reading the last byte of a line to its incident being open.",
            buckets=_FAST_S,
        )
        self.report_seconds = histogram(
            "report_seconds", "From opening an incident to its first report.", buckets=_SLOW_S
        )
        self.loop_lateness_seconds = histogram(
            "loop_lateness_seconds", "How late the event loop turned.", buckets=_FAST_S
        )
        self.skill_calls = counter("skill_calls", "Calls of skills.", "skill", "status")
        self.skill_seconds = histogram(
            "skill_seconds", "How long skills ran.", "skill", buckets=_SLOW_S
        )
        self.param_errors = counter(
            "param_errors", "Calls refused because of their parameters.", "skill"
        )
        self.skill_offered = counter(
            "skill_offered", "Runs of a model that was offered the skill.", "skill"
        )
        self.skill_cited = counter(
            "skill_cited", "Of those, runs whose report rests on its results.", "skill"
        )
        self.skill_used = counter(
            "skill_used", "Of those, runs in which the model called it.", "skill"
        )
        self.skill_names: set[str] = set()  # that are labels
        self.runs = counter("agent_runs", "Runs of the agent that ended.", "kind", "status")
        self.rounds = counter("agent_rounds", "Rounds of the model.", "kind")
        self.report_refusals = counter(
            "report_refusals",
            "Parts of a model's drafts that the verifier dropped or changed.",
            "code",
            "result",
        )
        self.llm_requests = counter("llm_requests", "Requests to the model.", "outcome")
        self.llm_seconds = histogram("llm_seconds", "How long the model took.", buckets=_SLOW_S)
        self.llm_tokens = counter("llm_tokens", "Tokens billed by the model.", "kind")
        self.breaker_state = gauge(
            "breaker_state", "Whether the model is left alone after failures: 0 no, 1 yes."
        )
        self.memories = gauge("memories", "Memories kept.", "kind")
        self.approvals = gauge("approvals", "Actions proposed by the agent.", "state")
        self.report_claims = counter(
            "report_claims", "Claims checked against the log before a report.", "result"
        )
        self.reports = counter("reports", "Revisions of reports published.", "source")
        self.part_failures = counter("part_failures", "Parts that had to be restarted.", "task")
        self.events_lost = counter("unstored", "Rows the database could not take.", "kind")
        self.config_reload_good = gauge(
            "config_last_reload_successful", "1 if the configuration last read was good."
        )
        self.config_reload_good.set(1)
        gauge("build_info", "Version of serialwatch.", "version").labels(version).set(1)
        for result in ("verified", "dropped"):
            self.report_claims.labels(result)
        for severity in SEVERITIES:
            self.incidents_open.labels(severity)
        self.count_approvals({})
        for outcome in ("ok", "error"):
            self.llm_requests.labels(outcome)
        for kind in ROUND_KINDS:
            self.rounds.labels(kind)
        for status in RUN_ENDS:
            self.runs.labels("model", status)
        for status in ("done", "failed"):
            self.runs.labels("baseline", status)
        for code in CODES:
            self.report_refusals.labels(code, "dropped")
        for kind in ("prompt", "completion"):
            self.llm_tokens.labels(kind)
        for kind in ("preference", "fact", "task_result", "snapshot"):
            self.memories.labels(kind)

    def port_added(self, port: str) -> None:
        """Begin the series of a port at 0, so that a rate sees its first hit."""
        for severity in SEVERITIES:
            self.hits.labels(port, severity)
            self.incidents.labels(port, severity)

    def port_removed(self, port: str) -> None:
        """Drop the series of a port that is no longer configured."""
        for severity in SEVERITIES:
            self.hits.remove(port, severity)
            self.incidents.remove(port, severity)

    def count_hit(self, port: str, trigger: str, severity: Severity, count: int = 1) -> None:
        """Count a hit, or `count` of them."""
        self.hits.labels(port, severity).inc(count)
        self.rule_hits.labels(trigger).inc(count)

    def count_approvals(self, counted: Mapping[str, int]) -> None:
        """Tell how many actions there are in each state."""
        for state in APPROVAL_STATES:
            self.approvals.labels(state).set(counted.get(state, 0))

    def render(self) -> bytes:
        """Return the exposition text; a few ms for 32 ports, so never on the loop."""
        return generate_latest(self.registry)


class _Beats(Collector):
    """Series of the tasks that are expected to go on."""

    def __init__(self, ages_s: Callable[[], Mapping[str, float]]) -> None:
        self._ages_s = ages_s

    def collect(self) -> Iterator[Metric]:
        """Read all ages once."""
        family = GaugeMetricFamily(
            "serialwatch_task_beat_seconds",
            "Seconds since a task last showed life.",
            labels=["task"],
        )
        for task, age_s in self._ages_s().items():
            family.add_metric([task], age_s)
        yield family


class _Ports(Collector):
    """Series of the ports that exist now; a port that is gone leaves none behind."""

    def __init__(self, ports: Callable[[], Iterable[PortNumbers]]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """Read every port once."""
        state = GaugeMetricFamily(
            "serialwatch_port_state", "1 for the state a port is in.", labels=["port", "state"]
        )
        last = GaugeMetricFamily(
            "serialwatch_last_rx_timestamp_seconds",
            "When a port last read a byte.",
            labels=["port"],
        )
        log_bytes = GaugeMetricFamily(
            "serialwatch_log_bytes", "Size of the log on disk.", labels=["port"]
        )

        def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
            return CounterMetricFamily(f"serialwatch_{name}", text, labels=["port", *labels])

        rx_bytes = counter("rx_bytes", "Bytes read.")
        rx_lines = counter("rx_lines", "Lines read.")
        invalid = counter("invalid_bytes", "Bytes read that are no UTF-8: noise, or another rate.")
        tx_bytes = counter("tx_bytes", "Bytes sent to the device.", "source")
        errors = counter("uart_errors", "Line errors that the driver counts.", "kind")
        lost = counter("lost_bytes", "Bytes lost.", "where")
        opens = counter("opens", "Attempts to open the device.", "result")
        boots = counter("boots", "First-stage starts of the device.")
        readings = GaugeMetricFamily(
            "serialwatch_reading",
            "The newest number of a board that a gauge detector reads.",
            labels=["port", "rule"],
        )
        for port in self._ports():
            stats = port.stats
            for name in get_args(PortState):
                state.add_metric([port.name, name], float(name == port.state))
            last.add_metric([port.name], stats.last_rx_utc_ns / 1e9)
            log_bytes.add_metric([port.name], stats.log_bytes)
            rx_bytes.add_metric([port.name], stats.rx_bytes)
            rx_lines.add_metric([port.name], stats.rx_lines)
            invalid.add_metric([port.name], stats.invalid_bytes)
            boots.add_metric([port.name], stats.boots)
            for rule, value in islice(port.readings.items(), MAX_READINGS):
                readings.add_metric([port.name, rule], value)
            for family, numbers, known in (
                (tx_bytes, stats.tx_bytes, ("attach", "send", "reset")),
                (errors, stats.uart_errors, ()),
                (lost, stats.lost_bytes, ("log", "client")),
                (opens, stats.opens, ("ok",)),
            ):
                for key in sorted({*known, *numbers}):
                    family.add_metric([port.name, key], numbers.get(key, 0))
        yield from (state, last, log_bytes, rx_bytes, rx_lines, invalid, tx_bytes)
        yield from (errors, lost, opens, boots, readings)
