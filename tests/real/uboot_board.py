"""U-Boot boards for tests that need more than one: a plain one, and one that crashes at every boot."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from serialwatch.demo.uboot import FIRMWARE, QEMU

MACHINE = "virt"
CPU = ("-cpu", "cortex-a53")


def uboot_board(*arguments: str | Path) -> Sequence[str | Path]:
    """Return how QEMU is called."""
    return [QEMU, "-M", MACHINE, *CPU, "-bios", FIRMWARE, *arguments]


def device_tree(folder: Path, config: Mapping[str, bytes]) -> Path:
    """Write the machine's device tree with a node `/config`: U-Boot takes its boot command there."""
    path = folder / "board.dtb"
    subprocess.run(
        [QEMU, "-M", f"{MACHINE},dumpdtb={path}", *CPU, "-nodefaults", "-display", "none"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(_with_node(path.read_bytes(), b"config", config))
    return path


def _with_node(tree: bytes, name: bytes, values: Mapping[str, bytes]) -> bytes:
    """Add a node to the root of a flattened device tree (Devicetree Specification, chapter 5)."""
    _, _, nodes_at, names_at, *rest, names_size, nodes_size = struct.unpack_from(">10I", tree)
    names = tree[names_at : names_at + names_size]
    nodes = tree[nodes_at : nodes_at + nodes_size - 8]  # without the end of the root and of all
    nodes += struct.pack(">I", 1) + _padded(name + b"\0")
    for key, value in values.items():
        nodes += struct.pack(">3I", 3, len(value), len(names)) + _padded(value)
        names += key.encode() + b"\0"
    nodes += struct.pack(">3I", 2, 2, 9)
    start = 40 + 16  # header, no reserved memory
    head = (0xD00DFEED, start + len(nodes) + len(names), start, start + len(nodes), 40)
    return struct.pack(">10I", *head, *rest[1:], len(names), len(nodes)) + bytes(16) + nodes + names


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
