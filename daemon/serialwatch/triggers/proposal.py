"""A rule proposed for one line: numbers generalised, fields named, an example filled in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from serialwatch.records import Severity
from serialwatch.triggers.patterns import LineView
from serialwatch.triggers.view import strip_escapes

MAX_MATCH = 160  # characters of the pattern that is looked for
MAX_TITLE = 140
MAX_FIELDS = 8
SHORT = 16  # characters of plain text: below it the pattern is anchored

_TOKEN = re.compile(
    r"(?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<sum>(?<=\*)[0-9a-fA-F]{2}(?=\s*$))"  # of NMEA
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<mac>\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b)"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}\b)"
    r"|(?P<bare>\b(?=[a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{6,}\b)"
    r"|(?P<float>(?<![\w.])\d+\.\d+(?![\w.]))"
    r"|(?P<int>\d+)"
    r"|(?P<other>[\x80-\xff]+)"
    r"|(?P<space> {2,}|\t+)"
)
_LOOK = {  # what is looked for, and one character of it for the end of a pattern
    "hex": (r"0x[0-9a-fA-F]+", r"0x[0-9a-fA-F]"),
    "uuid": (r"[0-9a-fA-F-]{36}", r"[0-9a-fA-F-]{36}"),
    "sum": (r"[0-9a-fA-F]{2}", r"[0-9a-fA-F]{2}"),
    "mac": (r"[0-9a-fA-F:-]{17}", r"[0-9a-fA-F:-]{17}"),
    "ip": (r"\d+\.\d+\.\d+\.\d+", r"\d+\.\d+\.\d+\.\d"),
    "bare": (r"[0-9a-fA-F]{6,}", r"[0-9a-fA-F]{6}"),
    "float": (r"\d+\.\d+", r"\d+\.\d"),
    "int": (r"\d+", r"\d"),
    "one": (r"\d+", r"\d"),  # of the things of one name
    "other": (r"[\x80-\xff]{1,60}", r"[\x80-\xff]"),
    "space": (r"\s+", r"\s"),
}
_SPECIAL = set(r".^$*+?{}[]\|()")
_WORD = re.compile(r"[A-Za-z][A-Za-z_]+")
_NO_NAMES = {"at", "of", "to", "in", "on", "is", "no", "the", "for", "from", "by", "after", "with"}
_GLUED = re.compile(r"[A-Za-z_]+$")
_LETTER = re.compile(r"(?<![A-Za-z])([A-Za-z])_?$")
_UNITS = {"ms", "us", "ns", "s", "sec", "seconds", "mv", "v", "ma", "hz", "khz", "mhz", "rpm"}
_THING = re.compile(  # a number behind one says which; behind any other word it says how much
    r"(?:adapter|axis|bank|battery|bay|blade|board|bus|can|card|cell|chan|channel|core|cpu|dev"
    r"|device|dimm|disk|drive|eth|fan|gpio|gpu|hub|i2c|id|iface|index|input|instance|interface|irq"
    r"|lane|link|lun|mmc|module|motor|node|output|partition|phy|pin|port|pump|rail|relay|ring"
    r"|sensor|slave|slot|socket|spi|task|thread|uart|unit|usb|valve|vector|zone)\d*"
)
_UNIT_NAMES = {"ms": "ms", "us": "us", "ns": "ns", "s": "seconds", "sec": "seconds"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule as it would stand in a pack."""

    id: str
    title: str
    severity: Severity
    match: str
    fields: str  # "" if the line has no numbers
    key: tuple[str, ...]
    example: str
    counterexamples: tuple[str, ...]

    def toml(self) -> str:
        """Return it as a table of a pack."""
        rows = [
            "[[rule]]",
            f"id = {_quoted(self.id)}",
            f"title = {_quoted(self.title)}",
            f'severity = "{self.severity}"',
            f"match = [{_quoted(self.match)}]",
        ]
        if self.fields:
            rows.append(f"fields = {_quoted(self.fields)}")
        if self.key:
            rows.append(f"key = [{', '.join(map(_quoted, self.key))}]")
        rows.append(f"examples = [{_quoted(self.example)}]")
        if self.counterexamples:
            rows.append(f"counterexamples = [{', '.join(map(_quoted, self.counterexamples))}]")
        else:
            rows.append(
                "# A line that looks alike and is no fault; it keeps the pattern from growing:"
            )
            rows.append("# counterexamples = ['']")
        return "\n".join(rows) + "\n"


def propose(
    line: str, rule_id: str, severity: Severity, counterexamples: tuple[str, ...] = ()
) -> Proposal:
    """Return a rule for a line that was pasted from a log.

    Raises:
        ValueError: there is nothing in the line that a rule could look for.

    """
    raw = strip_escapes(line.encode("utf-8", errors="surrogateescape")).rstrip(b"\r\n")
    text = LineView(raw).shortest().strip()
    parts = list(_parts(text.decode("latin-1")))
    if not any(kind == "text" and _WORD.search(value) for kind, value, _ in parts):
        told = "the line holds no word that a rule could look for"
        if not text.isascii():
            by_hand = _escaped(text.decode("latin-1"))[:MAX_MATCH]
            told += f" in ASCII; a rule can name its bytes: match = ['{by_hand}']"
        raise ValueError(told)
    looked = _cut(parts)
    return Proposal(
        id=rule_id or f"mine.{_slug(parts)}",
        title=_title(looked),
        severity=severity,
        match=_pattern(looked, is_whole=looked == parts),
        fields=_fields(looked),
        key=tuple(name for kind, _, name in looked if _names_a_thing(kind, name)),
        example=raw.decode("utf-8", errors="replace").strip(),
        counterexamples=counterexamples,
    )


_Part = tuple[str, str, str]  # kind, text as it stands, name of the field or ""


def _parts(text: str) -> Iterator[_Part]:
    """Cut a line into plain text and what changes from one time to the next."""
    at = 0
    used: dict[str, int] = {}
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind == "int" and (glued := _GLUED.search(text[: found.start()])):
            if not _is_apart(glued, text[found.end() : found.end() + 1]):
                continue
            kind = "one"
        if found.start() > at:
            yield "text", text[at : found.start()], ""
        name = ""
        if kind not in ("space", "other", "sum") and sum(used.values()) < MAX_FIELDS:
            name = _name(kind, text[: found.start()], text[found.end() :])
            used[name] = used.get(name, 0) + 1
            if used[name] > 1:
                name = f"{name}{used[name]}"
        yield kind, found[0], name
        at = found.end()
    if at < len(text):
        yield "text", text[at:], ""


def _is_apart(glued: re.Match[str], behind: str) -> bool:
    """Tell whether the number behind these letters changes: `V12`, `can0`, but not `stm32`."""
    name = glued[0].strip("_").lower()
    return not behind.isalpha() and (len(name) == 1 or _THING.fullmatch(name) is not None)


def _name(kind: str, before: str, after: str) -> str:
    """Name a number by the word before it, else by its unit."""
    if kind in ("ip", "mac", "uuid"):
        return kind
    if kind == "one" and (letter := _LETTER.search(before)):
        is_which = letter[1].isupper() and not before[-2:-1].isdigit()  # no version and no time
        return letter[1].lower() if is_which else "number"
    if re.match(r"\s?%", after):
        return "percent"
    unit = re.match(r"\s?([A-Za-z]+)\b", after)
    if unit and unit[1].lower() in _UNITS:
        name = unit[1].lower()
        return _UNIT_NAMES.get(name, name)
    nearest = re.search(r"([A-Za-z][A-Za-z_]*)[^A-Za-z]{0,3}$", _without_accents(before))
    word = nearest[1].lower().strip("_") if nearest else ""
    if word and word not in _NO_NAMES and len(word) > 1:
        return word[:24]
    return "address" if kind in ("hex", "bare") else "number"


def _names_a_thing(kind: str, name: str) -> bool:
    """Tell whether a number says which thing it is, not how much or where."""
    if kind == "one":
        return bool(name) and not name.startswith("number")
    return kind == "int" and _THING.fullmatch(name) is not None


def _cut(parts: list[_Part]) -> list[_Part]:
    """Return so many parts as a pattern should have."""
    kept: list[_Part] = []
    size = 0
    for kind, value, name in parts:
        length = len(_escaped(value)) if kind == "text" else len(_LOOK[kind][0])
        if kept and size + length > MAX_MATCH:
            if kind == "text":
                head = value[: max(0, MAX_MATCH - size)].rpartition(" ")[0]
                if head:
                    kept.append((kind, head, name))
            break
        head = value[: MAX_MATCH // 2]
        is_long = length > MAX_MATCH
        kept.append((kind, head.rpartition(" ")[0] or head if is_long else value, name))
        size += length
    while kept and kept[-1][0] == "space":
        kept.pop()
    return kept


def _pattern(parts: list[_Part], *, is_whole: bool) -> str:
    """Write what is looked for; its end is fixed."""
    texts = []
    for number, (kind, value, _) in enumerate(parts):
        is_last = number == len(parts) - 1
        texts.append(_escaped(value) if kind == "text" else _LOOK[kind][is_last])
    plain = sum(len(value) for kind, value, _ in parts if kind == "text")
    anchor = "^" if plain < SHORT else ""
    end = "$" if is_whole and plain < SHORT and parts[-1][0] == "text" else ""
    return anchor + "".join(texts) + end


def _fields(parts: list[_Part]) -> str:
    """Write what picks the numbers out; up to the last of them."""
    last = max((n for n, (_, _, name) in enumerate(parts) if name), default=-1)
    texts = []
    for kind, value, name in parts[: last + 1]:
        if kind == "text":
            texts.append(_escaped(value))
        elif name:
            texts.append(f"(?P<{name}>{_LOOK[kind][0]})")
        else:
            texts.append(_LOOK[kind][0])
    return "".join(texts)


def _title(parts: list[_Part]) -> str:
    texts = []
    for kind, value, name in parts:
        if name:
            texts.append(f"{{{name}}}")
        elif kind != "text":
            texts.append(" " if kind == "space" else _foreign(value))
        else:
            plain = "".join(c if c.isprintable() else "?" for c in value)
            texts.append(plain.replace("{", "{{").replace("}", "}}"))
        if sum(map(len, texts)) > MAX_TITLE:
            # Not in the midst of a field's name or of a doubled brace.
            texts[-1] = "" if name else texts[-1][:40].rstrip("{}")
            break
    return "".join(texts).strip()[:160]


def _slug(parts: list[_Part]) -> str:
    text = "".join(value if kind in ("text", "other") else " " for kind, value, _ in parts)
    words = [w.lower().strip("_") for w in _WORD.findall(_without_accents(text))]
    kept = [word for word in words if word not in _NO_NAMES and len(word) > 1][:4]
    return "_".join(kept or words)[:48].strip("_") or "fault"


def _foreign(text: str) -> str:
    """Return bytes beyond ASCII as a title may have them."""
    try:
        shown = text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return "…"
    return shown if shown.isprintable() else "…"


def _without_accents(text: str) -> str:
    """Return words of other languages so that they can be names: `défaut` is `defaut`."""
    shown = text.encode("latin-1").decode("utf-8", errors="replace")
    apart = unicodedata.normalize("NFKD", shown)
    return "".join(c for c in apart if not unicodedata.combining(c))


def _escaped(text: str) -> str:
    out = []
    for char in text:
        if char == "\t":
            out.append(r"\t")
        elif char.isascii() and char.isprintable():
            out.append("\\" + char if char in _SPECIAL else char)
        else:
            out.append(f"\\x{ord(char):02x}")
    return "".join(out)


def _quoted(text: str) -> str:
    """Return a string of TOML, without escapes where that can be."""
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        else:
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'
