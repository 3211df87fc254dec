"""What came with a call of `ctx`: taken one by one, checked, and nothing may be left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from serialwatch.agent.skills.results import RefusedError
from serialwatch.wire import Json

MAX_TEXT = 400  # characters of a query

T = TypeVar("T")


class Arguments:
    """The arguments of one call; each method raises RefusedError for a wrong kind."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = dict(body)

    def text(self, name: str, most: int = MAX_TEXT) -> str | None:
        """Return a text of at most `most` characters."""
        value = self._body.pop(name, None)
        if value is not None and (not isinstance(value, str) or len(value) > most):
            raise RefusedError("invalid_args", f"{name}: a text of at most {most} characters")
        return value

    def texts(self, name: str, most: int) -> list[str]:
        """Return a list of at most `most` texts."""
        value = self._body.pop(name, None)
        if value is None:
            return []
        if (
            not isinstance(value, list)
            or len(value) > most
            or not all(isinstance(one, str) and len(one) <= MAX_TEXT for one in value)
        ):
            wanted = f"at most {most} texts of at most {MAX_TEXT} characters"
            raise RefusedError("invalid_args", f"{name}: {wanted}")
        return value

    def number(self, name: str, least: int = 0, most: int = 2**63 - 1) -> int | None:
        """Return a whole number."""
        value = self._body.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise RefusedError("invalid_args", f"{name}: a whole number from {least} to {most}")
        return value

    def number_or_text(self, name: str) -> int | str | None:
        """Return a whole number or a text."""
        return self.text(name) if isinstance(self._body.get(name), str) else self.number(name)

    def flag(self, name: str) -> bool:
        """Return true or false, false if nothing is said."""
        value = self._body.pop(name, None)
        if value is not None and not isinstance(value, bool):
            raise RefusedError("invalid_args", f"{name}: true or false")
        return bool(value)

    def one_of(self, name: str, allowed: Sequence[T]) -> T | None:
        """Return one of the allowed values."""
        value = self._body.pop(name, None)
        for one in allowed:
            if value == one:
                return one
        if value is not None:
            raise RefusedError("invalid_args", f"{name}: one of {', '.join(map(str, allowed))}")
        return None

    def mapping(self, name: str) -> Json:
        """Return an object."""
        value = self._body.pop(name, None)
        if not isinstance(value, dict):
            raise RefusedError("invalid_args", f"{name}: an object")
        return value

    def end(self) -> None:
        """Refuse what was not taken."""
        if self._body:
            names = ", ".join(sorted(map(str, self._body)))
            raise RefusedError("invalid_args", f"no such argument: {names[:MAX_TEXT]}")
