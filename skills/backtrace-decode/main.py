"""Say which function, file and line the addresses of a crash belong to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from finding import Found, find_addresses, parse_address
from symbols import BROKEN, Firmware, Place

from serialwatch.records import SkillContext, SkillResult

MAX_LINES = 200  # of the log that are searched for addresses
MAX_FRAMES = 24  # in the answer
MAX_PLACES = 8  # of one frame: the innermost ones
MAX_BYTES = 7 * 1024  # of JSON; the outermost frames go first
MAX_STACK_FRAMES = 8  # of a stack dump: candidates only
MIN_ID = 7  # hexadecimal digits that make an id comparable


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Decode `addresses`, `text`, lines `first` to `last`, or the incident's block."""
    lines = await _lines(ctx, params)
    found = [Found("address", parse_address(text)) for text in params.get("addresses", [])]
    found += find_addresses(lines)
    if not found:
        output: dict[str, Any] = {"frames": [], "no_data": True, "why": "no address in these lines"}
        return _done(output, "no address found")
    port = params.get("port") or ctx.port
    if ctx.elf is None:
        how = (
            f'say elf = "/path/to/firmware.elf" in [port.{port}] of the configuration, the file '
            "of exactly this build with its symbols, then reload the daemon"
        )
        output = {"frames": [_as_printed(f) for f in found[:MAX_FRAMES]], "elf": None}
        output |= {"no_data": True, "why": "no ELF file is configured for this port", "how": how}
        return _done(
            output, f"{port}: no ELF file configured; {len(found)} addresses left as printed"
        )
    try:
        with ctx.elf.open("rb") as stream:
            firmware = Firmware.read(ctx.elf, stream)
            printed = await _printed_ids(ctx, port)
            output = _decoded(firmware, found, printed)
    except OSError as exc:
        return _failed(f"{ctx.elf}: {exc.strerror} (may the daemon's user read it?)")
    except BROKEN as exc:
        return _failed(f"{ctx.elf}: no ELF file that can be read: {exc}")
    first = next((f["places"][0]["function"] for f in output["frames"] if f["places"]), "?")
    known = sum(bool(f["places"]) for f in output["frames"])
    summary = f"{known} of {len(output['frames'])} addresses decoded, first {first}"
    return _done(output, f"{summary}; {output['trust']}")


async def _lines(ctx: SkillContext, params: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the console lines to search, with their numbers."""
    if "text" in params:
        return [(0, line) for line in params["text"].splitlines()]
    if "addresses" in params:
        return []
    port = params.get("port") or ctx.port
    first, last = params.get("first"), params.get("last")
    if first is None:
        if ctx.incident is None:
            return []
        own = (await ctx.incidents(id=ctx.incident))["incidents"]
        if not own or not own[0]["block_first"]:
            return []
        first, last = own[0]["block_first"], own[0]["last_seq"]
    last = min(last or first + 60, first + MAX_LINES)
    answer = await ctx.log.lines(port, first=first, last=last, limit=MAX_LINES)
    return [(line["seq"], line["text"]) for line in answer["lines"]]


async def _printed_ids(ctx: SkillContext, port: str) -> list[tuple[str, str, int]]:
    """Return (kind, digits, line) of the build ids that the board printed last."""
    if not port:
        return []
    answer = await ctx.log.lines(port, match="elf file sha256|build id|build-id|buildid", limit=20)
    found: dict[str, tuple[str, str, int]] = {}
    for line in answer["lines"]:
        for pattern, kind in ((_SHA256, "sha256"), (_BUILD_ID, "build_id")):
            if match := pattern.search(line["text"]):
                found[kind] = (kind, match[1].lower(), line.get("last_seq", line["seq"]))
    return list(found.values())


_SHA256 = re.compile(r"(?i)ELF file SHA256:\s*([0-9a-f]{7,64})")
_BUILD_ID = re.compile(r"(?i)\bbuild[ -]?id\s*[:=]?\s*(?:0x)?([0-9a-f]{7,64})\b")


def _decoded(
    firmware: Firmware, found: list[Found], printed: list[tuple[str, str, int]]
) -> dict[str, Any]:
    frames: list[dict[str, Any]] = []
    mismatches: list[str] = []
    on_stack = 0
    for one in found:
        frame, mismatch = _frame(firmware, one)
        if mismatch:
            mismatches.append(mismatch)
        if one.role == "stack":  # a word of the stack is a candidate only if it points into code
            if not frame["places"] or on_stack >= MAX_STACK_FRAMES:
                continue
            on_stack += 1
        frames.append(frame)
    checks = list(_checks(firmware, printed))
    is_good: bool | None = None
    trust = "unknown: the board printed no build id to compare"
    if mismatches or not all(check["fits"] for check in checks):
        is_good = False
        trust = "NOT trustworthy: this ELF file is another build than what runs on the board"
    elif checks:
        is_good, trust = True, "trustworthy: the build id fits"
    elif any(one.name and one.size for one in found):
        trust = "likely: the sizes of the functions fit"
    output: dict[str, Any] = {
        "frames": frames[:MAX_FRAMES],
        "trust": trust,
        "is_trustworthy": is_good,
        "checks": checks,
        "elf": _about(firmware),
        "no_data": not any(frame["places"] for frame in frames),
    }
    if mismatches:
        output["mismatches"] = mismatches[:5]
    if firmware.why_no_lines:
        output["no_lines"] = firmware.why_no_lines
    shown = output["frames"]
    while len(shown) > 1 and len(json.dumps(output, ensure_ascii=False).encode()) > MAX_BYTES:
        shown.pop()
    if len(frames) > len(shown):
        output["left_out"] = len(frames) - len(shown)
    return output


def _frame(firmware: Firmware, one: Found) -> tuple[dict[str, Any], str]:
    """Return one frame, and why it cannot be of this build ("" if it can)."""
    frame = _as_printed(one)
    if one.module:
        return {**frame, "places": [], "why": f"in module {one.module}: not in this file"}, ""
    address, mismatch = one.address, ""
    if one.name:
        address, mismatch = _by_name(firmware, one)
        if address is None:
            return {**frame, "places": [], "why": f"no function {one.name} in this file"}, ""
    assert address is not None
    if firmware.machine == "ARM":
        if address >= 0xFFFFFF00:
            return {**frame, "places": [], "why": "EXC_RETURN: a return from an exception"}, ""
        address &= ~1
    looked = address - 1 if one.is_return and address else address
    places = firmware.places(looked)
    frame["places"] = [_place(place) for place in places[:MAX_PLACES]]
    if not places:
        frame["why"] = "not in the code of this file: ROM, another image, or a wild jump"
    return frame, mismatch


def _by_name(firmware: Firmware, one: Found) -> tuple[int | None, str]:
    """Return the address of `name+offset/size`, and what does not fit."""
    same = firmware.named(one.name)
    if not same:
        return None, ""
    fitting = next((s for s in same if s.size == one.size or not s.size), None)
    # A kernel counts up to the next symbol, so a little more than the function has.
    near = next((s for s in same if 0 <= one.size - s.size < 64), None)
    chosen = fitting or near
    if chosen is None:
        sizes = ", ".join(f"0x{s.size:x}" for s in same)
        text = f"{one.name} is 0x{one.size:x} bytes long on the board, {sizes} in the file"
        return same[0].address + one.offset, text
    return chosen.address + one.offset, ""


def _as_printed(one: Found) -> dict[str, Any]:
    frame: dict[str, Any] = {"role": one.role}
    if one.address is not None:
        frame["address"] = f"0x{one.address:08x}"
    if one.name:
        frame["printed"] = f"{one.name}+0x{one.offset:x}/0x{one.size:x}"
    if one.seq:
        frame["seq"] = one.seq
    return frame


def _place(place: Place) -> dict[str, Any]:
    body: dict[str, Any] = {"function": place.function}
    if place.file:
        body["at"] = f"{place.file}:{place.line}"
    return body


def _checks(firmware: Firmware, printed: list[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    """Yield how each id that the board printed compares with the file's."""
    for kind, digits, seq in printed:
        ours = firmware.sha256 if kind == "sha256" else firmware.build_id
        if not ours or len(digits) < MIN_ID:
            continue
        fits = ours.startswith(digits) or digits.startswith(ours)
        yield {
            "kind": kind,
            "printed": digits,
            "file": ours[: len(digits)],
            "fits": fits,
            "seq": seq,
        }


def _about(firmware: Firmware) -> dict[str, Any]:
    return {
        "path": str(firmware.path),
        "machine": firmware.machine,
        "bits": firmware.elf.elfclass,
        "build_id": firmware.build_id,
        "sha256": firmware.sha256[:16],
        "functions": len(firmware.symbols),
        "has_lines": firmware.dwarf is not None,
    }


def _done(output: dict[str, Any], summary: str) -> SkillResult:
    metadata = {"no_data": output["no_data"], "summary": summary[:160]}
    return SkillResult("success", output, metadata=metadata)


def _failed(detail: str) -> SkillResult:
    error = {
        "code": "precondition",
        "message": "The ELF file of the port cannot be used; see `detail`.",
        "retryable": False,
        "detail": detail[:300],
    }
    return SkillResult("failure", {}, metadata={"error": error, "summary": detail[:160]})
