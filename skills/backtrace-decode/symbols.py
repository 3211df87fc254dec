"""Function, file and line of an address, from an ELF file: DWARF 4 and 5, else its symbol table."""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

MAX_DWARF = 160 * 1024 * 1024  # bytes of debug sections: more does not fit into the worker
MAX_NAME = 160  # characters
MAX_PATH = 120
MAX_ID = 128  # hexadecimal digits
_EXEC = 0x4 | 0x2  # SHF_EXECINSTR, SHF_ALLOC
_FUNC = 2  # STT_FUNC
_NO_TYPE = 0
# What reading a file that is damaged, or changes while it is read, may raise.
BROKEN = (
    ConstructError,
    ELFError,
    DWARFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    struct.error,
    zlib.error,
    OverflowError,
    RecursionError,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Place:
    """One function at an address, and where in it."""

    function: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function of the symbol table."""

    address: int
    size: int  # 0: up to the next one
    name: str


@dataclass(slots=True)
class Firmware:
    """An ELF file; use it while the file is open."""

    path: Path
    elf: Any
    sha256: str
    symbols: list[Symbol] = field(default_factory=list)
    dwarf: Any = None
    why_no_lines: str = ""
    _addresses: list[int] = field(default_factory=list)
    _ranges: list[tuple[int, int]] = field(default_factory=list)
    _units: list[tuple[int, int, Any]] | None = None
    _tables: dict[int, list[tuple[int, int, str, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, stream: BufferedReader) -> Firmware:
        """Read the header, the symbols and where debug information is.

        Raises:
            ELFError: it is no ELF file.

        """
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        elf = ELFFile(stream)
        self = cls(path, elf, sha256)
        self._read_sections()
        if not elf.has_dwarf_info(strict=True):
            self.why_no_lines = "it has no debug information (built without -g, or stripped)"
        elif _dwarf_bytes(elf) > MAX_DWARF:
            self.why_no_lines = "its debug information is too large: functions only"
        else:
            try:
                self.dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
            except BROKEN as exc:
                self.why_no_lines = f"its debug information cannot be read: {exc}"[:160]
        return self

    @property
    def machine(self) -> str:
        """Return the name of the CPU."""
        return str(self.elf["e_machine"]).removeprefix("EM_")

    @property
    def build_id(self) -> str:
        """Return the GNU build id in hexadecimal digits, "" if it has none."""
        for section in self.elf.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])[:MAX_ID]
        return ""

    def holds(self, address: int) -> bool:
        """Return whether code of this file lies at an address."""
        return any(low <= address < high for low, high in self._ranges)

    def symbol_at(self, address: int) -> Symbol | None:
        """Return the function at an address by the symbol table."""
        at = bisect_right(self._addresses, address) - 1
        if at < 0:
            return None
        found = self.symbols[at]
        is_inside = address < found.address + found.size or not found.size
        return found if is_inside and self.holds(address) else None

    def named(self, name: str) -> list[Symbol]:
        """Return the functions of a name."""
        return [symbol for symbol in self.symbols if symbol.name == name]

    def places(self, address: int) -> list[Place]:
        """Return the functions at an address, the innermost inlined one first.

        What debug information does not tell the symbol table does; [] if neither does.
        """
        if self.dwarf is not None:
            try:
                if places := self._from_dwarf(address):
                    return places
            except BROKEN as exc:
                self.why_no_lines = f"its debug information cannot be read here: {exc}"[:160]
        symbol = self.symbol_at(address)
        return [Place(_clean(symbol.name))] if symbol else []

    def _read_sections(self) -> None:
        found: dict[int, Symbol] = {}
        for section in self.elf.iter_sections():
            if section["sh_flags"] & _EXEC == _EXEC and section["sh_type"] == "SHT_PROGBITS":
                low = section["sh_addr"]
                self._ranges.append((low, low + section["sh_size"]))
        for section in self.elf.iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in self._symbols(section):
                    known = found.get(symbol.address)
                    if known is None or (symbol.size > known.size):
                        found[symbol.address] = symbol
        self.symbols = sorted(found.values(), key=lambda s: s.address)
        self._addresses = [symbol.address for symbol in self.symbols]

    def _symbols(self, section: Any) -> Iterator[Symbol]:
        """Yield functions; read by ourselves, for a kernel has hundreds of thousands."""
        data = section.data()
        names = self.elf.get_section(section["sh_link"]).data()
        order = "<" if self.elf.little_endian else ">"
        is_64 = self.elf.elfclass == 64
        form = struct.Struct(order + ("IBBHQQ" if is_64 else "IIIBBH"))
        is_arm = self.machine == "ARM"
        for fields in form.iter_unpack(data[: len(data) // form.size * form.size]):
            if is_64:
                name, info, _, index, value, size = fields
            else:
                name, value, size, info, _, index = fields
            kind = info & 0xF
            if not name or not index or kind not in (_FUNC, _NO_TYPE):
                continue
            address = value & ~1 if is_arm else value
            if not self.holds(address):
                continue
            text = names[name : names.index(b"\0", name)].decode("utf-8", errors="replace")
            if kind == _FUNC or not text.startswith(("$", ".", "__")):
                yield Symbol(address, size, text)

    def _from_dwarf(self, address: int) -> list[Place]:
        unit = self._unit_at(address)
        if unit is None:
            return []
        file, line = self._line_at(unit, address)
        chain = _functions(self, unit, address)
        if not chain:
            symbol = self.symbol_at(address)
            return [Place(_clean(symbol.name) if symbol else "", file, line)] if file else []
        places = []
        for die in reversed(chain):  # the innermost first
            places.append(Place(_name_of(die), file, line))
            if die.tag == "DW_TAG_inlined_subroutine":
                file, line = self._call_site(unit, die)
        return places

    def _unit_at(self, address: int) -> Any:
        if self._units is None:
            self._units = sorted(_units(self), key=lambda unit: unit[0])
        # Units can overlap where a linker put sections of the same address: the smallest wins.
        fitting = [u for u in self._units if u[0] <= address < u[1]]
        return min(fitting, key=lambda u: u[1] - u[0])[2] if fitting else None

    def _line_at(self, unit: Any, address: int) -> tuple[str, int]:
        table = self._tables.get(unit.cu_offset)
        if table is None:
            table = self._tables[unit.cu_offset] = _line_table(self.dwarf, unit)
        for low, high, file, line in table:
            if low <= address < high:
                return file, line
        return "", 0

    def _call_site(self, unit: Any, die: Any) -> tuple[str, int]:
        program = self.dwarf.line_program_for_CU(unit)
        file = die.attributes.get("DW_AT_call_file")
        line = die.attributes.get("DW_AT_call_line")
        name = _file_name(program, file.value) if program is not None and file else ""
        return name, line.value if line else 0


def _dwarf_bytes(elf: Any) -> int:
    return sum(
        s.data_size for s in elf.iter_sections() if s.name.startswith((".debug_", ".zdebug_"))
    )


def _units(firmware: Firmware) -> Iterator[tuple[int, int, Any]]:
    """Yield (first address, end, unit) of each piece of each compilation unit."""
    for unit in firmware.dwarf.iter_CUs():
        top = unit.get_top_DIE()
        if top.tag != "DW_TAG_compile_unit":
            continue
        for low, high in _pieces(firmware.dwarf, unit, top):
            if high > low and firmware.holds(low):
                yield low, high, unit


def _pieces(dwarf: Any, unit: Any, die: Any) -> Iterator[tuple[int, int]]:
    """Yield the address ranges of a DIE."""
    attributes = die.attributes
    if "DW_AT_ranges" in attributes:
        lists = dwarf.range_lists()
        top = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = top.value if top else 0
        for entry in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, cu=unit):
            if isinstance(entry, BaseAddressEntry):
                base = entry.base_address
            elif getattr(entry, "is_absolute", False):
                yield entry.begin_offset, entry.end_offset
            else:
                yield base + entry.begin_offset, base + entry.end_offset
    elif "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        yield low, high.value if high.form == "DW_FORM_addr" else low + high.value


def _functions(firmware: Firmware, unit: Any, address: int) -> list[Any]:
    """Return the function at an address and what is inlined in it there, outermost first."""
    chain: list[Any] = []
    level = _children(unit.get_top_DIE())
    while True:
        inner = next((d for d in level if _covers(firmware, unit, d, address)), None)
        if inner is None:
            return chain
        if inner.tag != "DW_TAG_lexical_block":
            chain.append(inner)
        level = _children(inner)


def _children(die: Any) -> Iterator[Any]:
    """Yield what may hold code below a DIE; subtrees of other things are stepped over."""
    for child in die.iter_children():
        if child.tag in ("DW_TAG_namespace", "DW_TAG_module"):
            yield from _children(child)
        elif child.tag in (
            "DW_TAG_subprogram",
            "DW_TAG_inlined_subroutine",
            "DW_TAG_lexical_block",
        ):
            yield child


def _covers(firmware: Firmware, unit: Any, die: Any, address: int) -> bool:
    return any(low <= address < high for low, high in _pieces(firmware.dwarf, unit, die))


def _name_of(die: Any) -> str:
    """Return the name of a function, which may stand at its declaration."""
    for _ in range(4):
        for key in ("DW_AT_name", "DW_AT_linkage_name"):
            if key in die.attributes:
                return _clean(die.attributes[key].value.decode("utf-8", errors="replace"))
        for key in ("DW_AT_abstract_origin", "DW_AT_specification"):
            if key in die.attributes:
                die = die.get_DIE_from_attribute(key)
                break
        else:
            return ""
    return ""


def _line_table(dwarf: Any, unit: Any) -> list[tuple[int, int, str, int]]:
    """Return (first address, end, file, line) of each row of a unit's line table."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return []
    rows: list[tuple[int, int, str, int]] = []
    names: dict[int, str] = {}
    before = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and state.address > before.address:
            if before.file not in names:
                names[before.file] = _file_name(program, before.file)
            rows.append((before.address, state.address, names[before.file], before.line))
        before = None if state.end_sequence else state
    return rows


def _file_name(program: Any, number: int) -> str:
    """Return a file of a line table as a path; numbers began with 1 before DWARF 5."""
    is_5 = program.header["version"] >= 5
    files: Sequence[Any] = program["file_entry"]
    folders: Sequence[Any] = program["include_directory"]
    at = number if is_5 else number - 1
    if not 0 <= at < len(files):
        return ""
    name = _text(files[at].name)
    folder_at = files[at].dir_index if is_5 else files[at].dir_index - 1
    folder = _text(folders[folder_at]) if 0 <= folder_at < len(folders) else ""
    path = name if name.startswith("/") or not folder else f"{folder}/{name}"
    path = _clean(path)
    return path if len(path) <= MAX_PATH else "…" + path[-MAX_PATH + 1 :]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value)


def _clean(text: str) -> str:
    """Return a name of an ELF file as one harmless line."""
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return plain if len(plain) <= MAX_NAME else plain[: MAX_NAME - 1] + "…"
