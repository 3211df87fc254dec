"""Saved lines: which are chosen, how they look, and how they are served and followed."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench_api import LOG_NAME, STARTED_UTC_NS, client, serving
from bench_cable import within_s
from serialwatch.api.logs import LogQuery, PlaceError, line_to_json, next_page, select
from serialwatch.records import Line

SECOND = 1_000_000_000


def line(seq: int, raw: bytes = b"", *, is_complete: bool = True) -> Line:
    """Return line `seq` of a board that prints one a second and boots every ten lines."""
    at = STARTED_UTC_NS + seq * SECOND
    return Line("dut1", seq, raw or b"line %d" % seq, seq // 10, at, at, 0, is_complete)


class Saved:
    """A log of lines 5 to 42; the last one is not complete."""

    def refresh(self) -> None:
        """Nothing comes."""

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        has_boots: bool = True,
    ) -> Iterator[Line]:
        numbers = range(max(5, first or 0), min(42, last if last is not None else 42) + 1)
        ordered = list(reversed(numbers) if reverse else numbers)[:limit]
        return (line(seq, is_complete=seq < 42) for seq in ordered)

    def stretches(
        self, words: Sequence[bytes], first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bool]]:
        """Return stretches of ten lines; every other one may hold a word if one of it does."""
        starts = range(first // 10 * 10, last + 1, 10)
        for start in reversed(starts) if reverse else starts:
            low, high = max(start, first), min(start + 9, last)
            raws = [x.raw for x in self.lines(low, high)]
            yield low, high, start % 20 == 0 or any(w in raw for w in words for raw in raws)

    def newest_from(self, last: int, count: int) -> int:
        return max(5, last - count + 1)

    def bounds(self) -> tuple[int, int] | None:
        return 5, 42

    def seq_at(self, utc_ns: int) -> int | None:
        seq = max(5, -(-(utc_ns - STARTED_UTC_NS) // SECOND))
        return seq if seq <= 42 else None

    def last_seq_at(self, utc_ns: int) -> int | None:
        seq = min(42, (utc_ns - STARTED_UTC_NS) // SECOND)
        return seq if seq >= 5 else None

    def boot_range(self, wanted: int) -> tuple[int, int | None] | None:
        number = wanted if wanted > 0 else 4 + wanted
        if not 1 <= number <= 4:
            return None
        return number * 10, None if number == 4 else number * 10 + 9

    def boot_numbers(self) -> tuple[int, int] | None:
        return 1, 4


def at(second: float) -> int:
    """Return a time of the log."""
    return STARTED_UTC_NS + int(second * SECOND)


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        (LogQuery(), range(5, 43)),
        (LogQuery(first=40), range(40, 43)),
        (LogQuery(last=7), range(5, 8)),
        (LogQuery(first=20, last=10), range(0)),
        (LogQuery(newest=3), range(40, 43)),
        (LogQuery(newest=0), range(0)),
        (LogQuery(newest=2, last=9), range(8, 10)),
        (LogQuery(since_utc_ns=at(39.5)), range(40, 43)),
        (LogQuery(since_utc_ns=at(99)), range(0)),
        (LogQuery(until_utc_ns=at(7)), range(5, 8)),
        (LogQuery(until_utc_ns=at(99)), range(5, 43)),
        (LogQuery(until_utc_ns=at(1)), range(0)),
        (LogQuery(boot=3), range(30, 40)),
        (LogQuery(boot=0), range(40, 43)),
        (LogQuery(boot=-1), range(30, 40)),
        (LogQuery(boot=2, newest=1), range(29, 30)),
        (LogQuery(text=b"line 3"), range(30, 40)),
        (LogQuery(text=b"line 3", newest=2), range(38, 40)),
        (LogQuery(text=b"nothing", newest=2), range(0)),
    ],
)
def test_a_query_chooses_lines(query: LogQuery, seqs: Sequence[int]) -> None:
    assert [found.seq for found in select(Saved(), query) if found] == list(seqs)


@pytest.mark.parametrize("boot", [5, -4, 99])
def test_a_boot_that_is_not_there_is_told_with_those_that_are(boot: int) -> None:
    with pytest.raises(PlaceError, match="it has #1 to #4"):
        select(Saved(), LogQuery(boot=boot))


@pytest.mark.parametrize(
    ("raw", "text", "has_raw"),
    [
        (b"plain", "plain", False),
        ("Ü 80 °C".encode(), "Ü 80 °C", False),
        (b"tab\there", "tab\there", False),
        (b"\x1b[31mred", "\\x1b[31mred", True),
        (b"\xff\x00", "\\xff\\x00", True),
        (b"\\xff", "\\xff", False),
    ],
)
def test_a_row_shows_text_and_has_the_bytes_where_text_is_not_enough(
    raw: bytes, text: str, has_raw: bool
) -> None:
    row = line_to_json(line(7, raw))

    assert row["text"] == text
    assert ("raw_base64" in row) is has_raw
    assert base64.b64decode(row.get("raw_base64", base64.b64encode(raw))) == raw
    assert row["at"] == "2026-06-22T03:58:19.000000Z"


def test_a_page_ends_before_it_gets_large() -> None:
    lines = (line(seq, b"x" * 1000) for seq in range(1, 2000))
    pages = []
    while (page := next_page(lines)) is not None:
        pages.append(page)

    assert all(len(page.rows) < 200_000 for page in pages)
    assert sum(page.rows.count(b"\n") for page in pages) == 1999
    assert pages[-1].last == 1999


async def rows_of(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    """Return the next rows of an answer."""
    rows = []
    for _ in range(count):
        row = await within_s(10, answer.content.readline())
        assert row, "the answer has ended"
        rows.append(json.loads(row))
    return rows


def save(tmp_path: Path, data: bytes, port: str = "old1") -> None:
    """Put a log in place that nobody writes any more; its last change came a minute later."""
    folder = tmp_path / "log" / port
    folder.mkdir(parents=True)
    (folder / LOG_NAME).write_bytes(data)
    os.utime(folder / LOG_NAME, ns=(at(60), at(60)))


async def test_saved_lines_of_a_port_that_is_no_longer_configured_are_served(
    tmp_path: Path,
) -> None:
    save(tmp_path, b"one\r\ntwo\x1b[0m\r\nthree")
    async with serving(tmp_path), client(tmp_path) as http:
        async with http.get("/v1/logs/old1") as answer:
            assert answer.content_type == "application/x-ndjson"
            rows = [json.loads(row) async for row in answer.content]
        async with http.get("/v1/logs/old1?grep=tw&n=5") as answer:
            (found,) = [json.loads(row) async for row in answer.content]

    assert [(row["seq"], row["text"]) for row in rows] == [
        (1, "one"),
        (2, "two\\x1b[0m"),
        (3, "three"),
    ]
    assert base64.b64decode(rows[1]["raw_base64"]) == b"two\x1b[0m"
    assert found["seq"] == 2


async def test_more_lines_than_a_page_holds_come_whole_and_in_order(tmp_path: Path) -> None:
    save(tmp_path, b"".join(b"line %d\n" % n for n in range(1, 5001)))
    async with serving(tmp_path), client(tmp_path) as http, http.get("/v1/logs/old1") as answer:
        rows = [json.loads(row) async for row in answer.content]

    assert [row["text"] for row in rows] == [f"line {n}" for n in range(1, 5001)]


@pytest.mark.parametrize("port", ["nowhere", "..", "%2e%2e%2flog", "OLD1", "old1%00"])
async def test_a_port_without_a_log_is_not_found_and_no_path_leads_out(
    tmp_path: Path, port: str
) -> None:
    save(tmp_path, b"x\n")
    address = f"/v1/logs/{port}"
    async with serving(tmp_path), client(tmp_path) as http, http.get(address) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    "query", ["n=x", "first=-1", "boot=x", "since=x", "follow=1&last=5", "a=1"]
)
async def test_a_wrong_question_is_refused(tmp_path: Path, query: str) -> None:
    address = f"/v1/logs/dut1?{query}"
    async with serving(tmp_path), client(tmp_path) as http, http.get(address) as answer:
        assert answer.status == 400


async def test_a_log_is_followed_line_by_line_with_its_prompt(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        cable = bench.by_name["dut1"].cable
        async with http.get("/v1/logs/dut1?follow=1") as answer:
            cable.prints(b"U-Boot\r\n")
            (boot,) = await rows_of(answer, 1)
            cable.prints(b"=> ")
            (prompt,) = await rows_of(answer, 1)
            cable.prints(b"md\r\n")
            (command,) = await rows_of(answer, 1)

    assert (boot["seq"], boot["text"], boot["complete"]) == (1, "U-Boot", True)
    assert (prompt["seq"], prompt["text"], prompt["complete"]) == (2, "=> ", False)
    assert (command["seq"], command["text"], command["complete"]) == (2, "=> md", True)


async def test_history_and_what_comes_then_meet_without_a_gap_or_a_double(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        cable = bench.by_name["dut1"].cable
        await cable.prints_all(b"".join(b"line %d\n" % n for n in range(1, 1001)))
        async with http.get("/v1/logs/dut1?follow=1") as answer:
            await cable.prints_all(b"".join(b"line %d\n" % n for n in range(1001, 2001)))
            complete = []
            while len(complete) < 2000:
                (row,) = await rows_of(answer, 1)
                complete += [row["text"]] if row["complete"] else []

    assert complete == [f"line {n}" for n in range(1, 2001)]


async def test_lines_come_without_their_boots_if_nobody_needs_them(tmp_path: Path) -> None:
    save(tmp_path, b"one\ntwo\n")
    address = "/v1/logs/old1?boots=0"
    async with serving(tmp_path), client(tmp_path) as http, http.get(address) as answer:
        rows = [json.loads(row) async for row in answer.content]

    assert [(row["text"], row["boot"]) for row in rows] == [("one", 0), ("two", 0)]


async def test_only_matching_lines_are_followed(tmp_path: Path) -> None:
    address = "/v1/logs/dut1?follow=1&grep=Oops"
    async with serving(tmp_path) as bench, client(tmp_path) as http, http.get(address) as answer:
        bench.by_name["dut1"].cable.prints(b"fine\nOops: 1\nfine\nOops: 2\nfine")
        rows = await rows_of(answer, 2)

    assert [row["seq"] for row in rows] == [2, 4]
