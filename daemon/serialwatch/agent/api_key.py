"""The key of the model's endpoint; it never stands in a config file or a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def load_api_key(environ: Mapping[str, str]) -> str:
    """Return the key: systemd's credential `llm-api-key`, else the environment, "" for none."""
    if folder := environ.get("CREDENTIALS_DIRECTORY"):
        try:
            return (Path(folder) / "llm-api-key").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            pass
    return environ.get("SERIALWATCH_API_KEY") or environ.get("OPENAI_API_KEY") or ""
