"""What the bench knows of a fingerprint: which incidents had it, and whether it is muted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_SEEN = 20  # earlier incidents that are named


class KnownFaults:
    """Incidents and mutes by fingerprint."""

    def __init__(self) -> None:
        self._ids: dict[str, list[int]] = {}  # oldest first
        self._until_utc_ns: dict[str, int] = {}  # muted; 0: until unmuted
        self._until_mono_ns: dict[str, int] = {}  # muted for a time

    def remember(self, history: Mapping[str, Sequence[int]]) -> None:
        """Take the incidents of earlier runs, ids newest first."""
        for fingerprint, ids in history.items():
            self._ids[fingerprint] = list(reversed(ids))

    def enter(self, fingerprint: str, incident: int) -> tuple[int, ...]:
        """Note a new incident; return the earlier ones with its fingerprint, newest first."""
        ids = self._ids.setdefault(fingerprint, [])
        earlier = tuple(each for each in reversed(ids) if each < incident)
        ids.append(incident)
        del ids[: -2 * MAX_SEEN]
        return earlier[:MAX_SEEN]

    def take_back(self, fingerprint: str, incident: int) -> None:
        """Forget that an incident had a fingerprint: a better root cause was found."""
        ids = self._ids.get(fingerprint, [])
        if incident in ids:
            ids.remove(incident)

    def mute(self, fingerprint: str, until_utc_ns: int, until_mono_ns: int | None) -> None:
        """Mute it, for ever if `until_mono_ns` is None; `until_utc_ns` is only told to people."""
        self._until_utc_ns[fingerprint] = until_utc_ns
        self._until_mono_ns.pop(fingerprint, None)
        if until_mono_ns is not None:
            self._until_mono_ns[fingerprint] = until_mono_ns

    def unmute(self, fingerprint: str) -> bool:
        """Return whether it was muted."""
        self._until_mono_ns.pop(fingerprint, None)
        return self._until_utc_ns.pop(fingerprint, None) is not None

    def muted_until_utc_ns(self, fingerprint: str) -> int | None:
        """Return until when it is muted (0: until unmuted), None if it is not."""
        return self._until_utc_ns.get(fingerprint)

    def unmute_expired(self, mono_ns: int) -> list[str]:
        """Unmute those whose time is over and return them."""
        over = [print_ for print_, until in self._until_mono_ns.items() if until <= mono_ns]
        for print_ in over:
            self.unmute(print_)
        return over
