"""Questions that rules can answer: a small grammar, no conversation.

A question is made plain first (quotes, ports, boots and times are taken out of it), and what is
left must fit one of the forms below from end to end. What does not is not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from serialwatch.agent.questions.question_forms import Event, Form, Kind, Turn, fitting
from serialwatch.agent.questions.time_words import TimeSpan, find_span
from serialwatch.agent.questions.yes_no import Asks, asks_of, is_past, is_present
from serialwatch.agent.run.shown import one_line

MAX_QUESTION = 2_000  # characters
MAX_PLAIN = 300  # characters of a question that rules look at
MAX_TOPIC = 80  # characters
MAX_TOPIC_WORDS = 8
MAX_LISTED = 12  # boards that are named


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as far as rules need it."""

    kind: Kind
    ports: tuple[str, ...] = ()  # (): all, or none in particular
    is_named: bool = False  # the ports were named, and not all of them
    span: TimeSpan | None = None
    boot: int | None = None  # -1 the newest
    base: int | None = None  # a boot to compare with
    is_from_boot: bool = False  # from that boot on, not only in it
    marker: str = ""  # since the last marker of that kind: flash, reset
    topic: str = ""  # words to look for, in lower case
    event: Event = ""
    incident: int | None = None
    turn: Turn = ""  # of several times, which one is meant
    is_ever: bool = False  # as far back as anything is known
    asks: Asks = ""  # what a yes would say, "" if it wants no yes or no
    is_past: bool = False  # how something was
    is_now: bool = False  # how something is
    is_any: bool = False  # whether it is so of any board, not of all


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A question that rules cannot answer."""

    why: str
    choices: tuple[str, ...] = ()  # boards of which one has to be named; then they may


def parse_question(
    text: str, ports: Sequence[str], now: datetime, port: str = ""
) -> Question | NotUnderstood:
    """Return what a question asks.

    `ports` are those of the bench, `port` the one that was given beside the question; `now` has
    the zone of whoever asks.
    """
    if len(text) > MAX_PLAIN:
        return NotUnderstood(f"it has {len(text)} characters; rules read {MAX_PLAIN} at most")
    plain = _Plain(text, ports, now, port)
    for form in (plain.words, _joined(plain.words)):
        if (found := fitting(form)) is not None:
            return plain.made(found, form)
    why = plain.unknown_port() or "it has none of the forms that rules know"
    return NotUnderstood(why, plain.choices)


def examples(ports: Sequence[str]) -> list[str]:
    """Return questions that rules can answer, with this bench's names."""
    one = ports[0] if ports else "dut1"
    rows = [
        f"what happened to {one} last night?",
        f"why did {one} reset?",
        f"is {one} all right?",
        f"how often did {one} reboot today?",
        f"when did {one} last boot?",
        f"has {one} ever had an oops?",
        "which boards had errors since yesterday?",
        f"what changed on {one} since the last good boot?",
        f'what did {one} print about "mmc" in the last 2 hours?',
    ]
    if len(ports) > 1:
        rows.append(f"compare {ports[0]} and {ports[1]}")
    return [*rows, "what is incident 17?", "what do you know about brownout?"]


class _Plain:
    """A question without what differs from bench to bench and day to day.

    In `words` `<p>` stands for a port, `<q>` for what was quoted.
    """

    def __init__(self, text: str, ports: Sequence[str], now: datetime, given: str) -> None:
        self._known = tuple(ports)
        self.choices: tuple[str, ...] = ()  # boards that may be meant, where that is all that lacks
        self._given = given
        self._ports: list[str] = []
        self._unknown: list[str] = []
        self._is_all = False
        self._is_any = False
        self._quotes: list[str] = []
        self._span: TimeSpan | None = None
        self._boot: int | None = None
        self._base: int | None = None
        self._is_from_boot = False
        self._marker = ""
        self._turn: Turn = ""
        self._is_ever = False
        words = " ".join(one_line(text).lower().replace("’", "'").split())
        words = _QUOTE.sub(self._take_quote, words)
        words = _spelled_out(words)
        words = self._without_ports(words)
        words = self._without_boots(words)
        words = _MARKER.sub(self._take_marker, words)
        if (found := find_span(words, now)) is not None:
            self._span, words = found.span, found.rest
        words = _EVER.sub(self._take_ever, _TURN.sub(self._take_turn, words))
        self.words = _trimmed(words)

    def made(self, form: Form, words: str) -> Question | NotUnderstood:
        """Return the question of a form that fits `words`."""
        topic = form.topic
        if topic:
            topic = self._without_marks(topic)
            if not topic or len(topic) > MAX_TOPIC or len(topic.split()) > MAX_TOPIC_WORDS:
                return NotUnderstood("what it is about is too long: name it in a few words")
        if self._unknown:
            return NotUnderstood(self._no_port(self._unknown[0]), self.choices)
        named = list(dict.fromkeys(self._ports))
        if not named and self._given and not self._is_all:
            named = [self._given]
        if form.kind in _ABOUT_ONE and not named and len(self._known) == 1:
            named = [self._known[0]]
        if form.kind in _ABOUT_ONE and not named:
            return NotUnderstood(f"which board? There are {self._listed()}", self._known)
        if form.kind == "compare" and len(named) < 2:
            return NotUnderstood(f"two boards are compared; there are {self._listed()}")
        turn = self._turn or form.turn
        if turn and form.kind not in _OF_ONE_TIME:
            return NotUnderstood(f"the {turn} time is found for a fault or a boot only")
        boot = self._boot
        if boot is None and form.is_newest:
            boot = -1
        return Question(
            form.kind,
            ports=tuple(named),
            is_named=bool(named),
            span=self._span,
            boot=boot,
            base=self._base,
            is_from_boot=self._is_from_boot,
            marker=self._marker,
            topic=topic,
            event=form.event,
            incident=form.incident,
            turn=turn,
            is_ever=self._is_ever,
            asks=asks_of(form.kind, words),
            is_past=is_past(words),
            is_now=is_present(words),
            is_any=self._is_any,
        )

    def unknown_port(self) -> str:
        """Return the complaint about a name that would be understood if there were such a port."""
        if self._unknown:
            return self._no_port(self._unknown[0])
        for found in _LIKE_A_PORT.finditer(self.words):
            form = f"{self.words[: found.start()]}<p>{self.words[found.end() :]}"
            if fitting(form) is not None:
                return self._no_port(found.group())
        return ""

    def _no_port(self, name: str) -> str:
        if name.lower() in _PRONOUNS:
            self.choices = self._known
            return f"which board is {name!r}? There are {self._listed()}"
        return f"there is no port {name!r}; there are {self._listed()}"

    def _listed(self) -> str:
        listed = ", ".join(self._known[:MAX_LISTED]) or "none"
        more = len(self._known) - MAX_LISTED
        return f"{listed} and {more} more" if more > 0 else listed

    def _take_quote(self, found: re.Match[str]) -> str:
        self._quotes.append(found.group()[1:-1].strip())
        return " <q> "

    def _without_marks(self, topic: str) -> str:
        quotes = iter(self._quotes)
        topic = re.sub(r"<q>", lambda _: next(quotes, ""), topic)
        return "" if "<p>" in topic else " ".join(topic.split())

    def _without_ports(self, words: str) -> str:
        names = sorted(self._known, key=len, reverse=True)
        if names:
            either = "|".join(map(re.escape, names))
            pattern = (
                rf"(?<![\w<-])(?:the )?(?:(?:board|port|device|dut|console) )?({either})(?![\w-])"
            )
            words = re.sub(pattern, self._take_port, words)
        words = _NUMBERED.sub(self._take_number, words)
        words = _ALL.sub(self._take_all, words)
        return _IT.sub(" <p> ", words) if self._given or len(self._known) == 1 else words

    def _take_port(self, found: re.Match[str]) -> str:
        self._ports.append(found[1])
        return " <p> "

    def _take_number(self, found: re.Match[str]) -> str:
        """Take "board 3" for the one port whose name ends in 3."""
        number = int(found["number"])
        ends = [p for p in self._known if (m := re.search(r"(\d+)$", p)) and int(m[1]) == number]
        if len(ends) == 1:
            self._ports.append(ends[0])
        else:
            self._unknown.append(" ".join(found.group().split()))
        return " <p> "

    def _take_all(self, found: re.Match[str]) -> str:
        self._is_all = True
        self._is_any = found.group().startswith("any")
        return " <p> "

    def _take_turn(self, found: re.Match[str]) -> str:
        self._turn = "first" if found["turn"].endswith("first") else "last"
        return " "

    def _take_ever(self, found: re.Match[str]) -> str:
        self._is_ever = True
        return " "

    def _take_marker(self, found: re.Match[str]) -> str:
        self._marker = "reset" if found["kind"].startswith("reset") else "flash"
        return " "

    def _without_boots(self, words: str) -> str:
        if found := _TWO_BOOTS.search(words):
            numbers = [int(found["one"]), int(found["other"])]
            self._base, self._boot = min(numbers), max(numbers)
            return f"{words[: found.start()]}<b>{words[found.end() :]}"
        if found := _BOOT.search(words):
            word = found["since"] or found["since2"] or ""
            self._is_from_boot = word in {"since ", "after "}
            if found["number"]:
                self._boot = int(found["number"])
            else:
                self._boot = -2 if found["which"] == "previous" else -1
            return f"{words[: found.start()]} {words[found.end() :]}"
        return words


def _spelled_out(words: str) -> str:
    for short, long in _SHORT:
        words = re.sub(short, long, words)
    return words


def _trimmed(words: str) -> str:
    """Return words without politeness and punctuation."""
    words = " ".join(re.sub(r"[?!.;:]+(?=\s|$)", " ", words).split())
    before = ""
    while words != before:
        before = words
        words = _FILLER_END.sub("", _FILLER_START.sub("", words)).strip(" ,")
    return words


def _joined(words: str) -> str:
    """Return words with several ports in a row as one."""
    return re.sub(r"<p>(?: ?,? ?(?:and|or|&|,)? ?<p>)+", "<p>", words)


_ABOUT_ONE = frozenset({"why", "boot_diff", "printed"})  # need a board

_OF_ONE_TIME = frozenset({"why", "what_happened", "last_boot"})
_TURN = re.compile(
    r"\b(?:for )?(?:the |its )(?P<turn>(?:very )?first|last|latest|most recent) time\b"
)
_EVER = re.compile(r"\bever\b")
_QUOTE = re.compile(r'"[^"]{1,200}"|`[^`]{1,200}`|(?<!\w)\'[^\']{1,200}\'(?!\w)')
_NUMBERED = re.compile(
    r"\b(?:the )?(?:board|port|dut|device|target|unit)[ #_-]*(?:no\.? ?|number )?"
    r"(?P<number>\d{1,3})\b"
)
_ALL = re.compile(
    r"\b(?:all(?: of)?(?: the| my| our)? (?:boards|ports|duts|devices|targets)"
    r"|every(?:thing|body| board| port| device| dut)|all of them|(?:the|my|our)(?: whole)? bench"
    r"|(?:the|my|our) (?:boards|ports|duts|devices)|(?:any|anything) of the (?:boards|ports)"
    r"|any(?: board| port))\b"
)
_PRONOUNS = frozenset({"it", "this", "that", "he", "she", "they", "mine"})
_IT = re.compile(r"\b(?:it|(?:the|this|that|my) (?:board|port|device|dut|target|system))\b")
_LIKE_A_PORT = re.compile(r"(?<![\w<-])[a-z][a-z0-9_-]{0,30}(?![\w>-])")
_MARKER = re.compile(
    r"\b(?:since|after) (?:(?:the|my|our) )?(?:last |latest |new |newest )?"
    r"(?P<kind>flash(?:ing)?|firmware update|update|reset (?:command|button)|reset)\b"
    r"(?: was (?:flashed|done|updated))?"
)
_TWO_BOOTS = re.compile(
    r"\bboots? #?(?P<one>\d{1,6}) (?:and|with|to|against|vs|from|or) "
    r"(?:boot )?#?(?P<other>\d{1,6})\b"
)
_BOOT = re.compile(
    r"\b(?:(?P<since>since |in |at |during |on |for |of |after |while )?(?:the )?"
    r"boot (?:number |no\.? ?)?#?(?P<number>\d{1,6})"
    r"|(?P<since2>since |in |during |after )(?:the |its )?"
    r"(?P<which>last|latest|newest|current|this|previous) (?:boot|run)(?= |$|\?))"
)
_SHORT = (
    (r"\b(what|who|how|where|when)'?s\b", r"\1 is"), (r"\b(that|it|why|there)'s\b", r"\1 is"),
    (r"\b(did|does|do|is|has|have|was|were|are|could|would|can)n't\b", r"\1 not"),
    (r"\bthere're\b", "there are"), (r"\b(what|how|which)'ve\b", r"\1 have"),
    (r"\bi'd\b", "i would"),
)  # fmt: skip
_FILLER_START = re.compile(
    r"^(?:hey|hi|hello|please|ok|okay|so|and|well|um|good morning"
    r"|(?:can|could|would|will) you(?: please)?"
    r"(?= (?:tell|show|say|check|find|list|explain|compare|look|please))"
    r"|(?:tell|show) (?:me|us)(?! (?:about|the|all|any|incident))"
    r"|let me know|i (?:want|would like) to know|do you know(?= (?:what|why|when|how|which|if))"
    r"|check (?:if|whether)|say|serialwatch)\b[ ,:]*"
)
_FILLER_END = re.compile(
    r"[ ,]+(?:please|thanks|thank you|exactly|actually|then|again|at all|for me|so far"
    r"|by any chance|of|on|in|at|from|during)$"
)
