"""Start the agent: `python -m serialwatch.agent --fd N`, N being a socket to the core."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys

from serialwatch.agent.process import serve

NICE = 19


def main() -> int:
    """Be the agent until the core closes the socket."""
    parser = argparse.ArgumentParser(prog="python -m serialwatch.agent")
    parser.add_argument("--fd", type=int, required=True, help="a connected socket to the core")
    parser.add_argument("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR")
    given = parser.parse_args()
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "  # as the core does
    logging.basicConfig(
        level=given.log_level,
        stream=sys.stderr,
        format=f"{stamp}%(levelname)-7s agent: %(message)s",
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    # Ctrl-C reaches the whole process group; it is the core that ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sock = socket.socket(fileno=given.fd)
    except OSError as exc:
        print(f"serialwatch.agent: --fd {given.fd}: {exc.strerror}", file=sys.stderr)
        return 2
    sock.setblocking(False)
    # Capture goes first where the cores are few, and we never interrupt it; skills inherit that.
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_NICE, (0, 0))  # the core may have one, for the opener
        os.nice(NICE)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    asyncio.run(serve(sock, os.environ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
