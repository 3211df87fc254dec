"""What is said of something that the daemon knows and has not stored."""

from __future__ import annotations

from serialwatch.wire import Json


def not_on_disk(body: Json) -> str:
    """Return what to say behind "is set": "" if it is on disk, as far as the daemon tells."""
    if body.get("on_disk", True):
        return ""
    return ", but is not on disk yet: it is lost if serialwatch ends now (`serialwatch ports`)"
