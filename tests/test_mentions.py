from __future__ import annotations

import pytest

from serialwatch.triggers.check import hits_of
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.mentions import is_mention
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.rules import parse_rules

OVERFLOW = r"(?i)stack overflow(?: in task \w)?"
PANIC = "(?i)panic(?: - not syncing)?:?"
ASSERT = r"(?i)\bassert(?:ion)?\b.*\bfail(?:ed)?\b"
FAULT = r"\bHardFault(?:_Handler)?\b"


def is_only_mentioned(pattern: str, line: str) -> bool:
    return is_mention(LineView(line.encode()), [compile_pattern(pattern)])


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        # A status.
        (r"panic: \S", "panic: none"),
        (r"panic: \S", "[00:00:12] panic: disabled."),
        (OVERFLOW, "Stack overflow in task display: no"),
        (OVERFLOW, "stack overflow in task stacks: 0"),
        (OVERFLOW, "stack overflow check is enabled"),
        (FAULT, "HardFault: never"),
        (FAULT, "HardFault count = 0"),
        (FAULT, "HardFault was seen 0 times since the update"),
        (FAULT, "fault log: no HardFault since the update"),
        (ASSERT, "assertion failed count: 0"),
        (ASSERT, "self-test: 0 assertions, no assertion failed"),
        ("(?i)uncorrectable", "nand0: Uncorrectable ECC errors: 0"),
        ("i2c.*timeout", "i2c bus timeout 0"),
        # A name.
        ("i2c.?timeout", "  CC      drivers/i2c_timeout.o"),
        (FAULT, "HardFault_Handler = 0x08002c51"),
        (FAULT, "08002c51 T HardFault_Handler"),
        # Source code, a text that is not filled in.
        (PANIC, '\tpr_emerg("Kernel panic - not syncing: %s\\n", text);'),
        (PANIC, "Kernel panic - not syncing: %s"),
        (OVERFLOW, 'if (n > max) die("stack overflow");'),
        (OVERFLOW, '    ESP_LOGE(TAG, "stack overflow in task m\\n"'),
        # A page, a document, a mail, a help text.
        (PANIC, "<h2>Kernel panic - not syncing: no root</h2>"),
        (PANIC, "<p>see Kernel panic - not syncing"),
        (PANIC, "/usr/share/doc/pump/README:12:  Kernel panic - not syncing"),
        (PANIC, 'docs/boot.md:7:If you see "Kernel panic - not syncing", then'),
        (PANIC, 'If the pump stops, "Kernel panic - not syncing" is printed.'),
        (PANIC, 'What does "Kernel panic - not syncing" mean?'),
        (PANIC, 'grep -c "Kernel panic" boot.log'),
        (PANIC, "  --crash-test  makes a panic: for tests"),
        (OVERFLOW, "pump: fix stack overflow in the display"),
        (OVERFLOW, "TODO: why this stack overflow?"),
        (ASSERT, "assert    - fail an assertion failed on purpose"),
        (ASSERT, "assertion failed in fifo.h is no longer seen"),
    ],
)
def test_a_line_that_only_mentions_a_fault_is_known(pattern: str, line: str) -> None:
    assert is_only_mentioned(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"panic: \S", "panic: not implemented"),
        (r"panic: \S", "panic: no memory for the display"),
        (r"panic: \S", "panic: off by one"),
        (OVERFLOW, "Stack overflow in task off_timer"),
        (OVERFLOW, "Stack overflow in task none"),
        (ASSERT, "Assertion failed: mode != off"),
        (ASSERT, "Assertion failed: mode == 0"),
        (ASSERT, 'assertion "mode == OFF" failed: file "pump.c", line 88'),
        (ASSERT, "pump.c:88: Assertion failed: rx < 0"),
        (FAULT, "HardFault_Handler: pc = 0x08002c50"),
        (FAULT, "HardFault on core: 0"),
        (FAULT, "HardFault, code 0"),
        (FAULT, "HardFault status: 0"),
        ("tank is low", "tank is low: 0"),
        (FAULT, "E: HardFault"),
        ('"Synchronous Abort" handler', '"Synchronous Abort" handler, esr 0x96000004'),
        ("no init found", "no init found"),
        ("error -?110", "mmc0: error -110 with 50% of the blocks written"),
        (PANIC, "-sh: ./pump: Kernel panic - not syncing: Fatal exception"),
        (PANIC, 'level=error msg="panic: index out of range"'),
        (PANIC, '{"log":"panic: index out of range\\n","stream":"stderr"}'),
        ("device error", "E/TC:0 0 device error at 0x2c"),
    ],
)
def test_a_fault_is_no_mention_of_one(pattern: str, line: str) -> None:
    assert not is_only_mentioned(pattern, line)


def test_a_rule_that_asks_for_the_value_means_it() -> None:
    assert not is_only_mentioned(r"door: off\b", "door: off")
    assert is_only_mentioned(r"door: \w", "door: off")


def test_what_a_kernel_prints_itself_is_no_source_code() -> None:
    assert is_only_mentioned(PANIC, "Kernel panic - not syncing: %s")
    assert not is_only_mentioned(PANIC, "[   12.118003] Kernel panic - not syncing: %s")


def test_a_line_is_told_if_it_also_says_it_in_earnest() -> None:
    view = LineView(b"resets: 0, pump fault 7")

    assert not is_mention(view, [compile_pattern("resets"), compile_pattern(r"fault \d")])


def test_no_rule_hits_a_mention() -> None:
    rules = parse_rules(
        """[[rule]]
id = "mine.fault"
title = "{what}"
severity = "error"
tier = "specific"
match = ['pump (?P<what>fault)']
fields = 'pump (?P<what>fault)'
"""
    )
    matcher = Matcher(rules)

    assert [hit.trigger for hit in hits_of(matcher, "pump fault 7")] == ["mine.fault"]
    assert hits_of(matcher, "pump fault: none") == []


@pytest.mark.parametrize(
    "line",
    ["[W] can0: bus-off", "E (4411) can0: bus-off", "[00:00:05.000,410] <err> can0: bus-off"],
)
def test_the_logger_of_a_small_system_is_not_linux(line: str) -> None:
    rules = parse_rules(
        """[[rule]]
id = "linux.can"
title = "bus off"
severity = "error"
tier = "specific"
match = ['can0: bus-off']
"""
    )
    matcher = Matcher(rules)

    assert hits_of(matcher, line) == []
    assert len(hits_of(matcher, "[   12.118003] mcp251xfd can0: bus-off")) == 1
