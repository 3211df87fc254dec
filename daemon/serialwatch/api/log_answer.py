"""`GET /v1/logs/PORT`: saved lines, one JSON object a row, and new ones as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial

from aiohttp import web

from serialwatch.api.answers import ending
from serialwatch.api.bench import Bench, BenchError, ErrorCode
from serialwatch.api.logs import (
    FIRST_LINES,
    PAGE_LINES,
    LogQuery,
    PlaceError,
    fresh_page,
    from_marker,
    last_complete,
    next_page,
    select,
)
from serialwatch.api.parameters import encoded, known_only, moment, whole
from serialwatch.store.log_reader import PortLog

LOOK_S = 0.1  # how often it is looked whether a followed port has printed
STALLED_S = 3600.0  # a pager that nobody scrolls for so long loses its connection

_PORT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class LogAnswer:
    """Answers from the files of the log, in the thread for large answers."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._is_stopping = False

    def close(self) -> None:
        """End every answer soon."""
        self._is_stopping = True

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Write the lines that the query asks for."""
        name, wanted = request.match_info["port"], _query(request)
        saved = await self._bench.render(lambda: self._open(name))
        state = self._bench.log_dir.parent
        try:
            wanted = await self._bench.render(partial(from_marker, wanted, state, name))
            lines = await self._bench.render(partial(select, saved, wanted))
        except PlaceError as exc:
            code: ErrorCode = "failed" if exc.is_failure else "not_found"
            raise BenchError(code, f"{name}: {exc}") from exc
        except OSError as exc:
            raise BenchError("failed", f"{name}: cannot be read: {exc.strerror}") from exc
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        is_followed = "follow" in request.query
        end = await self._bench.render(partial(last_complete, saved)) if is_followed else 0
        most = FIRST_LINES
        with ending(request):
            page_of = partial(next_page, lines, has_ends=wanted.has_ends)
            while page := await self._bench.render(partial(page_of, most=most)):
                end = max(end, page.last)
                await _write(response, page.rows + page.partial)
                most = PAGE_LINES
                if self._is_stopping or _has_left(request):
                    break
            if is_followed:
                await self._follow(request, response, saved, end, wanted)
            await response.write_eof()
        return response

    def _open(self, name: str) -> PortLog:
        folder = self._bench.log_dir / name
        is_port = _PORT_NAME.fullmatch(name) is not None
        if not is_port or not (folder.is_dir() or self._bench.port(name) is not None):
            raise no_port(self._bench, name)
        return PortLog(folder, name)

    async def _follow(
        self,
        request: web.Request,
        response: web.StreamResponse,
        saved: PortLog,
        end: int,
        wanted: LogQuery,
    ) -> None:
        """Write what comes after line `end` until the client leaves or the daemon stops."""
        unfinished = b""
        while not self._is_stopping and not _has_left(request):
            page = await self._bench.render(partial(fresh_page, saved, end + 1, wanted))
            fresh = page.rows if page.partial == unfinished else page.rows + page.partial
            unfinished = page.partial
            await _write(response, fresh)
            if page.last > end:
                end = page.last
            else:
                await self._wait_for_more(saved.port)

    async def _wait_for_more(self, name: str) -> None:
        """Wait until a port has printed, or for a second: its log may have grown all the same."""
        before = self._bench.port(name)
        for _ in range(round(1 / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            now = self._bench.port(name)
            if self._is_stopping or (before and now and now.rx_bytes != before.rx_bytes):
                return


def _searched(query: Mapping[str, str]) -> bytes:
    """Return what lines must hold: `grep` as text, or `grep_hex` for bytes that are none."""
    try:
        return bytes.fromhex(query.get("grep_hex", "")) or encoded(query.get("grep", ""))
    except ValueError as exc:
        raise BenchError("bad_request", "grep_hex must be pairs of hex digits") from exc


def no_port(bench: Bench, name: str) -> BenchError:
    """Return the error that says which ports there are."""
    names = ", ".join(port.name for port in bench.ports()) or "none"
    return BenchError("not_found", f"no port {name!r}", f"there are {names}")


def _query(request: web.Request) -> LogQuery:
    query = request.query
    known_only(
        query,
        {
            "first",
            "last",
            "n",
            "since",
            "until",
            "boot",
            "grep",
            "grep_hex",
            "marker",
            "boots",
            "ends",
            "follow",
        },
    )
    wanted = LogQuery(
        first=whole(query, "first", 0),
        last=whole(query, "last", 0),
        newest=whole(query, "n", 0),
        since_utc_ns=moment(query, "since"),
        until_utc_ns=moment(query, "until"),
        boot=whole(query, "boot", -(2**31)),
        text=_searched(query),
        marker=query.get("marker", ""),
        has_boots=whole(query, "boots", 0) != 0,
        has_ends=bool(whole(query, "ends", 0)),
    )
    if "follow" in query and (wanted.last is not None or wanted.until_utc_ns is not None):
        raise BenchError("bad_request", "a log is followed without an end: no last, no until")
    if "follow" in query and wanted.boot:
        raise BenchError("bad_request", "a log is followed in the current boot: no boot but 0")
    return wanted


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _write(response: web.StreamResponse, rows: bytes) -> None:
    if rows:
        async with asyncio.timeout(STALLED_S):
            await response.write(rows)
