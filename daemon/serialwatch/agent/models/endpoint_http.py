"""HTTP to a model's endpoint: no redirects, no compression, and no more than fits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2
import openai

REQUEST_LIMIT_S = 60.0
CONNECT_LIMIT_S = 3.0
MAX_BODY = 4 * 1024 * 1024  # bytes of an answer


class TooLongError(openai.OpenAIError):
    """The body of an answer is longer than we take."""


def open_client(base_url: str) -> httpx2.AsyncClient:
    """Return a client that follows no redirect: the key is for this endpoint only."""
    return httpx2.AsyncClient(
        base_url=base_url,
        timeout=httpx2.Timeout(REQUEST_LIMIT_S, connect=CONNECT_LIMIT_S),
        # Without TLS there is nothing to verify, and loading the certificates takes long.
        verify=not base_url.lower().startswith("http://"),
        follow_redirects=False,
        # What is not compressed cannot unfold into more than MAX_BODY.
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_limit_body]},
    )


async def _limit_body(response: httpx2.Response) -> None:
    """Put a limit on a body that is yet to be read."""
    if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        raise TooLongError("it compressed its answer, though it was asked not to")
    response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream))


class _Bounded(httpx2.AsyncByteStream):
    """A body that breaks off beyond MAX_BODY."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_BODY:
                raise TooLongError(f"its answer has more than {MAX_BODY} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
