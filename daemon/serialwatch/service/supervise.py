"""Keep a part running that capture must outlive: agent, API, notifiers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
STEADY_S = 60.0  # after so long without a failure the next wait is the first one again


async def supervise(
    name: str,
    part: Callable[[], Awaitable[None]],
    on_failure: Callable[[str, str], None],
    plain: tuple[type[Exception], ...] = (),
) -> None:
    """Run `part` again whenever it ends or raises, with back-off, until cancelled.

    `on_failure` gets the name and one line of what happened. Errors of the kinds `plain` say by
    themselves what is wrong: they are logged without a traceback.
    """
    loop = asyncio.get_running_loop()
    wait_s = FIRST_WAIT_S
    while True:
        began = loop.time()
        try:
            await part()
            problem = "ended by itself"
        except plain as exc:
            problem = str(exc)
            log.error("%s: %s; it starts again in %.1f s", name, problem, wait_s)
        except Exception as exc:
            problem = f"{type(exc).__name__}: {exc}"
            log.exception("%s failed; it starts again in %.1f s", name, wait_s)
        else:
            log.error("%s %s; it starts again in %.1f s", name, problem, wait_s)
        on_failure(name, problem)
        if loop.time() - began > STEADY_S:
            wait_s = FIRST_WAIT_S
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, LONGEST_WAIT_S)
