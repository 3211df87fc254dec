"""The decoder's tables, held against lines that real boards printed and against the manuals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from serialwatch.bundled import bundled_dir

_SINCE = "and a crash or restart by software since then does not show"


@pytest.fixture(scope="module")
def decoder() -> Iterator[ModuleType]:
    """The skill's own modules, imported as its process does."""
    folder = bundled_dir("skills") / "register-decode"
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        import finding

        yield finding
    finally:
        sys.dont_write_bytecode = written
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


@pytest.mark.parametrize(
    ("line", "register", "value", "says"),
    [
        (
            '"Synchronous Abort" handler, esr 0x96000004, far 0xffffffffff000000',
            "esr",
            0x96000004,
            "Data abort at the same exception level: a read met a translation fault, level 0",
        ),
        ('"Synchronous Abort" handler, esr 0x02000000', "esr", 0x2000000, "undefined instruction"),
        ('"Error" handler, esr 0xbf000002', "esr", 0xBF000002, "SError interrupt"),
        ("[ 1.1]   ESR = 0x000000008600000e", "esr", 0x8600000E, "a permission fault, level 2"),
        ("[ 1469.5] Internal error: Oops: 96000044 [#1] PREEMPT SMP", "esr", 0x96000044, "a write"),
        ("Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP", "esr", 0x96000004, "a read"),
        ("SError Interrupt on CPU1, code 0xbf000000 -- SError", "esr", None, ""),
        ("E/TC:0 0  esr 0x96000047  ttbr0 0x400000b5abe40", "esr", 0x96000047, "level 3"),
        ("[    3.3] Internal error: Oops: 805 [#1] ARM", "fsr", 0x805, "A write met a translation"),
        ("Internal error: Oops: 5 [#1] SMP ARM", "fsr", 5, "A read met a translation fault"),
        ("Internal error: : 81b [#1] SMP ARM", "fsr", 0x81B, "domain fault, second level"),
        (
            "Internal error: Oops: 8000000d [#1] SMP ARM",
            "fsr",
            0x8000000D,
            "An instruction fetch met a permission fault",
        ),
        ("Unhandled fault: alignment exception (0x011) at 0x0050cf44", "fsr", 0x11, "alignment"),
        (
            "Unhandled fault: external abort on non-linefetch (0x1008) at 0xf08",
            "fsr",
            0x1008,
            "synchronous external abort",
        ),
        (
            "Unhandled fault: imprecise external abort (0x1c06) at 0x0",
            "fsr",
            0x1C06,
            "not the culprit",
        ),
        ("ERROR:   TEE-CORE:  fsr 0x00000805  ttbr0 0x7df6203a", "fsr", 0x805, "A write"),
        ("CFSR    0x00008200", "cfsr", 0x8200, "BFAR"),
        ("CFSR: 00010000", "cfsr", 0x10000, "An undefined instruction."),
        ("arm_hardfault:  CFSR: 00010000 HFSR: 40000000", "hfsr", 0x40000000, "escalated"),
        ("041088 ICSR:0x004220b3 HFSR:0x40000000 CFSR:0x02000000", "cfsr", 0x2000000, "by zero"),
        ("[2019-09-04 17:37:28.300] BFSR : 00000082", "bfsr", 0x82, "with an error"),
        ("UFSR : 00000100", "ufsr", 0x100, "unaligned"),
        ("SCB_CFSR_UFSR:0x02 INVSTATE", "ufsr", 2, "Thumb bit"),
        ("sbi_trap_error: hart2: mcause=0xd mtval=0x15557d28e0", "mcause", 13, "Load page fault."),
        (
            "MSTATUS : 0x00001881  MTVEC   : 0x4080b7f1  MCAUSE  : 0x00000007  MTVAL   : 0x0",
            "mcause",
            7,
            "Store or AMO access fault.",
        ),
        ("<err> os:  mcause: 15, Store/AMO page fault", "mcause", 15, "Store or AMO page fault."),
        ("SAR     : 0x0000000c  EXCCAUSE: 0x0000001d", "exccause", 29, "StoreProhibited"),
        ("xtensa_user_panic: User Exception: EXCCAUSE=001d task: x", "exccause", 29, "Store"),
        ("Exception (28):", "exccause", 28, "LoadProhibited"),
        ("Fatal exception 28(LoadProhibitedCause):", "exccause", 28, "LoadProhibited"),
        ("Fatal exception (9):", "exccause", 9, "unaligned"),
        ("rst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)", "rst", 12, "esp_restart()"),
        ("rst:0x10 (RTCWDT_RTC_RESET),boot:0x1f (X)", "rst", 16, "RTC watchdog"),
        ("rst:0xc (RTC_SW_CPU_RST),boot:0x8 (X)", "rst", 12, "software"),
        (" ets Jan  8 2013,rst cause:4, boot mode:(1,6)", "rst_cause", 4, "watchdog"),
        ("Attempted to kill init! exitcode=0x0000000b", "exitcode", 11, "SIGSEGV"),
        ("Attempted to kill init! exitcode=0x00000100", "exitcode", 0x100, "status 1"),
        ("Attempted to kill init! exitcode=0x00007f00", "exitcode", 0x7F00, "was not found"),
    ],
)
def test_a_register_is_found_in_a_line(
    decoder: ModuleType, line: str, register: str, value: int | None, says: str
) -> None:
    found = {d.register: d for d in decoder.find_registers(line)}

    if value is None:
        assert register not in found
        return
    assert found[register].value == value
    assert found[register].known
    assert says.lower() in found[register].meaning.lower()


@pytest.mark.parametrize(
    "line",
    [
        "[   14.5] Internal error: Oops - BUG: 0 [#1] PREEMPT SMP",
        "arm-smmu: Unhandled context fault: fsr=0x402, iova=0x8f000",
        "compressor 0x1d, descriptor 7",
        "first:0x12 burst:0x3",
        "esr",
        "",
    ],
)
def test_other_lines_have_none(decoder: ModuleType, line: str) -> None:
    assert decoder.find_registers(line) == []


@pytest.mark.parametrize(
    ("register", "value", "fields", "bits"),
    [
        ("esr", 0x96000044, {"EC": "0x25: data abort at the same exception level"}, ["WnR"]),
        ("esr", 0x96000010, {"DFSC": "0x10: synchronous external abort"}, []),
        ("esr", 0x96000410, {"FnV": "1: FAR holds no valid address"}, ["FnV"]),
        ("esr", 0x96000061, {"DFSC": "0x21: alignment fault"}, ["WnR"]),
        ("esr", 0x93C08005, {"SAS": "8 bytes", "SRT": "register x0"}, []),
        ("esr", 0xF2000800, {"imm16": "0x800"}, []),
        ("esr", 0xBE000411, {"AET": "unrecoverable state"}, []),
        ("esr", 0xBF000002, {"IDS": "1: implementation defined syndrome"}, []),
        ("fsr", 0x1008, {"ExT": "1: external abort type bit"}, ["ExT"]),
        ("fsr", 0x0B | 0x30, {"Domain": "3"}, []),
        ("fsr", 0x206, {"LPAE": "1: long-descriptor format"}, []),
        (
            "cfsr",
            0x00008200,
            {"BFARVALID": "1: BFAR holds the address"},
            ["PRECISERR", "BFARVALID"],
        ),
        ("cfsr", 0x00000082, {}, ["DACCVIOL", "MMARVALID"]),
        ("cfsr", 0x00001000, {}, ["STKERR"]),
        ("cfsr", 0x01000000, {}, ["UNALIGNED"]),
        ("cfsr", 0x00100000, {}, ["STKOF"]),
        ("hfsr", 0x00000002, {}, ["VECTTBL"]),
        ("mcause", 0x80000007, {"Interrupt": "1", "Exception Code": "7"}, []),
        ("mcause", 0x8000000000000009, {"Interrupt": "1", "Exception Code": "9"}, []),
        ("exccause", 0, {"cause": "0: IllegalInstruction"}, []),
        ("exccause", 33, {"cause": "33: Coprocessor1Disabled"}, []),
        ("rst", 0x0F, {"class": "brownout"}, []),
        ("rst", 0x05, {"class": "sleep_wake"}, []),
        ("rst_cause", 2, {"cause": f"2: the reset pin was pulled, {_SINCE}"}, []),
        ("rst_cause", 1, {"cause": f"1: power was applied, {_SINCE}"}, []),
        ("exitcode", 0x8B, {"signal": "11: SIGSEGV", "core_dumped": "1"}, []),
    ],
)
def test_a_value_is_taken_apart(
    decoder: ModuleType, register: str, value: int, fields: dict[str, str], bits: list[str]
) -> None:
    decoded = decoder.DECODERS[register](value)

    assert decoded.known
    assert decoded.register == register
    assert dict(decoded.fields).items() >= fields.items()
    assert list(decoded.bits) == bits
    assert decoded.meaning.endswith(".")
    assert decoded.source


@pytest.mark.parametrize(
    ("register", "value"),
    [
        ("esr", 0x2 << 26),
        ("esr", 0x3F << 26),
        ("fsr", 0x00),
        ("fsr", 0x0A),
        ("cfsr", 0x40),
        ("hfsr", 0x4),
        ("mcause", 14),
        ("mcause", 64),
        ("mcause", 0x80000008),
        ("exccause", 19),
        ("exccause", 40),
        ("rst", 0x02),
        ("rst", 0x19),
        ("rst_cause", 9),
        ("exitcode", 0x10000),
        ("exitcode", 0x20),
    ],
)
def test_what_the_manual_does_not_define_is_unknown(
    decoder: ModuleType, register: str, value: int
) -> None:
    decoded = decoder.DECODERS[register](value)

    assert not decoded.known
    assert "unknown" in decoded.meaning


def test_every_value_of_every_register_gives_an_answer(decoder: ModuleType) -> None:
    values = [*range(1024), *(1 << bit for bit in range(64)), *(n << 26 for n in range(64)), 2**64]
    for register, decode in decoder.DECODERS.items():
        for value in values:
            assert decode(value).register == register


def test_a_status_that_only_data_can_have_is_unknown_for_a_fetch(decoder: ModuleType) -> None:
    assert "does not define" in decoder.decode_esr(0x86000021).meaning


def test_no_fault_recorded_is_said(decoder: ModuleType) -> None:
    assert decoder.decode_cfsr(0).meaning == "No fault is recorded."


def test_reserved_bits_beside_known_ones_are_said(decoder: ModuleType) -> None:
    assert "reserved bits 0x40 are set too" in decoder.decode_cfsr(0x42).meaning


def test_the_name_that_the_rom_prints_decides_between_chips(decoder: ModuleType) -> None:
    meanings = {
        text: decoder.find_registers(text)[0].meaning
        for text in ("rst:0x17 (POWER_GLITCH_RESET)", "rst:0x17 (CHIP_USB_UART_RESET)", "rst:0x17")
    }

    assert list(meanings.values()) == [
        "A glitch on the supply (ESP32-S3, C3).",
        "The host reset it through USB serial (ESP32-P4).",
        "A glitch on the supply (ESP32-S3, C3), or the host reset it through USB serial (ESP32-P4).",
    ]


def test_reasons_of_esp_idf_are_named_beside_the_exception(decoder: ModuleType) -> None:
    decoded = decoder.decode_exccause(5)

    assert decoded.meaning.startswith("Alloca")
    assert "interrupt watchdog on CPU 0" in decoded.meaning


def test_a_low_boot_pin_is_said(decoder: ModuleType) -> None:
    (decoded,) = decoder.find_registers("rst cause:2, boot mode:(1,6)")

    assert "GPIO0 is low" in decoded.meaning
    assert decoded.fields["boot_mode"] == "1: UART download"


def test_several_registers_of_a_line_come_in_order_and_once(decoder: ModuleType) -> None:
    found = decoder.find_registers("HFSR:0x40000000 CFSR:0x02000000 CFSR:0x02000000")

    assert [(d.register, hex(d.value)) for d in found] == [
        ("hfsr", "0x40000000"),
        ("cfsr", "0x2000000"),
    ]


def test_a_long_line_costs_little(decoder: ModuleType) -> None:
    assert decoder.find_registers("esr " * 300_000) == []


@pytest.mark.parametrize(
    ("line", "register", "says"),
    [
        ("#PF: error_code(0x0002) - not-present page", "pf_error",
         "a write by the kernel met a page that is not there"),
        ("[    3.1] Oops: 0003 [#1] PREEMPT SMP", "pf_error",
         "a write by the kernel met a page that is there but may not be used so"),
        ("[    3.1] Oops: Oops: 0010 [#1] SMP NOPTI", "pf_error", "an instruction fetch"),
        ("Cause : 00800008 (ExcCode 02)", "mips_cause", "load or fetch from where nothing is mapped"),
        ("Cause : 10800024 (ExcCode 09)", "mips_cause", "breakpoint"),
        ("SFSR: 00000048", "sfsr", "not Secure touched what is Secure; SFAR holds the address"),
        ("r14/lr:  0xfffffffd", "exc_return", "thread mode; its registers are on the process stack"),
        ("LR = 0xFFFFFFF1", "exc_return", "handler mode"),
        ("EXC_RETURN 0xffffffe9", "exc_return", "main stack"),
    ],
)  # fmt: skip
def test_further_machines(decoder: ModuleType, line: str, register: str, says: str) -> None:
    (found,) = decoder.find_registers(line)

    assert (found.register, found.known) == (register, True)
    assert says in found.meaning


@pytest.mark.parametrize(
    "line",
    [
        "LR = 0xffffffff",  # reset value, no return from an exception
        "lr : ffffffc008010000",
        "Oops[#1]:",
        "root Cause : unknown",
        "general protection fault, probably for non-canonical address 0x1: 0000 [#1]",
    ],
)
def test_what_only_looks_like_them(decoder: ModuleType, line: str) -> None:
    assert decoder.find_registers(line) == []


def test_the_frame_of_an_exception_return(decoder: ModuleType) -> None:
    found = decoder.DECODERS["exc_return"]

    assert found(0xFFFFFFE9).fields["FType"] == "0: floating-point registers are in it"
    assert found(0xFFFFFFF9).fields["FType"] == "1: floating-point registers are not in it"
    assert found(0xFFFFFFBC).known  # ARMv8-M
    assert not found(0xFFFFFF00).known
    assert not found(0x08001235).known
