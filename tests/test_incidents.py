"""From hits to incidents. Times are fed in, in seconds."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from serialwatch.incidents.incidents import MAX_LINKED, Incidents
from serialwatch.records import (
    OWN_PORT,
    BlockEnd,
    Boot,
    BootCause,
    Hit,
    Incident,
    IncidentChange,
    Ready,
)
from serialwatch.titles import fingerprint

S = 1_000_000_000
UTC = 1_782_000_000 * S  # of mono 0


def hit(at_s: float, trigger: str = "linux.oops", seq: int = 0, **other: Any) -> Hit:
    fields: dict[str, Any] = {
        "port": "dut1",
        "severity": "critical",
        "tier": "specific",
        "title": f"{trigger} happened",
        "key": "",
        "block_first": seq,
        "boot": 1,
    }
    at_ns = round(at_s * S)
    return Hit(trigger=trigger, seq=seq, mono_ns=at_ns, utc_ns=UTC + at_ns, **(fields | other))


def vague(at_s: float, seq: int = 0, **other: Any) -> Hit:
    return hit(at_s, "generic.assert", seq, **({"tier": "generic", "severity": "error"} | other))


def boot(at_s: float, seq: int = 0, cause: BootCause = "watchdog", **other: Any) -> Boot:
    at_ns = round(at_s * S)
    fields: dict[str, Any] = {"port": "dut1", "number": 2, "ecosystem": "uboot", "marker": "U-Boot"}
    return Boot(seq=seq, cause=cause, mono_ns=at_ns, utc_ns=UTC + at_ns, **(fields | other))


def ready(at_s: float, seq: int = 0) -> Ready:
    at_ns = round(at_s * S)
    return Ready("dut1", seq, 2, at_ns, UTC + at_ns)


def block_end(at_s: float, trigger: str, last_seq: int) -> BlockEnd:
    at_ns = round(at_s * S)
    return BlockEnd("dut1", trigger, 1, last_seq, at_ns, UTC + at_ns, "end")


def tick(incidents: Incidents, at_s: float) -> list[IncidentChange]:
    return incidents.tick(round(at_s * S), UTC + round(at_s * S))


def run(incidents: Incidents, from_s: float, to_s: float) -> list[IncidentChange]:
    """Tick ten times a second."""
    steps = range(round(from_s * 10), round(to_s * 10) + 1)
    return [change for step in steps for change in tick(incidents, step / 10)]


def print_lines(incidents: Incidents, at_s: float, count: int = 1, port: str = "dut1") -> None:
    incidents.lines(port, count, round(at_s * S))


def whats(changes: list[IncidentChange]) -> list[str]:
    return [change.what for change in changes]


def only(incidents: Incidents) -> Incident:
    (incident,) = incidents.open()
    return incident


# Opening and settling


def test_a_fault_opens_an_incident_at_once() -> None:
    (change,) = Incidents(7).found(hit(10, seq=42, block_first=40, fields={"pc": "0x10"}))

    assert change.what == "opened"
    incident = change.incident
    assert (incident.id, incident.state, incident.trigger) == (7, "open", "linux.oops")
    assert (incident.first_seq, incident.block_first, incident.last_seq) == (42, 40, 42)
    assert incident.opened_mono_ns == 10 * S
    assert incident.fields == {"pc": "0x10"}
    assert not incident.is_settled


def test_a_note_opens_none_but_is_part_of_an_open_one() -> None:
    incidents = Incidents(1)
    assert incidents.found(hit(0, "linux.version", severity="note")) == []

    incidents.found(hit(1))
    incidents.found(hit(2, "linux.rebooting", severity="note"))

    assert [h.trigger for h in only(incidents).hits] == ["linux.oops", "linux.rebooting"]
    assert only(incidents).severity == "critical"


def test_it_settles_5_s_after_the_last_hit() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(hit(3, "linux.mmc", seq=9, severity="error"))

    assert "settled" not in whats(run(incidents, 3, 7.9))
    assert whats(tick(incidents, 8)) == ["settled"]
    assert only(incidents).is_settled


def test_a_worse_fault_that_joins_later_lets_it_settle_once_more() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.mmc", 10, severity="error"))
    run(incidents, 0, 9)
    worse = {"block_first": 20, "continues": True}
    incidents.found(hit(10, "linux.panic", 20, opens_block=True, **worse))
    assert only(incidents).severity == "critical"

    told = run(incidents, 10, 12)
    incidents.found(block_end(12, "linux.panic", 44))
    told += run(incidents, 12, 16.9)
    assert "settled" not in whats(told)
    (again,) = [c for c in tick(incidents, 17) if c.what == "settled"]

    assert (again.incident.trigger, again.incident.severity) == ("linux.mmc", "critical")
    assert again.incident.last_seq == 44
    incidents.found(hit(18, "linux.panic", 60, **worse))  # no worse than what was told
    assert "settled" not in whats(run(incidents, 18, 40))
    assert only(incidents).last_seq == 44


def test_notes_do_not_keep_it_from_settling() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    for at_s in range(1, 5):
        incidents.found(hit(at_s, "linux.note", severity="note"))

    assert "settled" in whats(run(incidents, 4, 5))


def test_it_settles_5_s_after_the_end_of_its_block() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, seq=10, opens_block=True))
    assert "settled" not in whats(run(incidents, 0, 9))

    incidents.found(block_end(9, "linux.oops", 57))

    assert "settled" not in whats(run(incidents, 9, 13.9))
    assert whats(tick(incidents, 14)) == ["settled"]
    assert only(incidents).last_seq == 57


def test_it_settles_after_60_s_whatever_still_comes() -> None:
    incidents = Incidents(1)
    told = []
    for at_s in range(61):
        told += incidents.found(hit(at_s, opens_block=True))

    assert whats(told).count("settled") == 1
    assert only(incidents).is_settled


def test_a_hit_is_enough_to_settle_what_is_due() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, seq=1))
    changes = incidents.found(hit(400, seq=500))

    assert whats(changes)[0] == "settled"
    assert whats(changes)[-1] == "opened"
    assert len(incidents.open()) == 2


# The root cause


def test_the_earliest_fault_is_the_root_cause_and_the_panic_a_consequence() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.oops", seq=5, severity="error"))
    incidents.found(hit(0.1, "linux.panic", seq=30))

    incident = only(incidents)
    assert incident.trigger == "linux.oops"
    assert incident.severity == "critical"
    assert (incident.first_seq, incident.last_seq) == (5, 30)
    assert [h.trigger for h in incident.hits] == ["linux.oops", "linux.panic"]


def test_irq_disabled_follows_irq_nobody_cared() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.irq_nobody_cared", seq=5, key="33"))
    incidents.found(hit(0.1, "linux.irq_disabled", seq=17, key="33"))

    assert only(incidents).trigger == "linux.irq_nobody_cared"


def test_a_fault_replaces_a_warning_while_it_settles() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.rx_overrun_host", severity="warning", key="o"))
    (change,) = incidents.found(hit(2, "linux.oops", seq=7, title="oops in foo", boot=3))

    assert change.what == "changed"
    incident = change.incident
    assert (incident.trigger, incident.title, incident.boot) == ("linux.oops", "oops in foo", 3)
    assert incident.fingerprint == fingerprint("linux.oops", "oops in foo", "")
    assert [h.trigger for h in incident.hits] == ["linux.oops", "link.rx_overrun_host"]


def test_a_sharper_tier_replaces_a_vaguer_one() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "cortexm.hardfault_dump", seq=3, tier="family"))
    incidents.found(hit(0.2, "zephyr.bus_fault", seq=9))

    assert only(incidents).trigger == "zephyr.bus_fault"


def test_a_rule_replaces_its_parent_though_it_comes_later() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.oops", seq=3))
    incidents.found(hit(0.2, "linux.null_deref", seq=9, parent="linux.oops"))

    assert only(incidents).trigger == "linux.null_deref"


def test_rules_that_are_each_other_s_parent_do_no_harm() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "a.one", parent="a.two"))
    incidents.found(hit(0.2, "a.two", parent="a.one"))

    assert only(incidents).count == 1


def test_a_continuing_hit_is_a_consequence_of_a_fault_but_not_of_a_warning() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.rx_overrun_host", severity="warning"))
    incidents.found(hit(1, "linux.panic", continues=True))
    assert only(incidents).trigger == "linux.panic"

    others = Incidents(1)
    others.found(hit(0, "cortexm.fault", tier="family"))
    others.found(hit(1, "zephyr.halted", continues=True))
    assert only(others).trigger == "cortexm.fault"


def test_a_hit_that_is_found_late_but_printed_first_is_the_root_cause() -> None:
    incidents = Incidents(1)
    incidents.found(hit(1.2, "uboot.hang", 6, continues=True))
    incidents.found(hit(1.0, "uboot.spl_boot_failed", 4, continues=True, block_first=3))

    incident = incidents.open()[0]
    assert (incident.trigger, incident.block_first) == ("uboot.spl_boot_failed", 3)


def test_a_sharper_rule_a_line_later_leaves_the_first_line_of_the_fault() -> None:
    incidents = Incidents(1)
    incidents.found(hit(1, "esp.guru", 2))
    incidents.found(hit(1, "esp.stack_overflow", 3, parent="esp.guru"))

    incident = incidents.open()[0]
    assert (incident.trigger, incident.block_first, incident.first_seq) == (
        "esp.stack_overflow", 2, 3,
    )  # fmt: skip


def test_a_continuing_hit_with_nothing_before_it_opens_one() -> None:
    changes = Incidents(1).found(hit(0, "linux.panic", continues=True))

    assert whats(changes) == ["opened"]


def test_a_panic_some_seconds_after_a_settled_oops_belongs_to_it() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, seq=5, severity="error"))
    run(incidents, 0, 20)
    incidents.found(hit(20, "linux.panic", seq=80, continues=True))

    incident = only(incidents)
    assert (incident.trigger, incident.severity) == ("linux.oops", "critical")


def test_a_panic_some_seconds_after_a_settled_storm_is_an_incident_of_its_own() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "rate.interrupt_storm", seq=5, severity="error"))
    run(incidents, 0, 6)
    incidents.found(hit(7, "cortexm.hardfault_dump", seq=80, continues=True))

    storm, fault = incidents.open()
    assert (storm.trigger, fault.trigger) == ("rate.interrupt_storm", "cortexm.hardfault_dump")


def test_the_root_cause_stays_once_it_has_settled() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.rx_overrun_host", severity="warning"))
    run(incidents, 0, 6)
    incidents.found(hit(7, "linux.oops"))

    first, second = incidents.open()
    assert (first.trigger, second.trigger) == ("link.rx_overrun_host", "linux.oops")


# Holdoff and counting


def test_the_same_fault_within_its_holdoff_only_counts() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, seq=1, key="33"))
    run(incidents, 0, 6)
    for at_s in (200, 400, 600):  # each within 300 s of the one before
        incidents.found(hit(at_s, seq=at_s, key="33"))

    incident = only(incidents)
    assert incident.count == 4
    assert incident.last_mono_ns == 600 * S
    assert (incident.first_seq, incident.last_seq) == (1, 1)
    assert incident.hits[0].samples == (1, 200, 400, 600)


def test_another_key_or_a_later_time_is_another_incident() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, key="33"))
    run(incidents, 0, 6)
    incidents.found(hit(10, key="34"))
    run(incidents, 10, 16)
    incidents.found(hit(311, key="33"))

    assert len(incidents.open()) == 3


def test_another_port_is_another_incident() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(hit(2, port="dut2"))

    assert [i.port for i in incidents.open()] == ["dut1", "dut2"]


def test_count_is_that_of_the_primary_key() -> None:
    incidents = Incidents(1)
    for at_s, key in ((0, "33"), (1, "34"), (2, "33")):
        incidents.found(hit(at_s, "linux.irq", key=key))

    assert only(incidents).count == 2
    assert only(incidents).hits[0].count == 3


def test_a_flood_is_one_incident_with_exact_counts_and_few_changes() -> None:
    incidents = Incidents(1)
    told = []
    for n in range(10_000):  # ten seconds
        told += incidents.found(hit(n / 1000, seq=n + 1))
        told += tick(incidents, n / 1000)

    told += run(incidents, 10, 70)
    assert only(incidents).count == 10_000
    assert len(only(incidents).hits[0].samples) == 20
    assert only(incidents).hits[0].samples[0] == 1
    assert only(incidents).hits[0].samples[-1] == 10_000
    assert whats(told).count("opened") == 1
    assert whats(told).count("changed") <= 11


def test_changes_are_told_at_most_once_a_second_and_the_last_one_is_told() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    first = incidents.found(hit(0.1))
    second = incidents.found(hit(0.2))
    later = run(incidents, 0.2, 1.2)

    assert whats(first) == ["changed"]
    assert second == []
    assert [c.incident.count for c in later if c.what == "changed"] == [3]


def test_a_fault_that_comes_again_brings_its_consequences_with_it() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.oops"))
    run(incidents, 0, 30)
    incidents.found(hit(30, "linux.oops"))
    incidents.found(hit(31, "linux.mmc_error", severity="error"))

    assert only(incidents).count == 2


def test_a_repeated_warning_does_not_hide_a_new_fault() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.rx_overrun_host", severity="warning"))
    run(incidents, 0, 30)
    incidents.found(hit(30, "link.rx_overrun_host", severity="warning"))
    changes = incidents.found(hit(31, "linux.oops"))

    assert whats(changes) == ["opened"]


def test_a_warning_of_each_boot_brings_no_fault_of_a_later_one_into_an_old_incident() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "uboot.env_default", severity="warning"))
    incidents.found(hit(1, "linux.ext4_error", severity="error"))
    run(incidents, 1, 180)
    incidents.found(hit(180, "uboot.env_default", severity="warning", boot=2))
    incidents.found(hit(181, "linux.oom", severity="error", boot=2))

    first, second = incidents.open()
    assert [h.count for h in first.hits] == [1, 2]
    assert (second.trigger, second.boot) == ("linux.oom", 2)


def test_a_fault_of_each_boot_hides_no_other_kind_of_fault_in_a_later_one() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.ext4_error", severity="error"))
    run(incidents, 1, 180)
    incidents.found(hit(180, "linux.ext4_error", severity="error", boot=2))
    incidents.found(hit(181, "linux.oom", severity="error", boot=2))

    assert [i.trigger for i in incidents.open()] == ["linux.ext4_error", "linux.oom"]


@pytest.mark.parametrize(("severity", "after_s"), [("critical", 20), ("error", 130)])
def test_a_lesser_fault_of_a_settled_incident_that_comes_by_itself_is_told(
    severity: str, after_s: float
) -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.oops"))
    incidents.found(hit(1, "linux.mmc_error", severity=severity))
    run(incidents, 1, after_s)
    changes = incidents.found(hit(after_s, "linux.mmc_error", severity=severity, boot=2))

    assert whats(changes) == ["opened"]
    assert changes[0].incident.trigger == "linux.mmc_error"
    assert [h.count for h in incidents.open()[0].hits] == [1, 1]
    again = incidents.found(hit(after_s + 30, "linux.mmc_error", severity=severity, boot=3))
    assert whats(again) == ["settled", "changed"]
    assert len(incidents.open()) == 2


def test_lesser_faults_around_a_root_cause_that_comes_in_each_boot_belong_to_it() -> None:
    incidents = Incidents(1)
    for start_s in (0, 100, 200):
        run(incidents, start_s, start_s + 1)
        incidents.found(hit(start_s, "linux.mmc_error", severity="warning", boot=start_s))
        incidents.found(hit(start_s + 1, "linux.ext4_error", severity="error", boot=start_s))
        incidents.found(hit(start_s + 2, "linux.oops", boot=start_s))
        incidents.found(hit(start_s + 4, "linux.panic", boot=start_s, continues=True))
        run(incidents, start_s + 4, start_s + 99)

    assert [h.count for h in only(incidents).hits] == [3, 3, 3, 3]


def test_a_resolved_fault_that_comes_again_is_a_new_incident() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.resolve(1, "ann", UTC)
    changes = incidents.found(hit(2))

    assert whats(changes) == ["opened"]
    assert changes[0].incident.seen_before == (1,)


# Vague matches


def test_a_vague_match_opens_one_only_after_10_s() -> None:
    incidents = Incidents(1)
    assert incidents.found(vague(0, seq=5)) == []
    assert run(incidents, 0, 9.9) == []
    (change,) = tick(incidents, 10)

    assert change.what == "opened"
    assert (change.incident.first_seq, change.incident.opened_mono_ns) == (5, 0)


def test_a_vague_match_opens_one_after_60_lines() -> None:
    incidents = Incidents(1)
    incidents.found(vague(0, seq=5))
    print_lines(incidents, 0.5, 59)
    assert tick(incidents, 0.5) == []

    print_lines(incidents, 0.6, 1)
    assert whats(tick(incidents, 0.6)) == ["opened"]


def test_a_better_match_after_it_silences_a_vague_one() -> None:
    incidents = Incidents(1)
    incidents.found(vague(0, seq=5, severity="critical"))
    changes = incidents.found(hit(8, "zephyr.fault", seq=12, severity="error"))

    assert whats(changes) == ["opened"]
    assert whats(run(incidents, 8, 60)) == ["settled"]
    incident = only(incidents)
    assert (incident.trigger, incident.severity) == ("zephyr.fault", "error")
    assert [h.trigger for h in incident.hits] == ["zephyr.fault", "generic.assert"]


def test_a_better_match_before_it_silences_a_vague_one() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "zephyr.fault", seq=12, severity="error"))
    run(incidents, 0, 8)
    incidents.found(vague(9, seq=40, severity="critical"))
    run(incidents, 9, 60)

    assert only(incidents).severity == "error"


@pytest.mark.parametrize(("at_s", "seq"), [(10.5, 20), (6, 73)])
def test_a_better_match_too_long_ago_does_not_silence_a_vague_one(at_s: float, seq: int) -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "zephyr.fault", seq=12))
    run(incidents, 0, at_s)
    incidents.found(vague(at_s, seq=seq))

    assert "opened" in whats(run(incidents, at_s, at_s + 10))


def test_a_better_match_61_lines_later_does_not_silence_a_vague_one() -> None:
    incidents = Incidents(1)
    incidents.found(vague(0, seq=5))
    changes = incidents.found(hit(0.1, "zephyr.fault", seq=66))

    assert whats(changes) == ["opened", "changed"]
    assert only(incidents).trigger == "zephyr.fault"


def test_a_family_match_soon_after_a_specific_one_is_part_of_it() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "zephyr.fault", seq=12))
    run(incidents, 0, 8)
    incidents.found(hit(8, "cortexm.dump", seq=30, tier="family", severity="error"))

    assert only(incidents).trigger == "zephyr.fault"


def test_a_family_match_worse_than_the_specific_one_is_not_hidden() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "zephyr.sensor", seq=12, severity="error"))
    run(incidents, 0, 8)

    assert whats(incidents.found(hit(8, "cortexm.hardfault", seq=30, tier="family"))) == ["opened"]


def test_many_vague_matches_make_one_incident() -> None:
    incidents = Incidents(1)
    for n in range(300):
        incidents.found(vague(n / 100, seq=n + 1, key=str(n)))
        print_lines(incidents, n / 100)
    told = run(incidents, 3, 20)

    assert whats(told).count("settled") == 1
    assert sum(h.count for h in only(incidents).hits) == 300


# Outcomes


def test_a_boot_within_120_s_of_a_critical_fault_is_its_outcome() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    run(incidents, 0, 6)
    (change,) = incidents.found(boot(50, seq=90, cause="watchdog"))

    assert change.what == "outcome"
    incident = change.incident
    assert (incident.outcome, incident.outcome_cause) == ("rebooted", "watchdog")
    assert incident.outcome_seq == 90
    assert len(incidents.open()) == 1


def test_a_boot_later_than_that_or_without_a_fault_is_nobody_s_outcome() -> None:
    incidents = Incidents(1)
    assert incidents.found(boot(0)) == []
    incidents.found(hit(1, severity="warning"))
    assert "outcome" not in whats(incidents.found(boot(2)))
    incidents.found(hit(10, "linux.panic"))
    run(incidents, 10, 131)

    assert "outcome" not in whats(incidents.found(boot(131)))


def test_a_boot_of_another_port_is_no_outcome() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))

    assert incidents.found(boot(1, port="dut2")) == []


def test_silence_for_60_s_after_a_critical_fault_is_a_halt() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    print_lines(incidents, 10)
    told = run(incidents, 0, 69.9)
    assert "outcome" not in whats(told)

    (change,) = tick(incidents, 70)
    assert (change.what, change.incident.outcome) == ("outcome", "halted")


def test_a_line_that_says_something_is_a_line_like_any_other() -> None:
    outcomes = []
    for is_found in (True, False):  # before it is counted
        incidents = Incidents(1)
        incidents.found(hit(1, seq=1))
        incidents.lines("dut1", 1, 1 * S)
        if is_found:
            incidents.found(hit(200, "uboot.resetting", 2, severity="note"))
        incidents.lines("dut1", 1, 200 * S)
        incidents.tick(200 * S, UTC + 200 * S)
        outcomes.append(incidents.open()[0].outcome)

    assert outcomes == ["continued", "continued"]


def test_silence_after_a_mere_error_tells_nothing() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, severity="error"))

    assert "outcome" not in whats(run(incidents, 0, 200))


def test_a_reboot_after_a_halt_is_told_as_well() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    run(incidents, 0, 90)
    assert only(incidents).outcome == "halted"
    incidents.found(boot(90))

    assert only(incidents).outcome == "rebooted"


def test_a_boot_is_the_outcome_of_the_crash_before_it_and_not_of_an_older_fault() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "mine.motor_stall", severity="error"))
    run(incidents, 0, 10)
    incidents.found(hit(75, "linux.panic"))
    incidents.found(boot(80, seq=9))

    stall, panic = incidents.open()
    assert (stall.outcome, panic.outcome) == ("continued", "rebooted")


def test_a_fault_that_a_restart_came_of_did_not_just_go_on() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "esp.brownout", seq=3, severity="error"))
    restart = hit(0, "boot.unexpected_reboot", seq=4, fields={"cause": "brownout"})
    incidents.found(restart)
    incidents.found(ready(4, seq=20))

    incident = only(incidents)
    assert (incident.outcome, incident.outcome_cause) == ("rebooted", "brownout")
    assert incident.outcome_seq == 4


def test_a_start_that_tells_of_a_watchdog_is_the_outcome_of_that_very_fault() -> None:
    incidents = Incidents(1)
    incidents.found(boot(0, seq=10))
    incidents.found(hit(0, "esp.rom_wdt_reset", seq=12, severity="error", boot=2))
    incidents.found(ready(4, seq=20))

    assert (only(incidents).outcome, only(incidents).outcome_seq) == ("rebooted", 10)


def test_a_ready_marker_means_it_continued() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    (change,) = incidents.found(ready(3, seq=77))

    assert (change.what, change.incident.outcome) == ("outcome", "continued")
    assert change.incident.outcome_seq == 77


def test_60_s_of_ordinary_lines_mean_it_continued() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, severity="error"))
    told = []
    for at_s in range(1, 61):
        print_lines(incidents, at_s)
        told += tick(incidents, at_s)

    assert told[-1].incident.outcome == "continued"
    assert whats(told).count("outcome") == 1


def test_what_comes_after_the_next_boot_is_ready_is_no_part_of_it_without_a_clock_either() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, seq=5, boot=1))
    incidents.found(boot(0, seq=9))
    incidents.found(hit(0, "linux.fs_error", seq=12, boot=2, severity="error"))
    incidents.found(ready(0, seq=20))
    incidents.found(hit(0, "linux.hung_task", seq=30, boot=2, severity="error"))
    incidents.found(boot(0, seq=40, number=3))
    incidents.found(replace(ready(0, seq=50), boot=3))
    incidents.found(hit(0, "linux.soft_lockup", seq=60, boot=3, severity="error"))
    incidents.found(hit(0, seq=61, boot=3))

    told = [[each.trigger for each in i.hits] for i in incidents.open()]
    assert told == [["linux.oops", "linux.fs_error", "linux.hung_task"], ["linux.soft_lockup"]]


def test_a_ready_marker_after_the_reboot_does_not_change_the_outcome() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(boot(1))
    incidents.found(ready(4))

    assert only(incidents).outcome == "rebooted"


def test_an_unplugged_board_has_not_halted() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(hit(1, "link.port_vanished", severity="error"))
    run(incidents, 1, 200)

    assert only(incidents).outcome is None


def test_silence_and_an_unexpected_reboot_after_a_fault_are_its_consequences() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    run(incidents, 0, 30)
    incidents.found(hit(30, "link.silence", severity="error"))
    incidents.found(boot(40))
    incidents.found(hit(40, "linux.unexpected_reboot", severity="error"))

    assert only(incidents).outcome == "rebooted"
    assert len(only(incidents).hits) == 3


def test_an_unexpected_reboot_without_a_fault_before_it_opens_one() -> None:
    incidents = Incidents(1)
    incidents.found(boot(0))
    changes = incidents.found(hit(0, "linux.unexpected_reboot", severity="error"))

    assert whats(changes) == ["opened"]
    assert only(incidents).outcome is None


# Boot loops


def test_a_boot_loop_and_the_first_restart_that_nothing_explains_are_one_incident() -> None:
    incidents = Incidents(1)
    for at_s in (0, 20, 40):
        incidents.found(boot(at_s, seq=at_s + 1, cause="power_on"))
        incidents.found(hit(at_s, "linux.unexpected_reboot", seq=at_s + 1, severity="error"))
        run(incidents, at_s, at_s + 19.9)
    incidents.found(hit(60, "boot.loop", seq=61))

    incident = only(incidents)
    assert (incident.trigger, incident.count) == ("linux.unexpected_reboot", 3)
    assert incident.severity == "critical"

    incidents.found(hit(600, "boot.loop", seq=900, key="another"))
    assert len(incidents.open()) == 2


def test_a_boot_loop_and_its_crash_are_one_incident() -> None:
    incidents = Incidents(1)
    told = []
    for cycle in range(10):
        at_s, seq = cycle * 20.0, cycle * 100
        told += incidents.found(
            hit(at_s, "esp.panic", seq=seq + 50, severity="error", key="LoadProhibited")
        )
        told += run(incidents, at_s, at_s + 2)
        told += incidents.found(boot(at_s + 2, seq=seq + 101, cause="panic"))
        if cycle == 2:
            told += incidents.found(hit(at_s + 2, "boot.loop", seq=seq + 101, key="loop"))
        told += run(incidents, at_s + 2, at_s + 19.9)

    incident = only(incidents)
    assert (incident.trigger, incident.count, incident.severity) == ("esp.panic", 10, "critical")
    assert [h.trigger for h in incident.hits] == ["esp.panic", "boot.loop"]
    assert incident.outcome == "rebooted"
    # The loop is worse than the crash it came of: it is told once more, and only once.
    assert [w for w in whats(told) if w != "changed"] == [
        "opened", "outcome", "settled", "settled",
    ]  # fmt: skip


def test_a_crash_while_a_loop_incident_settles_becomes_its_root_cause() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "boot.loop", seq=9))
    incidents.found(hit(2, "esp.panic", seq=50, severity="error"))

    assert only(incidents).trigger == "esp.panic"
    assert only(incidents).severity == "critical"


def test_a_loop_without_a_text_is_an_incident_of_its_own() -> None:
    incidents = Incidents(1)
    for n in range(3):
        incidents.found(boot(n * 10.0, number=n + 1))
    changes = incidents.found(hit(20, "boot.loop"))

    assert whats(changes) == ["opened"]


def test_a_board_that_halts_and_reboots_in_turn_has_each_outcome_told_once() -> None:
    incidents = Incidents(1)
    told = []
    for cycle in range(5):
        told += incidents.found(hit(cycle * 100.0, seq=cycle * 10 + 1))
        told += run(incidents, cycle * 100.0, cycle * 100 + 90)
        told += incidents.found(boot(cycle * 100 + 90.0, seq=cycle * 10 + 5))

    assert [c.incident.outcome for c in told if c.what == "outcome"] == ["halted", "rebooted"]
    assert only(incidents).outcome == "rebooted"
    assert only(incidents).count == 5


# Links and history


def test_faults_of_several_ports_within_a_second_are_linked() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    changes = incidents.found(hit(0.9, port="dut2"))
    later = incidents.found(hit(2.5, port="dut3"))

    assert [(c.what, c.incident.linked) for c in changes] == [("opened", (1,)), ("changed", (2,))]
    assert later[0].incident.linked == ()


def test_a_bench_that_fails_at_once_is_linked_in_lists_that_can_be_read() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.garbage", port="first"))
    for n in range(63):
        incidents.found(hit(0.1 + n / 100, port=f"dut{n}"))
    linked = {i.port: i.linked for i in incidents.open()}

    assert {len(ids) for ids in linked.values()} == {MAX_LINKED}
    assert linked["dut62"] == tuple(range(63, 63 - MAX_LINKED, -1))
    assert 1 not in linked["dut40"]  # another fault than its own, and others are like it


def test_a_fault_of_the_daemon_itself_is_no_neighbour() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "serialwatch.agent", port=OWN_PORT))
    incidents.found(hit(0.1))
    incidents.found(hit(0.2, "serialwatch.disk", port=OWN_PORT))

    assert [i.linked for i in incidents.open()] == [(), ()]


def test_a_vague_fault_is_linked_by_when_it_happened() -> None:
    incidents = Incidents(1)
    incidents.found(vague(0.5))
    incidents.found(hit(0, port="dut2"))
    run(incidents, 1, 11)

    assert [i.linked for i in incidents.open()] == [(2,), (1,)]


def test_an_incident_names_the_earlier_ones_newest_first() -> None:
    incidents = Incidents(1)
    for n in range(3):
        incidents.found(hit(n * 1000.0, title=f"oops at 0x{n}00000, pid {n}"))
        run(incidents, n * 1000.0, n * 1000 + 10)

    assert incidents.open()[-1].seen_before == (2, 1)


def test_a_better_root_cause_brings_another_history() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "a.one"))
    run(incidents, 0, 10)
    incidents.found(hit(1000, "b.two", severity="warning"))
    incidents.found(hit(1001, "a.one"))
    run(incidents, 1001, 1010)
    assert incidents.open()[-1].seen_before == (1,)

    changes = incidents.found(hit(2000, "b.two", severity="warning"))
    assert changes[-1].incident.seen_before == ()


def test_the_firmware_of_a_port_is_part_of_the_fingerprint() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "linux.version", severity="note", fields={"firmware": "6.1.0"}))
    incidents.found(hit(1))

    assert only(incidents).firmware == "6.1.0"
    assert only(incidents).fingerprint == fingerprint("linux.oops", "linux.oops happened", "6.1.0")


def test_firmware_told_while_it_settles_counts() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(hit(1, "esp.elf_sha", severity="note", fields={"firmware": "abc"}))

    assert only(incidents).fingerprint == fingerprint("linux.oops", "linux.oops happened", "abc")


# States


def test_a_person_resolves_it_once() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    (change,) = incidents.resolve(1, "ann", UTC)

    assert (change.what, change.incident.state) == ("resolved", "resolved")
    assert change.incident.resolved_by == "ann"
    assert incidents.get(1) is None
    assert incidents.resolve(1, "ann", UTC) == []
    assert run(incidents, 0, 100) == []


def test_it_is_resolved_after_24_h_without_a_hit() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    run(incidents, 0, 100)
    incidents.found(hit(200))
    run(incidents, 200, 300)
    assert tick(incidents, 24 * 3600 + 199) == []

    (change,) = tick(incidents, 24 * 3600 + 201)
    assert (change.what, change.incident.resolved_by) == (
        "resolved",
        "serialwatch: no hit for 24 h",
    )


def test_states_of_the_agent_s_work() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    assert incidents.investigating(1)[0].incident.state == "investigating"
    incidents.reported(1)
    assert only(incidents).state == "reported"
    assert incidents.reported(1) == []
    assert incidents.investigating(1) == []
    assert incidents.investigating(99) == []
    assert [c.incident.state for c in run(incidents, 0, 2)] == ["reported"]


def test_a_muted_fingerprint_counts_in_state_muted() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    (change,) = incidents.mute(1, "ann", None, UTC)
    assert (change.what, change.incident.state) == ("muted", "muted")
    assert change.incident.muted_until_utc_ns == 0

    again = incidents.found(hit(1)) + run(incidents, 1, 10)
    assert {c.incident.state for c in again} == {"muted"}

    run(incidents, 10, 100)
    later = incidents.found(hit(1000))
    assert [(c.what, c.incident.state) for c in later] == [("opened", "muted")]


def test_unmute_brings_back_the_state_it_had() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.reported(1)
    incidents.mute(1, "ann", None, UTC)
    tick(incidents, 5)
    incidents.unmute(1, "ann", UTC)

    assert only(incidents).state == "reported"
    assert incidents.unmute(1, "ann", UTC) == []


def test_a_mute_for_a_time_ends_by_itself() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    run(incidents, 0, 100)
    incidents.mute(1, "ann", UTC + 3700 * S, UTC + 100 * S)
    assert tick(incidents, 3699) == []
    assert only(incidents).state == "muted"

    (change,) = tick(incidents, 3701)
    assert (change.what, change.incident.state) == ("changed", "open")


def test_muting_mutes_all_open_ones_with_the_fingerprint() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0))
    incidents.found(hit(0, port="dut2"))

    assert [c.incident.id for c in incidents.mute(2, "ann", None, UTC)] == [1, 2]


def test_a_better_root_cause_ends_the_mute_of_the_vaguer_one() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "link.rx_overrun_host", severity="warning"))
    incidents.mute(1, "ann", None, UTC)
    incidents.found(hit(1, "linux.oops"))

    assert only(incidents).state == "open"


def test_too_many_open_ones_of_a_port_resolve_the_oldest() -> None:
    incidents = Incidents(1)
    told = []
    for n in range(202):
        told += incidents.found(hit(n * 10.0, key=str(n), severity="warning"))

    assert len(incidents.open()) == 200
    assert incidents.count_open() == incidents.count_open("dut1") == {"warning": 200}
    assert incidents.count_open("dut2") == {}
    assert [c.incident.id for c in told if c.what == "resolved"] == [1, 2]


# Restart


def restored(
    *left: Incident, at_s: float = 0, mutes: dict[str, int] | None = None
) -> tuple[Incidents, list[IncidentChange]]:
    """Start again `at_s` after what was left, with a monotonic clock that began anew."""
    incidents = Incidents(1)
    history = {i.fingerprint: (i.id,) for i in left}
    changes = incidents.restore(left, mutes or {}, history, mono_ns=0, utc_ns=UTC + round(at_s * S))
    return incidents, changes


def again(at_s: float, start_s: float, *args: Any, **other: Any) -> Hit:
    """A hit after a restart at `start_s`: its monotonic time counts from there."""
    told = hit(at_s, *args, **other)
    return replace(told, mono_ns=told.mono_ns - round(start_s * S))


def test_after_a_restart_what_was_not_settled_is_settled() -> None:
    before = Incidents(5)
    before.found(hit(0, seq=3))
    before.found(hit(1, "linux.panic", seq=9))
    left = only(before)
    incidents, changes = restored(left, at_s=2)

    assert [(c.what, c.incident.is_settled) for c in changes] == [("settled", True)]
    assert replace(
        changes[0].incident,
        is_settled=False,
        opened_mono_ns=left.opened_mono_ns,
        last_mono_ns=left.last_mono_ns,
    ) == replace(left, hits=tuple(replace(h) for h in left.hits))
    assert incidents.found(again(700, 2, "other.one"))[-1].incident.id == 6


def test_after_a_restart_what_had_got_worse_is_settled_once_more() -> None:
    before = Incidents(1)
    before.found(hit(0, seq=3, severity="error"))
    run(before, 0, 8)
    told = before.found(hit(10, "linux.panic", 20, severity="critical", continues=True))[-1]
    _, changes = restored(told.incident, at_s=12)
    _, once_more = restored(changes[0].incident, at_s=20)

    assert [(c.what, c.incident.severity) for c in changes] == [("settled", "critical")]
    assert once_more == []


def test_after_a_restart_the_same_fault_still_counts_within_its_holdoff() -> None:
    before = Incidents(1)
    before.found(hit(0, seq=3, key="33"))
    run(before, 0, 100)
    incidents, _ = restored(only(before), at_s=150)
    incidents.found(again(200, 150, seq=400, key="33"))
    assert only(incidents).count == 2

    others, _ = restored(only(before), at_s=3600)
    changes = others.found(again(3610, 3600, seq=400, key="33"))
    assert "opened" in whats(changes)


def test_after_a_restart_a_hit_found_again_is_not_counted_again() -> None:
    before = Incidents(1)
    before.found(hit(0, seq=3))
    before.found(hit(1, seq=8))
    incidents, _ = restored(only(before), at_s=2)
    for seq in (3, 8):
        assert incidents.found(again(3, 2, seq=seq)) == []
    incidents.found(again(3, 2, seq=9))

    assert only(incidents).count == 3


def test_after_a_restart_a_boot_is_still_the_outcome() -> None:
    before = Incidents(1)
    before.found(hit(0, seq=3))
    incidents, _ = restored(only(before), at_s=30)
    changes = incidents.found(replace(boot(60), mono_ns=30 * S))

    assert [c.incident.outcome for c in changes] == ["rebooted"]


def test_silence_while_the_daemon_was_down_is_no_halt() -> None:
    before = Incidents(1)
    before.found(hit(0, seq=3))
    incidents, _ = restored(only(before), at_s=59)

    assert "outcome" not in whats(run(incidents, 0, 59))
    assert "outcome" in whats(run(incidents, 59, 61))


def test_after_a_restart_24_h_go_on_counting() -> None:
    before = Incidents(1)
    before.found(hit(0))
    run(before, 0, 100)
    incidents, _ = restored(only(before), at_s=23 * 3600)

    assert "resolved" not in whats(tick(incidents, 3590))
    assert "resolved" in whats(tick(incidents, 3610))


def test_mutes_and_history_survive_a_restart() -> None:
    before = Incidents(1)
    before.found(hit(0))
    run(before, 0, 100)
    left = only(before)
    incidents, _ = restored(left, at_s=1000, mutes={left.fingerprint: UTC + 2000 * S})
    (change,) = incidents.found(again(1100, 1000))

    assert change.incident.state == "muted"
    assert change.incident.seen_before == (1,)
    assert tick(incidents, 1001)[-1].incident.state == "open"


def test_a_search_is_not_stored_as_done_past_a_hit_that_is_known_here_only() -> None:
    incidents = Incidents(1)
    assert incidents.matched("dut1", 100) == 100
    incidents.found(vague(0, seq=90))
    assert incidents.matched("dut1", 100) == 89
    run(incidents, 0, 11)
    assert incidents.matched("dut1", 100) == 100

    incidents.found(vague(20, seq=150))
    incidents.found(vague(20.1, seq=151))
    assert incidents.matched("dut1", 200) == 150
    assert incidents.matched("dut2", 200) == 200
    run(incidents, 20, 22)
    assert incidents.matched("dut1", 200) == 200


# All at once


def test_whatever_comes_counts_add_up_and_every_change_is_told() -> None:
    """The last change told of each incident is how it stands, and no hit is lost or invented."""
    rng = random.Random(7)
    for _ in range(30):
        incidents = Incidents(1)
        stand: dict[int, Incident] = {}
        at_s, seq, fed = 0.0, 0, 0
        for _ in range(400):
            at_s += rng.choice([0, 0.01, 0.5, 3, 20, 400])
            seq += rng.randint(1, 80)
            port = rng.choice(["dut1", "dut2"])
            kind = rng.random()
            if kind < 0.6:
                fed += 1
                changes = incidents.found(
                    hit(
                        at_s,
                        rng.choice(["a.one", "a.two", "b.three", "boot.loop", "link.silence"]),
                        seq,
                        port=port,
                        severity=rng.choice(["warning", "error", "critical"]),
                        tier=rng.choice(["generic", "family", "specific"]),
                        key=rng.choice("xyz"),
                        opens_block=rng.random() < 0.2,
                        continues=rng.random() < 0.2,
                        parent=rng.choice(["", "a.one"]),
                    )
                )
            elif kind < 0.7:
                changes = incidents.found(boot(at_s, seq, port=port))
            elif kind < 0.8:
                changes = incidents.found(block_end(at_s, "a.one", seq))
            else:
                print_lines(incidents, at_s, rng.randint(1, 50), port)
                changes = tick(incidents, at_s)
            for change in changes:
                stand[change.incident.id] = change.incident
        for change in run(incidents, at_s, at_s + 200):
            stand[change.incident.id] = change.incident

        assert sum(h.count for i in stand.values() for h in i.hits) == fed
        assert all(i.is_settled for i in stand.values())
        assert {i.id: i for i in incidents.open()} == {
            i.id: i for i in stand.values() if i.state != "resolved"
        }
        assert [i.id for i in stand.values()] == sorted(stand)


# What leads


MMC_PANIC = ("linux.mmc_error", "boot.*")


@pytest.mark.parametrize(
    ("lesser", "leads"),
    [
        (["systemd.unit_failed"], "linux.panic"),
        (["linux.mmc_error"], "linux.mmc_error"),
        (["linux.can_bus_off", "linux.mmc_error"], "linux.mmc_error"),
        (["linux.can_bus_off", "systemd.unit_failed"], "linux.panic"),
        (["boot.storage"], "boot.storage"),
    ],
)
def test_a_crash_leads_unless_what_came_before_is_known_to_lead_to_it(
    lesser: list[str], leads: str
) -> None:
    incidents = Incidents(1)
    for at, trigger in enumerate(lesser, 1):
        incidents.found(hit(at / 10, trigger, at, severity="error"))
    incidents.found(hit(0.9, "linux.panic", 9, continues=True, led_by=MMC_PANIC))

    incident = only(incidents)
    assert (incident.trigger, incident.severity) == (leads, "critical")
    assert incident.opened_utc_ns == UTC + S // 10
    assert (
        incident.fault_utc_ns == next(h for h in incident.hits if h.trigger == leads).first_utc_ns
    )
    first = incident.first_sign
    assert (first and first.trigger) == (lesser[0] if leads != lesser[0] else None)


def test_a_crash_leads_over_another_that_came_later_and_what_is_critical_over_it() -> None:
    incidents = Incidents(1)
    incidents.found(hit(0, "user.segfault", 1, severity="error"))
    incidents.found(hit(0.1, "linux.oops", 2, led_by=()))
    incidents.found(hit(0.2, "linux.panic", 3, continues=True, led_by=()))
    assert only(incidents).trigger == "linux.oops"

    incidents = Incidents(1)
    incidents.found(hit(0, "linux.too_hot", 1))
    incidents.found(hit(0.1, "linux.oops", 2, continues=True, led_by=()))
    assert only(incidents).trigger == "linux.too_hot"


def test_a_crash_long_after_a_lesser_fault_goes_on_with_it_only_if_that_may_lead_to_it() -> None:
    for trigger, number in (("linux.mmc_error", 1), ("linux.can_bus_off", 2)):
        incidents = Incidents(1)
        incidents.found(hit(0, trigger, 1, severity="error"))
        run(incidents, 0, 9)
        incidents.found(hit(10, "linux.panic", 9, continues=True, led_by=MMC_PANIC))
        assert len(incidents.open()) == number


def test_that_it_is_worse_or_has_another_lead_is_told_once() -> None:
    incidents = Incidents(1)
    changes = incidents.found(hit(0, "uboot.env", 1, severity="warning"))
    changes += incidents.found(hit(0.2, "systemd.unit_failed", 2, severity="error"))
    for at in range(3, 12):
        changes += incidents.found(hit(at / 10, "linux.panic", at, led_by=()))
        changes += tick(incidents, at / 10)
    changes += run(incidents, 2, 9)

    told = [(c.was.trigger, c.was.severity, c.incident.trigger) for c in changes if c.was]
    assert told[0] == ("uboot.env", "warning", "systemd.unit_failed")
    assert told[1:] == [("systemd.unit_failed", "error", "linux.panic")]
