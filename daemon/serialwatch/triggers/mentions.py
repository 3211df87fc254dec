"""Lines that hold the words of a fault and report none: a status, a name, source code, prose.

What a rule's pattern matches itself is meant; only what stands around it is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from serialwatch.triggers.patterns import LineView, Pattern
from serialwatch.triggers.recent import kernel_stamp_s

_MOST = 400  # bytes to each side of a match that are looked at,
_MOST_OF_FORMAT = 100  # and for a text that was not filled in

# What a status says of a thing that has not happened, behind the words that name it.
_NOTHING = (
    rb"(?:none|no|never|off|ok(?:ay)?|disabled|inactive|n/a|not (?:triggered|detected|active)"
    rb"|0+(?: times)?)\)?[.!;]?\s*(?:[=*-]{2,}\s*)?\Z"
)
_BEHIND = re.compile(
    rb"(?i)[a-z]{0,12}(?:(?: [a-z]{1,12}){0,2}? (?:count(?:er|s)?|total|events?|errors|flag"
    rb"|resets?|so far|state|status))*(?: ?[:=] *| (?=0)| (?:was )?(?=not ))"
    + _NOTHING
    + rb"|\w{0,12}"
    rb"(?: was| were)?(?: triggered| detected| called| seen)? 0 times\b"
)
_SWITCHED = re.compile(
    rb"(?i)[^:=]{0,60}\b(?:checks?|checking|detect(?:ion|or)|protection|handlers?|hook|traps?)"
    rb" (?:is |are )?(?:on|off|ok|enabled|disabled|installed|registered|active)\s*\Z"
)
_LABELLED = re.compile(rb"(?i)(?:(?!0x)[^:=;,\[\]]){3,80}?(?<![!<>])[:=] *" + _NOTHING)
_LAST_WORDS = frozenset(  # of any of these
    b"none no never off okay ok disabled inactive n/a triggered detected active times on enabled"
    b" installed registered 0 00 000 0000 00000000 0x0 0x00000000".split()
)
_END_BYTES = 32
_COUNT = re.compile(  # of what; of anything else it is a reading, or tells which one it was
    rb"(?i)(?:[a-z]{2}[^\Wsui]s|abort|brownout|count(?:er)?|crash|fault|hook|lockup|oops|overflow"
    rb"|overrun|panic|reset|stall|timeout|total|underrun)(?: ?[:=] *| )0+\W*\Z"
)
_BEFORE = re.compile(rb"(?i)(?:^|[^\w.-])(?:no|zero|without)(?: an?y?)? \Z|(?:^|[,;(]) ?0 \Z")

_PART_OF_NAME = re.compile(rb"\A\s*[\w./+-]+")
_FILE = re.compile(
    rb"\A[\w+-]*\.(?:[chsoaS]|[ch]pp|cc|cxx|rs|go|py|lua|sh|js|java|ko|so|elf|bin|hex|map|lst|dtsi?"
    rb"|md|rst|txt|log|html?|json|ya?ml|xml|conf|cfg|ini|gz|xz|patch|diff)(?![\w.])"
)
_SYMBOL = re.compile(  # in a table of addresses
    rb"\A\s*\w*(?:_[Hh]andler|_IRQHandler|Hook)\w*(?: *[=@] *| at | +)(?:0x)?[0-9a-f]{6,16}\s*\Z"
    rb"|\A\s*(?:0x)?[0-9a-f]{8,16}(?: +[A-Za-z])? +<?\w*(?:_[Hh]andler|Hook)\w*>?:?\s*\Z"
)

# Source code and the texts of formats.
_FORMAT = re.compile(rb"%(?:[-0#+]*\d*(?:\.\d+)?(?:hh?|ll?|z|j|t)?[diuxXscp]|l?l?[dux])(?![\w%])")
_IN_LITERAL = re.compile(rb"""\b\w+ ?\((?:[^"()]*[ ,])?"[^"]*\Z""")
_LITERAL_ENDS = re.compile(rb"""\A[^"]*"\s*(?:,[^"]*)?\)\s*(?:;|\{|\\?\s*\Z)""")
_NEWLINE_IN_LITERAL = re.compile(rb"""\A[^"]*\\n["\\]""")

# Pages, documents, mails, help.
_TAG_BEFORE = re.compile(
    rb"(?i)<(?:a|b|i|p|h[1-6]|pre|code|li|td|th|title|em|strong|div|span|body|tt)"
    rb"(?: [^<>]*)?>[^<>]*\Z"
)
_TAG_BEHIND = re.compile(rb"\A[^<>]*</[a-zA-Z][a-zA-Z0-9]{0,9}>")
_LINE_OF_DOCUMENT = re.compile(
    rb"\A\s*(?:\S*/)?(?:(?:README|NEWS|TODO|ChangeLog|CHANGES)[\w.]*|[\w.+-]*\.(?:md|rst|txt|html?"
    rb"|tex|adoc|xml|json|ya?ml|po|diff|patch|[1-9]))(?:\.gz)?[:-]\d+[:-]"
)
_USAGE = re.compile(
    rb"\A\s*(?:--[a-z][\w-]+[= ]|[Uu]sage: "
    rb"|[a-z][\w-]*(?: ?[<\[][^<>\[\]]+[>\]])*(?: {2,}|\t+| )(?:[-:] )?(?:cause|check|fail|force"
    rb"|generate|make|provoke|raise|simulate|test|throw|trigger)s? (?:an? |the ))"
)
_HEADING = re.compile(rb"\A\s*(?:TODO|FIXME|Subject)\b")
_TO_DO = re.compile(
    rb"(?i)\b(?:fix(?:e[sd]|ing)?|avoid(?:s|ed)?|prevent(?:s|ed)?|provoke[sd]?|simulate[sd]?)"
    rb"(?: ?:)?(?: an?| the)? [\"'`]?\Z"
)
_WORDS = 24  # bytes before a match that hold the last few words
_QUOTE_OPENS = re.compile(
    rb"(?i)(?:\b(?:about|does|handles?|if|like|means?|say(?:s|ing)?|seen?|sees|shows?|the|when|why)"
    rb"|[a-z],) [\"`]\Z"
)
_QUOTE_CLOSES = re.compile(
    rb"\A[^\"`]*[\"`](?:\?| (?:appears?|is (?:printed|shown|logged)|means?|messages?|shows? up|then"
    rb"|through)\b)"
)
# Something of this, a file's name, an end as above or a usage is in each that is only mentioned.
_SIGNS = re.compile(
    rb"[\"'`%<]|[nN]o |NO |ero |ithout |[(,;] ?0 | 0 times| no longer |ndler|Hook|/README|TODO"
    rb"|FIXME|Subject|[fF]ix|FIX|[vV]oid|revent|rovoke|imulate"
)
_SEARCHED = re.compile(
    rb"(?:^|[\s;|&(])(?:[zef]?grep|rg|sed|awk|echo|printf|logger)(?: -\w+)* +(?:[^\"'|;]* )?"
    rb"[\"'][^\"']*\Z"
)


def is_mention(view: LineView, patterns: Iterable[Pattern]) -> bool:
    """Tell whether a line only mentions the fault that patterns match in it."""
    if not _may_be(view.text):
        return False
    found = [match for pattern in patterns if (match := view.search(pattern))]
    unclear = [match for match in found if not _is_nothing(view, match)]
    if not found or not unclear:
        return bool(found)
    # What has a kernel's time in front nobody but the kernel has written.
    return kernel_stamp_s(view.text) is None and all(_is_text(view, match) for match in unclear)


def _may_be(line: bytes) -> bool:
    """Tell whether a closer look is worth its time: in a flood all lines come here."""
    if _SIGNS.search(line) or _ends_in_nothing(line):
        return True
    dot = line.find(b".")
    while dot >= 0:
        if line[dot + 1 : dot + 2].isalpha():
            return True
        dot = line.find(b".", dot + 1)
    return _USAGE.match(line) is not None


def _ends_in_nothing(line: bytes) -> bool:
    end = line[-_END_BYTES:].rstrip(b" \t.!;)*=-")
    last = end[max(end.rfind(b" "), end.rfind(b":"), end.rfind(b"=")) + 1 :].lower()
    if last not in _LAST_WORDS:
        return False
    return not last.startswith(b"0") or _COUNT.search(end) is not None


def _is_nothing(view: LineView, found: re.Match[bytes]) -> bool:
    """Tell whether it is a status that says so, or a name."""
    _, before, behind = _around(view, found)
    return _is_status(found, before, behind) or _is_name(found)


def _is_text(view: LineView, found: re.Match[bytes]) -> bool:
    """Tell whether it stands in source code or prose."""
    line, before, behind = _around(view, found)
    return _is_code(line, before, behind) or _is_prose(line, before, behind)


def _around(view: LineView, found: re.Match[bytes]) -> tuple[bytes, bytes, bytes]:
    """Return the line of a match, and what stands before and behind it there."""
    line, start, end = found.string, found.start(), found.end()
    if view.text.endswith(line):  # but for prefixes
        start, end = (at + len(view.text) - len(line) for at in (start, end))
        line = view.text
    return line, line[max(0, start - _MOST) : start], line[end : end + _MOST]


def _is_status(found: re.Match[bytes], before: bytes, behind: bytes) -> bool:
    """Tell whether it says that there was no such fault."""
    if _BEFORE.search(before):
        return True
    if not behind.strip():
        return False  # the rule has asked for the value itself
    whole = found.string[found.start() :]
    if len(whole) > _MOST or not _ends_in_nothing(whole):
        return b" 0 times" in behind and _BEHIND.match(behind) is not None
    if _SWITCHED.match(whole):
        return True
    return _BEHIND.match(behind) is not None or _LABELLED.match(whole) is not None


def _is_name(found: re.Match[bytes]) -> bool:
    """Tell whether it is the name of a file or of a symbol."""
    line = found.string
    if _FILE.match(line[found.end() : found.end() + _MOST]) and _PART_OF_NAME.fullmatch(found[0]):
        return True
    return (b"ndler" in line or b"Hook" in line) and _SYMBOL.match(line) is not None


def _is_code(line: bytes, before: bytes, behind: bytes) -> bool:
    """Tell whether it is source code, or a text that was not filled in yet."""
    if b"%" in line and (
        _FORMAT.search(behind[:_MOST_OF_FORMAT]) or _FORMAT.search(before[-_MOST_OF_FORMAT:])
    ):
        return True
    if b'"' not in line:
        return False
    if _IN_LITERAL.search(before) and (b'"' not in behind or _LITERAL_ENDS.match(behind)):
        return True
    return _NEWLINE_IN_LITERAL.match(behind) is not None and not line.lstrip().startswith(b'{"')


def _is_prose(line: bytes, before: bytes, behind: bytes) -> bool:
    """Tell whether it is of a page, a document, a command or a help text."""
    if b"<" in line and (_TAG_BEFORE.search(before) or _TAG_BEHIND.match(behind)):
        return True
    if _LINE_OF_DOCUMENT.match(line) or _USAGE.match(line) or _HEADING.match(line):
        return True
    if _TO_DO.search(before[-_WORDS:]) or b" no longer " in behind:
        return True
    if b'"' not in line and b"`" not in line and b"'" not in line:
        return False
    if _SEARCHED.search(before):
        return True
    return bool(_QUOTE_OPENS.search(before) or _QUOTE_CLOSES.match(behind))
