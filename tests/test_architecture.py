"""Advice fits the processor that the dump is of."""

from __future__ import annotations

import pytest

from serialwatch.agent.offline.architecture import architecture_of, fitted


@pytest.mark.parametrize(
    ("line", "architecture"),
    [
        (" ** CPU 0 EXCCAUSE 28 (load prohibited)", "xtensa"),
        ("Core  0 register dump: MEPC    : 0x42005a3e", "riscv"),
        ("E:  mcause: 5, Load access fault", "riscv"),
        ("E: ***** MPU FAULT *****", "cortexm"),
        ("CFSR: 0x00008200", "cortexm"),
        ('"Synchronous Abort" handler, esr 0x96000004', "arm64"),
        ("[   10.1] PC is at adc_read+0x2c/0x90", "arm"),
        ("[    2.1] RIP: 0010:foo+0x1/0x2", "x86"),
        ("E: ***** Exception vector: 0x6, cause code: 0x0, parameter 0x80", "arc"),
        ("the motor runs", ""),
    ],
)
def test_a_dump_tells_its_processor(line: str, architecture: str) -> None:
    assert architecture_of(["boot", line]) == architecture


@pytest.mark.parametrize(
    ("advice", "architecture", "told"),
    [
        (
            "read BFAR, MMFAR, mtval or VADDR: what lies there?",
            "riscv",
            "read mtval: what lies there?",
        ),
        (
            "read BFAR, MMFAR, mtval or VADDR: what lies there?",
            "cortexm",
            "read BFAR or MMFAR: what lies there?",
        ),
        ("disable the write buffer (ACTLR.DISDEFWBUF on Cortex-M3/M4)", "xtensa", ""),
        ("disable the write buffer (ACTLR.DISDEFWBUF on Cortex-M3/M4)", "cortexm", "=="),
        ("decode CFSR first", "riscv", ""),
        ("decode CFSR first", "", "=="),
        ("look at the power supply", "riscv", "=="),
        ("read EXCVADDR (Xtensa) or MTVAL (RISC-V)", "xtensa", "=="),
        ("far from the board", "riscv", "=="),
    ],
)
def test_registers_of_other_processors_are_left_out(
    advice: str, architecture: str, told: str
) -> None:
    assert fitted(advice, architecture) == (advice if told == "==" else told)
