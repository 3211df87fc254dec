"""The agent's runs over the API: what they did, and answers to what they ask."""

from __future__ import annotations

from aiohttp import web

from serialwatch.api.bench import Bench, BenchError
from serialwatch.api.caller import Caller
from serialwatch.api.parameters import body_of, known_only, whole

MAX_ANSWER = 2_000  # characters of what a person answers
MAX_RUNS = 1_000  # of one list


class RunRoutes:
    """`/v1/runs`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def list_runs(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/runs`."""
        query = request.query
        known_only(query, {"port", "incident", "limit"})
        found = await self._bench.runs.list_runs(
            query.get("port", ""),
            whole(query, "incident", 1),
            whole(query, "limit", 1, MAX_RUNS) or 100,
        )
        return web.json_response({"runs": list(found)})

    async def show(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/runs/ID`."""
        known_only(request.query, set())
        run_id = request.match_info["id"]
        trace = await self._bench.runs.trace(run_id)
        if trace is None:
            raise no_run(run_id)
        return web.json_response(trace)

    async def answer(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/runs/ID/answer`."""
        body = await body_of(request, {"text"})
        text = body.get("text")
        if not isinstance(text, str) or not 1 <= len(text.strip()) <= MAX_ANSWER:
            raise BenchError("bad_request", f"text must be 1 to {MAX_ANSWER} characters")
        return web.json_response(
            await self._bench.runs.answer(request.match_info["id"], text.strip(), caller.who)
        )


def no_run(run_id: str) -> BenchError:
    """Return the complaint that there is no such run."""
    return BenchError("not_found", f"no run {run_id[:40]!r}", "`serialwatch runs list` lists them")
