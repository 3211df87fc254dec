"""How one boot of a board differs from another: lines that are new or missing, counts, times.

Lines are compared by their form: without times, with every number the same. A form counts where it
appears first, so that lines which swap places are no difference. A line of which the other boot has
a near twin (another version, another name) is reworded, neither new nor missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from serialwatch.agent.ctx.log_query import MAX_CHARS, LogView
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import Remembered, level_of, shape
from serialwatch.agent.text.templates import alike
from serialwatch.records import Line, Severity

SCAN_S = 0.6  # for one boot
MAX_FORMS = 4_000  # of one boot; lines of further ones are counted only
MAX_PAIRED = 300  # new forms for which a twin is looked for
TWIN = 0.6  # share of words that twins have in common
MANY_TIMES = 3  # a count that differs by this factor is told
SLOWER_S = 0.5  # a step that takes so much longer, and half as long again, is told
_CHECK = 256  # lines between two looks at the clock
_S = 1_000_000_000

DivergenceKind = Literal["new", "missing", "stops"]


@dataclass(slots=True)
class Form:
    """Lines of a boot that differ in numbers only."""

    text: str
    line: Line  # the first of them
    at_s: float  # when that came, after the boot began
    level: Severity
    count: int = 0  # as far as both boots are compared


@dataclass(slots=True)
class BootForms:
    """What one boot printed."""

    first: int
    last: int
    start_utc_ns: int
    lines: int = 0
    seconds: float = 0.0
    forms: dict[str, Form] = field(default_factory=dict)  # in order of first appearance
    is_complete: bool = True  # False: the limits ended it at `last`


@dataclass(frozen=True, slots=True)
class Pair:
    """The same form in both boots, or twins."""

    here: Form
    there: Form


@dataclass(frozen=True, slots=True)
class Step:
    """From one form that both boots have to the next one, and how long that took in each."""

    before: Pair
    after: Pair
    here_s: float
    there_s: float


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the boots part."""

    kind: DivergenceKind
    after: Pair | None  # the last form that both have before it; None: at the very beginning
    here: Form | None  # how this boot goes on, as far as that is new
    there: Form | None  # how the other one went on, as far as that is missing here


@dataclass(frozen=True, slots=True)
class BootDiff:
    """How `here` differs from `there`."""

    divergence: Divergence | None
    new: tuple[Form, ...]  # in order
    missing: tuple[Form, ...]  # before the last form that both have
    not_reached: tuple[Form, ...]  # after it: this boot did not get there, or not yet
    reworded: tuple[Pair, ...]
    counts: tuple[Pair, ...]  # the most different first
    slower: tuple[Step, ...]  # the slowest first
    last_common: Pair | None


def read_boot(view: LogView, first: int, last: int, span_s: float | None = None) -> BootForms:
    """Return the forms of lines `first` to `last`; after `span_s` they are not counted any more."""
    boot = BootForms(first, last, 0)
    form = Remembered(_form)
    end_s = time.monotonic() + SCAN_S
    for number, line in enumerate(view.lines(first, last)):
        if number == 0:
            boot.start_utc_ns = line.utc_ns
        if number % _CHECK == 0 and time.monotonic() > end_s:
            boot.is_complete, boot.last = False, line.seq - 1
            break
        _add(boot, line, form(line.raw[:MAX_CHARS]), span_s)
    return boot


def duration_s(view: LogView, first: int, last: int) -> float:
    """Return how long it took from the first to the last of some lines."""
    begin = next(view.lines(first, last, 1), None)
    end = next(view.lines(first, last, 1, reverse=True), None)
    return max(end.utc_ns - begin.utc_ns, 0) / _S if begin and end else 0.0


def compare(here: BootForms, there: BootForms) -> BootDiff:
    """Return how `here` differs from `there`."""
    common = [
        Pair(form, there.forms[key]) for key, form in here.forms.items() if key in there.forms
    ]
    new = {key: form for key, form in here.forms.items() if key not in there.forms}
    gone = {key: form for key, form in there.forms.items() if key not in here.forms}
    new, gone = _without_prompts(new, there.forms), _without_prompts(gone, here.forms)
    if not there.is_complete:  # what comes later there was not seen: it may be the same
        new = {k: f for k, f in new.items() if f.at_s <= there.seconds}
    reworded = _twins(new, gone)
    for pair in reworded:
        new.pop(form_of(pair.here.text))
        gone.pop(form_of(pair.there.text))
    reached = max((p.there.line.seq for p in common), default=0)
    last_common = max(common, key=lambda p: p.there.line.seq, default=None)
    missing = tuple(f for f in gone.values() if f.line.seq < reached)
    not_reached = tuple(f for f in gone.values() if f.line.seq > reached)
    if not here.is_complete:
        not_reached = ()
    return BootDiff(
        divergence=_divergence(list(new.values()), missing, not_reached, common),
        new=tuple(new.values()),
        missing=missing,
        not_reached=not_reached,
        reworded=tuple(reworded),
        counts=tuple(sorted(filter(_differs, common), key=_factor, reverse=True)),
        slower=tuple(sorted(_slower(common), key=lambda s: s.there_s - s.here_s)),
        last_common=last_common,
    )


def _without_prompts(forms: Mapping[str, Form], others: Mapping[str, Form]) -> dict[str, Form]:
    """Return forms without prompts behind which, in the other boot, something was printed."""
    return {
        key: form
        for key, form in forms.items()
        if not (_PROMPT.search(key) and any(other.startswith(f"{key} ") for other in others))
    }


_PROMPT = re.compile(r"[:#$>]$")


def form_of(text: str) -> str:
    """Return a line as boots are compared: times left out, all numbers and addresses alike."""
    plain = _ALIKE.sub("0", text)
    return _HEX_WORD.sub("<n>", shape(plain).replace("<x>", "<n>"))


_DAYS = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTHS = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ALIKE = re.compile(
    r"\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b"  # MAC
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUID
    rf"|\b{_DAYS},? +(?:{_MONTHS} +\d+|\d+ +{_MONTHS})\b"
    rf"|\b{_MONTHS} +\d\d? +\d\d\d\d\b"
)
_HEX_WORD = re.compile(r"(?<![\w<])(?:<n>[a-fA-F]{1,4}|[a-fA-F]{1,4}<n>)+(?:<n>)?(?![\w>])")


def _form(raw: bytes) -> str:
    return form_of(readable(raw))


def _add(boot: BootForms, line: Line, key: str, span_s: float | None) -> None:
    at_s = max(line.utc_ns - boot.start_utc_ns, 0) / _S
    boot.lines += 1
    boot.seconds = max(boot.seconds, at_s)
    if not key:
        return
    known = boot.forms.get(key)
    if known is None:
        if len(boot.forms) >= MAX_FORMS:
            return
        text = readable(line.raw[:MAX_CHARS])
        known = boot.forms[key] = Form(text, line, at_s, level_of(text))
    if span_s is None or at_s <= span_s:
        known.count += 1


def _twins(new: Mapping[str, Form], gone: Mapping[str, Form]) -> list[Pair]:
    """Return pairs of a new and a missing form that say the same in other words."""
    left: dict[tuple[int, str], list[tuple[str, ...]]] = {}
    texts: dict[tuple[str, ...], Form] = {}
    for key, form in gone.items():
        words = tuple(key.split())
        left.setdefault((len(words), words[0]), []).append(words)
        texts[words] = form
    found: list[Pair] = []
    for key, form in list(new.items())[:MAX_PAIRED]:
        words = tuple(key.split())
        others = left.get((len(words), words[0]), [])
        best = max(others, key=lambda other: alike(other, words), default=None)
        if best is not None and form.level == texts[best].level and alike(best, words) >= TWIN:
            others.remove(best)
            found.append(Pair(form, texts[best]))
    return found


def _divergence(
    new: Sequence[Form],
    missing: Sequence[Form],
    not_reached: Sequence[Form],
    common: Sequence[Pair],
) -> Divergence | None:
    """Return where the boots part: at a new line, at one that should be there, or at the end."""
    first_new = new[0] if new else None
    first_gone = missing[0] if missing else None
    if first_gone is not None:
        after = _before_there(first_gone, common)
        place = after.here.line.seq if after else 0
        if first_new is None or place < first_new.line.seq:
            # A new line right after the same place is the other half of it.
            is_same = first_new is not None and _before_here(first_new, common) == after
            return Divergence("missing", after, first_new if is_same else None, first_gone)
    if first_new is not None:
        after = _before_here(first_new, common)
        next_there = not_reached[0] if not_reached else None
        is_same = next_there is not None and _before_there(next_there, common) == after
        return Divergence("new", after, first_new, next_there if is_same else None)
    if not_reached:
        return Divergence("stops", _before_there(not_reached[0], common), None, not_reached[0])
    return None


def _before_there(form: Form, common: Sequence[Pair]) -> Pair | None:
    earlier = [p for p in common if p.there.line.seq < form.line.seq]
    return max(earlier, key=lambda p: p.there.line.seq, default=None)


def _before_here(form: Form, common: Sequence[Pair]) -> Pair | None:
    earlier = [p for p in common if p.here.line.seq < form.line.seq]
    return max(earlier, key=lambda p: p.here.line.seq, default=None)


def _differs(pair: Pair) -> bool:
    few, many = sorted((pair.here.count, pair.there.count))
    return few > 0 and many >= MANY_TIMES * few and many - few >= MANY_TIMES


def _factor(pair: Pair) -> float:
    few, many = sorted((pair.here.count, pair.there.count))
    return many / max(few, 1)


def _slower(common: Sequence[Pair]) -> Iterator[Step]:
    for before, after in pairwise(common):
        here_s = after.here.at_s - before.here.at_s
        there_s = after.there.at_s - before.there.at_s
        if there_s >= 0 and here_s - there_s >= max(SLOWER_S, there_s / 2):
            yield Step(before, after, here_s, there_s)
