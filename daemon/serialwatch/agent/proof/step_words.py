"""What a report may advise: commands that a page knows, at the risk that the words have."""

from __future__ import annotations

import re
from collections.abc import Collection

from serialwatch.records import Risk


def strange_command(text: str, pages: Collection[str]) -> str:
    """Return the first command or address in `text` that no page has, "" for none.

    What a board printed does not count: it could print anything.
    """
    for found in _COMMAND.finditer(text):
        command = str(found.group("quoted") or found.group("other")).rstrip(".,;)").strip()
        is_ours = found.group("quoted") and command.startswith("serialwatch ")
        if not is_ours and not any(command.lower() in page.lower() for page in pages):
            return command
    return ""


def strange_address(text: str, known: Collection[str]) -> str:
    """Return the first address of the net in `text` that nothing known has, "" for none."""
    for found in _ADDRESS.finditer(text):
        address = found.group().rstrip(".,;)…")
        if not any(address.lower() in each.lower() for each in known):
            return address
    return ""


def strange_order(text: str, pages: Collection[str]) -> str:
    """Return the first address, or command to type, in `text` that no page has, "" for none.

    For remarks: they may name in quotes what a board ran, but tell nobody to run or to open it.
    """
    if address := strange_address(text, pages):
        return address
    for found in _TYPED.finditer(text):
        command = found.group().rstrip(".,;)`…").strip()
        if not any(command.lower() in page.lower() for page in pages):
            return command
    return ""


def is_order(text: str) -> bool:
    """Return whether a sentence tells its reader to do something, where it should tell a fact."""
    return _ORDER.match(text) is not None


def damaging(text: str) -> str:
    """Return what in a step cannot be taken back on a board, "" for nothing."""
    if _NEGATED.match(text):
        return ""
    found = _DAMAGES.search(text)
    return found.group() if found else ""


def least_risk(text: str) -> Risk:
    """Return the risk that a step has at least, by what it tells a person to do."""
    return "L3" if _ACTS.search(text) and not _NEGATED.match(text) else "L1"


_NEGATED = re.compile(r"\s*(?:do not|don't|never|avoid)\b", re.IGNORECASE)
_NET = (
    r"(?:\b[a-z][a-z0-9+.-]*://|\bwww\.|\b(?:javascript|vbscript|mailto|data):)\S+"
    # Without a scheme: a name that ends like one of the net's.
    r"|(?<![\w./@-])(?:[a-z0-9-]+\.)+"
    r"(?:com|net|org|info|biz|xyz|top|site|online|link|click|example|io|ru|cn)(?![\w-]|\.\w)\S*"
)
_RUN = (
    r"(?<![\w-])(?:sudo|rm -\w+|dd if=|mkfs\S*|curl|wget|chmod|bash -c|sh -c|eval|esptool\S*|"
    r"flash_erase|mtd erase|nandwrite|fw_setenv) \S+(?: \S+)?"
)
_ADDRESS = re.compile(_NET, re.IGNORECASE)
_TYPED = re.compile(_RUN, re.IGNORECASE)
_COMMAND = re.compile(rf"`(?P<quoted>[^`]+)`|(?P<other>{_NET}|{_RUN})", re.IGNORECASE)
# Fuses and voltages; a word between them may not be the end of a sentence.
_DAMAGES = re.compile(
    r"\b(?:burn|blow|write|program|set)\b[^.;]{0,40}"
    r"\b(?:e-?fuses?|fuses?|otp|one-time programmable)\b"
    r"|\b(?:raise|increase|overdrive|exceed)\b[^.;]{0,40}\b(?:voltage|vdd\w*|vcore|volts?)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\W*(?:please |now |then |first )*"
    r"(?:see|open|visit|go to|follow|click|download|fetch|install|run|execute|type|enter|paste|"
    r"call|use|try|send|copy)\b(?! (?:of|was|were|is|ends|ended|failed)\b)",
    re.IGNORECASE,
)
# What begins a sentence, or what comes after "then", is what a person is to do.
_ACTS = re.compile(
    r"(?:^|[.;:] |\bthen |\band |\bor |\bplease )"
    r"(?:erase|reflash|re-flash|flash|overwrite|burn|blow|reset|reboot|restart|power[- ]?cycle|"
    r"power (?:off|down)|switch off|unplug|replug|format|send|write|type)\b"
    r"(?! (?:down|up to|a (?:report|note|rule|test)))",
    re.IGNORECASE,
)
