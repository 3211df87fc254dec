"""What a logger puts before each line, as the lines themselves tell it."""

from __future__ import annotations

import re
from itertools import groupby

_FIRST_LINES = 16  # in which a logger may begin; behind the first one, two in a row tell it
_UNEQUAL = -1
_DIGIT = rb"[ \d]"
_YEAR = re.compile(rb"20\d\d(?=-\d\d-\d\d)")
_NONE = re.compile(rb"")
# What a program says before it logs: PuTTY, conserver.
_BEGUN_BY = (b"=~=~=~", b"[-- ")

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
_DATE = rb"\d{4}[-/.]\d\d[-/.]\d\d"
_ISO = _DATE + rb"[ T]" + _CLOCK + rb"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_DAY = rb"(?:[A-Z][a-z][a-z] )?"
_MONTH_DAY = rb"[A-Z][a-z][a-z] [ \d]\d " + _CLOCK
_UNIX = rb"[\[(]?1\d{9}\.\d{1,9}[\])]? "
_LEVEL = rb"(?:<\d{1,3}>)?"
_SENDER = rb"(?P<sender>[\w.-]+ [^ :\n]+: )"
_SENDER_ALONE = re.compile(rb"[\w.-]{1,64} (?!kernel)[^ :\[\n]{1,64}: ")  # no process number
# The halves of a line have one of the same form each; `loose`: its numbers may get longer.
_FORMS = tuple(
    map(
        re.compile,
        (
            rb"\[(?:tio |\d{1,3} )?(?:" + _ISO + rb"|" + _CLOCK + rb"Z?)\] ",  # minicom, ts, ...
            rb"\[(?:\d{1,3} )?(?:" + _ISO + rb"|" + _CLOCK + rb")(?P<loose> \d+\.\d{6})\] ",
            rb"\[(?P<loose>\d+\.\d{6} \d+\.\d{6})\] ",  # grabserial
            rb"\[" + _DAY + _MONTH_DAY + rb" \d{4}\] ",  # Tera Term
            rb"\[" + _DAY + _MONTH_DAY + rb" \d{4}\]",  # conserver
            rb"\((?:" + _DATE + rb"[ T])?" + _CLOCK + rb"\) ",  # YAT
            _CLOCK + rb" (?:->|:)[ \t]",  # Arduino IDE
            _CLOCK + rb">?[ \t]",  # Pronterface, `ts -s`
            _LEVEL + _MONTH_DAY + rb" " + _SENDER,
            _LEVEL + _MONTH_DAY + rb" ",
            _LEVEL + rb"1 " + _ISO + rb" (?P<sender>[\w.:-]+ [\w./-]+ [\w.-]+ [\w.-]+ "  # RFC 5424
            rb"(?:-|\[[^\]\r\n]{0,200}\]) (?:\xef\xbb\xbf)?)",
            _DAY + _ISO + rb"(?: - [A-Z]+)? # ",  # RIOT's terminal
            _DAY + _ISO + rb"(?::? |\t)" + _SENDER,
            _DAY + _ISO + rb"(?::? |\t)",
            _UNIX + _SENDER,
            _UNIX,
            rb"\[(?P<loose> *\d+\.\d{6})\] (?P<sender>[\w.-]+ [^ :\[\n]+\[\d+\]: )",  # journalctl
            # RealTerm, Docklight
            rb"[\[(]?(?P<loose>\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d\d),? \d{1,2}):\d\d:\d\d"
            rb"(?:[.,:]\d{1,6})?(?: ?[AaPp][Mm])?(?:\]|\)|,)?[ \t]",
            rb"(?:\d{4}-)?\d\d-\d\d " + _CLOCK + rb"(?: +\d+ +\d+ [VDIWEFS] | [VDIWEFS]/)"  # logcat
            rb"(?P<sender>[^:\n]{1,48}: )",
        ),
    )
)


class Logger:
    """The logger of one port's lines, if there is one."""

    def __init__(self) -> None:
        self.is_known = False
        self.prefix = _NONE  # of each line
        self.prefix_bytes = 0  # -1: they differ
        self.form = b""  # an expression for the prefixes that are written as the first one was
        self.first_char = b""  # of a prefix
        self.drops_crs = False
        self._to_learn = _FIRST_LINES
        self._newest: list[tuple[object, object]] = []  # what the newest line may have, in these

    def begin_of(self, line: bytes) -> int:
        """Return where a line begins behind its prefix, 0 if it has none."""
        prefix = self.prefix.match(line) if self.is_known else None
        return prefix.end() if prefix else 0

    def learn(self, view: bytes) -> re.Match[bytes] | None:
        """Take lines; return the prefix of the first one that a logger has stamped, for `take`."""
        at = 0
        while self._to_learn and at < len(view):
            end = view.find(b"\n", at)
            if view[at:end].strip() and not view.startswith(_BEGUN_BY, at):
                matches = (form.match(view, at, end) for form in _FORMS)
                found = [prefix for prefix in matches if prefix]
                if self._to_learn < _FIRST_LINES:
                    told = [prefix for prefix in found if _kind(prefix) in self._newest]
                else:  # the first words of a line may look like who sent it, its first space, too
                    told = [] if any(map(_is_doubtful, found)) else found
                self._to_learn -= 1
                self._newest = [_kind(prefix) for prefix in found]
                if told:
                    self._to_learn = 0
                    return told[0]
            at = end + 1
        return None

    def take(self, prefix: re.Match[bytes]) -> None:
        """Take it that all lines from now on have such a prefix."""
        self.is_known = True
        groups = prefix.groupdict()
        is_loose = groups.get("loose") is not None
        self.prefix = prefix.re
        self.prefix_bytes = _UNEQUAL if is_loose else len(prefix[0])
        self.form = _form_of(prefix[0], groups.get("sender") or b"", is_loose=is_loose)
        self.first_char = prefix[0][:1]
        line_end = prefix.string.find(b"\n", prefix.end())
        self.drops_crs = prefix.string[line_end - 1 : line_end] != b"\r"  # all of them, or none


def _kind(prefix: re.Match[bytes]) -> tuple[object, object]:
    return prefix.re, prefix.groupdict().get("sender")


def _is_doubtful(prefix: re.Match[bytes]) -> bool:
    if prefix.string.startswith(b" ", prefix.end()):
        return True
    sender = prefix.groupdict().get("sender")
    return sender is not None and _SENDER_ALONE.fullmatch(sender) is not None


def _form_of(prefix: bytes, sender: bytes, *, is_loose: bool) -> bytes:
    """Return a pattern of the prefixes that are written as this one, by the same sender.

    What has a known length, and what is always the same, is found three times as fast.
    """
    stamp = prefix[: len(prefix) - len(sender)]
    year = year_at.span() if (year_at := _YEAR.search(stamp)) else (0, 0)
    kinds = [
        re.escape(stamp[at : at + 1]) if year[0] <= at < year[1] else _kind_of(stamp[at : at + 1])
        for at in range(len(stamp))
    ]
    if is_loose:
        runs = [(kind, len(list(same))) for kind, same in groupby(kinds)]
        kinds = [
            kind + rb"{1,%d}" % (count + 4) if kind == _DIGIT else kind * count
            for kind, count in runs
        ]
    return b"".join(kinds) + re.escape(sender)


def _kind_of(char: bytes) -> bytes:
    if char in b" 0123456789":
        return _DIGIT
    if char.isupper():
        return rb"[A-Z]"
    return rb"[a-z]" if char.islower() else re.escape(char)
