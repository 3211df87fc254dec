"""How an answer ends: in an error of one form, or in a goodbye."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import WSCloseCode, web

log = logging.getLogger(__name__)

GOODBYE_S = 0.5


def error_answer(status: int, code: str, message: str, hint: str = "") -> web.Response:
    """Return an error as every client gets it."""
    text = json.dumps({"error": {"code": code, "message": message, "hint": hint}})
    return web.Response(status=status, text=text, content_type="application/json")


@contextmanager
def ending(request: web.Request) -> Iterator[None]:
    """Cut the connection if something fails after its answer has begun: no error fits in there."""
    try:
        yield
    except (ConnectionError, TimeoutError) as exc:
        log.debug("%s: the client has gone: %s", request.path, exc)
        cut(request)
    except Exception:
        log.exception("%s %s failed half way", request.method, request.path)
        cut(request)


def cut(request: web.Request) -> None:
    """Close the connection at once, whatever is still to be sent."""
    if request.transport is not None:
        request.transport.abort()


def has_left(request: web.Request) -> bool:
    """Tell whether whoever asked has closed the connection."""
    return request.transport is None or request.transport.is_closing()


async def goodbye(ws: web.WebSocketResponse) -> None:
    """Tell a client that the daemon stops, and wait a moment for its answer."""
    try:
        async with asyncio.timeout(GOODBYE_S):
            await ws.close(code=WSCloseCode.GOING_AWAY, message=b"the daemon stops")
    except (TimeoutError, ConnectionError):
        log.debug("a client did not answer the goodbye")
