"""The key of the model's endpoint; it never stands in a config file or a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CREDENTIAL = "llm-api-key"
VARIABLES = ("SERIALWATCH_API_KEY", "OPENAI_API_KEY")  # the first that is set


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, and where it was found."""

    text: str = field(repr=False)  # "" for none
    source: str  # for people


def find_api_key(environ: Mapping[str, str]) -> ApiKey:
    """Return the key: systemd's credential `llm-api-key`, else the environment."""
    if folder := environ.get("CREDENTIALS_DIRECTORY"):
        try:
            text = (Path(folder) / CREDENTIAL).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if text:
            return ApiKey(text, f"systemd's credential {CREDENTIAL}")
    for name in VARIABLES:
        if text := environ.get(name, "").strip():
            return ApiKey(text, f"${name}")
    return ApiKey("", "")


def load_api_key(environ: Mapping[str, str]) -> str:
    """Return the key, "" for none."""
    return find_api_key(environ).text
