"""backtrace-decode with ELF files that the compiler here makes, and what boards print."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from saved_log import SavedLog
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.worker import Workers
from serialwatch.bundled import bundled_dir
from serialwatch.store.incidents import save_change
from skill_run import opened_database, opened_run, run_skill
from test_context import incident

SOURCE = """\
static int inner(int *p) {
    return *p + 1;
}
static inline __attribute__((always_inline)) int middle(int *p) {
    int seen = inner(p);
    return seen * 3;
}
__attribute__((noinline)) int outer(int *p) {
    int x = middle(p);
    return x + 2;
}
__attribute__((noinline)) int caller(int *p) {
    return outer(p) + 1;
}
int main(int argc, char **argv) {
    return caller((int *)(long)argc);
}
"""
GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="needs gcc, to make an ELF file")


@dataclass(frozen=True)
class Program:
    path: Path
    build_id: str

    def address(self, name: str) -> int:
        listed = subprocess.run(["nm", self.path], capture_output=True, text=True, check=True)
        found = re.search(rf"^([0-9a-f]+) \w {name}$", listed.stdout, re.MULTILINE)
        assert found, name
        return int(found[1], 16)

    def size(self, name: str) -> int:
        listed = subprocess.run(["nm", "-S", self.path], capture_output=True, text=True, check=True)
        found = re.search(rf"^[0-9a-f]+ ([0-9a-f]+) \w {name}$", listed.stdout, re.MULTILINE)
        assert found, name
        return int(found[1], 16)

    def return_into(self, name: str) -> int:
        """Return the address after the call in a function."""
        shown = subprocess.run(
            ["objdump", "-d", self.path], capture_output=True, text=True, check=True
        ).stdout
        body = shown.split(f"<{name}>:\n")[1].split("\n\n")[0].splitlines()
        at = next(i for i, line in enumerate(body) if "\tcall" in line)
        return int(body[at + 1].split(":")[0], 16)


def compiled(folder: Path, *flags: str, name: str = "program") -> Program:
    (folder / "program.c").write_text(SOURCE)
    path = folder / name
    subprocess.run(
        [GCC or "gcc", "-O1", "-no-pie", *flags, "-o", path.name, "program.c"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True)
    found = re.search(r"Build ID: ([0-9a-f]+)", notes.stdout)
    return Program(path, found[1] if found else "")


@pytest.fixture(scope="module", params=["4", "5"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp(f"dwarf{request.param}")
    return compiled(folder, "-g", f"-gdwarf-{request.param}", "-Wl,--build-id")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(tmp_path_factory.mktemp("plain"), "-Wl,--build-id=none")


class Crash:
    """A port with a firmware file."""

    def __init__(self, folder: Path) -> None:
        self.log = SavedLog(folder / "log")
        self.log_dir = folder / "log"
        self.elfs: dict[str, str] = {}
        self.ctx: CtxServer

    async def decode(self, **params: Any) -> dict[str, Any]:
        result = await run_skill(self.ctx, "backtrace-decode", **params)
        assert result.status == "success", result
        return dict(result.output)


@pytest.fixture
def crash(tmp_path: Path) -> Iterator[Crash]:
    made = Crash(tmp_path)
    with opened_run(
        [bundled_dir("skills")], log_dir=made.log_dir, port="dut1", elfs=made.elfs
    ) as ctx:
        made.ctx = ctx
        yield made


def functions(frame: dict[str, Any]) -> list[str]:
    return [place["function"] for place in frame["places"]]


@needs_gcc
async def test_an_address_has_function_file_line_and_what_is_inlined(
    crash: Crash, program: Program
) -> None:
    crash.elfs["dut1"] = str(program.path)

    found = await crash.decode(addresses=[hex(program.address("outer"))])

    (frame,) = found["frames"]
    assert functions(frame) == ["inner", "middle", "outer"]
    ends = [place["at"].rpartition("program.c:")[2] for place in frame["places"]]
    assert ends == ["2", "5", "9"]
    assert found["elf"]["build_id"] == program.build_id
    assert found["is_trustworthy"] is None


@needs_gcc
async def test_a_return_address_belongs_to_the_call_before_it(
    crash: Crash, program: Program
) -> None:
    crash.elfs["dut1"] = str(program.path)
    after_call = program.return_into("caller")
    crash.log.add(f"PC : 0x{program.address('outer'):08x}  LR : 0x{after_call:08x}")

    pc, lr = (await crash.decode(first=1, last=1))["frames"]

    assert (pc["role"], functions(pc)[-1]) == ("pc", "outer")
    assert (lr["role"], functions(lr)) == ("lr", ["caller"])
    assert lr["places"][0]["at"].endswith("program.c:13")
    assert (pc["seq"], lr["seq"]) == (1, 1)


@needs_gcc
async def test_an_esp_backtrace_is_decoded_frame_by_frame(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    addresses = [program.address("outer"), program.address("caller"), 0x40001234]
    pairs = " ".join(f"0x{a:08x}:0x3ffb1230" for a in addresses)
    crash.log.add(
        "Guru Meditation Error: Core  0 panic'ed (LoadProhibited).", f"Backtrace: {pairs}"
    )

    frames = (await crash.decode(first=1, last=2))["frames"]

    assert [functions(f)[-1:] for f in frames] == [["outer"], ["caller"], []]
    assert "ROM" in frames[2]["why"]


@needs_gcc
async def test_the_file_of_another_build_is_never_trusted(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    crash.log.add("ELF file SHA256:  0123456789abcdef", f"PC : 0x{program.address('outer'):08x}")

    found = await crash.decode(first=2, last=2)

    assert found["is_trustworthy"] is False
    assert found["trust"].startswith("NOT trustworthy")
    assert found["checks"][0] | {"file": ""} == {
        "kind": "sha256", "printed": "0123456789abcdef", "file": "", "fits": False, "seq": 1,
    }  # fmt: skip


@needs_gcc
@pytest.mark.parametrize("kind", ["sha256", "build_id"])
async def test_an_id_that_fits_is_said(crash: Crash, program: Program, kind: str) -> None:
    crash.elfs["dut1"] = str(program.path)
    sha256 = hashlib.sha256(program.path.read_bytes()).hexdigest()
    lines = {
        "sha256": f"I (123) cpu_start: ELF file SHA256:  {sha256[:9]}...",
        "build_id": f"Firmware Build ID: {program.build_id}",
    }
    crash.log.add(lines[kind], f"PC : 0x{program.address('outer'):08x}")

    found = await crash.decode(first=2, last=2)

    assert (found["is_trustworthy"], found["checks"][0]["fits"]) == (True, True)


@needs_gcc
async def test_the_newest_printed_id_counts(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    sha256 = hashlib.sha256(program.path.read_bytes()).hexdigest()
    crash.log.add("ELF file SHA256: 0123456789", f"ELF file SHA256: {sha256[:10]}")

    assert (await crash.decode(addresses=["0x10"]))["is_trustworthy"] is True


@needs_gcc
async def test_a_linux_trace_is_decoded_by_name(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    crash.log.add(
        f"[    3.1] pc : outer+0x0/0x{program.size('outer'):x}",
        "[    3.1] Call trace:",
        f"[    3.1]  caller+0x{program.return_into('caller') - program.address('caller'):x}"
        f"/0x{program.size('caller'):x}",
        "[    3.1]  usb_probe+0x10/0x40 [usbcore]",
        "[    3.1]  nowhere+0x10/0x40",
    )

    found = await crash.decode(first=1, last=5)

    pc, call, module, nowhere = found["frames"]
    assert functions(pc) == ["inner", "middle", "outer"]
    assert functions(call) == ["caller"]
    assert "module usbcore" in module["why"]
    assert "no function nowhere" in nowhere["why"]
    assert found["trust"].startswith("likely")


@needs_gcc
async def test_a_function_of_another_size_is_another_build(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    crash.log.add("[    3.1] pc : outer+0x4/0x9f0")

    found = await crash.decode(first=1, last=1)

    assert found["is_trustworthy"] is False
    assert "0x9f0 bytes long on the board" in found["mismatches"][0]


@needs_gcc
async def test_without_debug_information_functions_are_known_still(
    crash: Crash, plain: Program
) -> None:
    crash.elfs["dut1"] = str(plain.path)

    found = await crash.decode(addresses=[hex(plain.address("caller") + 1)])

    assert found["frames"][0]["places"] == [{"function": "caller"}]
    assert "no debug information" in found["no_lines"]
    assert found["elf"]["build_id"] == ""


@needs_gcc
async def test_words_of_a_stack_dump_are_candidates_only(crash: Crash, program: Program) -> None:
    crash.elfs["dut1"] = str(program.path)
    word = program.return_into("caller")
    crash.log.add(
        "Stack memory:",
        f"3fc91230: 0x{word:08x} 0x00000003 0x3fc91280 0xdeadbeef",
        "done: 12345678",
    )

    (frame,) = (await crash.decode(first=1, last=3))["frames"]

    assert (frame["role"], functions(frame)) == ("stack", ["caller"])


@needs_gcc
async def test_the_block_of_the_incident_is_decoded_if_nothing_is_said(
    crash: Crash, program: Program, tmp_path: Path
) -> None:
    crash.elfs["dut1"] = str(program.path)
    crash.log.add("ok", "Guru Meditation", f"PC : 0x{program.address('outer'):08x}", "after")
    path = tmp_path / "serialwatch.db"
    with (
        opened_database(path) as db,
        opened_run(
            [bundled_dir("skills")], log_dir=crash.log_dir, db_path=path, port="dut1", incident=1,
            elfs=crash.elfs,
        ) as ctx,
    ):  # fmt: skip
        save_change(db, replace(incident(1, "esp.guru"), block_first=2, last_seq=3))
        found = await run_skill(ctx, "backtrace-decode")

    (frame,) = found.output["frames"]
    assert (functions(frame)[-1], frame["seq"]) == ("outer", 3)


async def test_without_a_file_it_says_how_to_configure_one(crash: Crash) -> None:
    crash.log.add("Backtrace: 0x400d1234:0x3ffb1230 0x400d2345:0x3ffb1250")

    found = await crash.decode(first=1, last=1)

    assert found["no_data"] is True
    assert "[port.dut1]" in found["how"]
    assert [f["address"] for f in found["frames"]] == ["0x400d1234", "0x400d2345"]


async def test_a_file_that_is_none_or_missing_is_a_failure_that_names_it(
    crash: Crash, tmp_path: Path
) -> None:
    crash.elfs["dut1"] = str(tmp_path / "gone.elf")
    missing = await run_skill(crash.ctx, "backtrace-decode", addresses=["0x10"])
    (tmp_path / "gone.elf").write_bytes(b"no ELF at all")
    wrong = await run_skill(crash.ctx, "backtrace-decode", addresses=["0x10"])

    assert error_code(missing) == error_code(wrong) == "precondition"
    assert "gone.elf: No such file" in missing.metadata["error"]["detail"]
    assert "no ELF file" in wrong.metadata["error"]["detail"]


@needs_gcc
async def test_the_worker_can_read_the_file_of_the_port_that_is_meant(
    crash: Crash, program: Program, tmp_path: Path
) -> None:
    crash.elfs["dut1"] = str(program.path)
    async with Workers() as workers:
        good = await workers.run("backtrace-decode", {"addresses": ["0x10"]}, crash.ctx)
        other = await workers.run("backtrace-decode", {"addresses": ["0x10"], "port": "dut3"},
                                  crash.ctx)  # fmt: skip

    assert good.output["elf"]["path"] == str(program.path)
    assert good.metadata["taint"] == "dut"
    assert other.output["elf"] is None


async def test_thumb_bits_and_exception_returns_of_a_cortex_m(crash: Crash, tmp_path: Path) -> None:
    crash.elfs["dut1"] = str(tmp_path / "mcu.elf")
    (tmp_path / "mcu.elf").write_bytes(arm_elf({"reset": 0x08000101, "fail": 0x08000111}))
    crash.log.add("PC = 0x08000113  LR = 0x08000111", "LR = 0xfffffff9")

    pc, lr, special = (await crash.decode(first=1, last=2))["frames"]

    assert functions(pc) == ["fail"]
    assert functions(lr) == ["reset"]  # the call is the last one of `reset`
    assert "EXC_RETURN" in special["why"]


def arm_elf(symbols: dict[str, int]) -> bytes:
    """Return an ELF file of a Cortex-M: 16 bytes of code a symbol, from 0x08000100 on."""
    names, table = b"\0", bytes(16)
    for name, address in symbols.items():
        table += struct.pack("<IIIBBH", len(names), address, 16, 0x12, 0, 1)
        names += name.encode() + b"\0"
    section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    blobs = [bytes(16 * len(symbols)), table, names, section_names]
    offsets = [52 + sum(map(len, blobs[:i])) for i in range(4)]
    kinds = [(1, 1, 6, 0x08000100, 0, 0), (7, 2, 0, 0, 3, 16), (15, 3, 0, 0, 0, 0),
             (23, 3, 0, 0, 0, 0)]  # fmt: skip
    headers = bytes(40)
    for blob, offset, (name, kind, flags, address, link, entry) in zip(
        blobs, offsets, kinds, strict=True
    ):
        headers += struct.pack(
            "<10I", name, kind, flags, address, offset, len(blob), link, 0, 4, entry
        )
    at = 52 + sum(map(len, blobs))
    head = b"\x7fELF\1\1\1" + bytes(9)
    head += struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, 0, 0, at, 0, 52, 0, 0, 40, 5, 4)
    return head + b"".join(blobs) + headers


@pytest.fixture
def finding() -> Iterator[ModuleType]:
    folder = str(bundled_dir("skills") / "backtrace-decode")
    sys.path.insert(0, folder)
    hidden = sys.modules.pop("finding", None)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        import finding as found  # type: ignore[import-not-found]

        yield found
    finally:
        sys.dont_write_bytecode = written
        sys.path.remove(folder)
        sys.modules.pop("finding", None)
        if hidden is not None:
            sys.modules["finding"] = hidden


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("E: r15/pc:  0x00001234 ... Faulting instruction address (r15/pc): 0x00001a2c",
         [("pc", 0x1234), ("pc", 0x1A2C)]),
        ("MEPC    : 0x42007e5c  RA      : 0x42007e52  SP      : 0x3fc91230",
         [("pc", 0x42007E5C), ("lr", 0x42007E52)]),
        ("[15:PC] pc=08001235 lr=08000fff psr=61000000", [("pc", 0x8001235), ("lr", 0x8000FFF)]),
        ("elr: 0000000000010430 lr : 0000000000010428 (reloc)",
         [("pc", 0x10430), ("lr", 0x10428)]),
        ("     0: fp: 0x2000a0  ra: 0x80001234", [("lr", 0x80001234)]),
        ("backtrace| 2: 0x08000b44 0x08000c10", [("frame", 0x8000B44), ("frame", 0x8000C10)]),
        ("pc : [<c0101234>]    lr : [<c0105678>]    psr: 60000013",
         [("pc", 0xC0101234), ("lr", 0xC0105678)]),
        ("ELR_ELn: 0x0000000040001234", [("pc", 0x40001234)]),
        ("PC      : 0x400d1234  PS      : 0x00060030  A0      : 0x800d2345", [("pc", 0x400D1234)]),
        ("Backtrace:0x400d1234:0x3ffb1230 0x400d2345:0x3ffb1250 |<-CORRUPTED",
         [("pc", 0x400D1234), ("call", 0x400D2345)]),
        ("rip: ffffffff81000010", [("pc", 0xFFFFFFFF81000010)]),
        ("r0/a1:  0x20001000  r1/a2:  0x00000000", []),
        ("the lr of 12345678 customers", []),
    ],
)  # fmt: skip
def test_addresses_are_found_in_what_boards_print(
    finding: ModuleType, line: str, expected: list[tuple[str, int]]
) -> None:
    found = finding.find_addresses([(7, line)])

    assert [(f.role, f.address) for f in found] == expected


def test_a_linux_trace_has_names_offsets_and_modules(finding: ModuleType) -> None:
    lines = [
        (1, "RIP: 0010:usb_probe+0x12/0x340"),
        (2, " [<c0105678>] (do_init+0x10/0x20) from [<c0101234>] (start+0x8/0x30)"),
        (3, " cfg_scan+0x1c/0x80 [cfg80211]"),
        (4, "pc : die+0x0/0x10"),
    ]

    found = finding.find_addresses(lines)

    assert [(f.role, f.name, f.offset, f.size, f.module) for f in found] == [
        ("pc", "usb_probe", 0x12, 0x340, ""),
        ("frame", "do_init", 0x10, 0x20, ""),
        ("frame", "start", 0x8, 0x30, ""),
        ("frame", "cfg_scan", 0x1C, 0x80, "cfg80211"),
        ("pc", "die", 0, 0x10, ""),
    ]
    assert [f.address for f in found][1:3] == [0xC0105678, 0xC0101234]


def test_u_boots_second_pair_where_it_runs_is_left_out(finding: ModuleType) -> None:
    lines = [
        (1, "elr: 0000000000010430 lr : 0000000000010428 (reloc)"),
        (2, "elr: 000000007ff40430 lr : 000000007ff40428"),
    ]

    assert [f.address for f in finding.find_addresses(lines)] == [0x10430, 0x10428]


@pytest.mark.parametrize(
    "line",
    [
        "backtrace: " + "0x12345678            " * 200 + "x",
        "Backtrace: " + "0x12345678:0x12345678 " * 200 + "!",
        "pc" + " " * 5000 + "x",
        "pc " * 2000,
        "a" * 5000 + "+0x",
        "x" * 100 + "+0x1/0x" + "g" * 3000,
        "[<" + "a" * 3000,
        "12345678: " + "12345678 " * 500 + "x",
    ],
)
def test_no_line_takes_long(finding: ModuleType, line: str) -> None:
    began = time.process_time()
    finding.find_addresses([(1, "Stack memory:"), (2, line), (3, line)])

    assert time.process_time() - began < 0.3
