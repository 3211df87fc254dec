"""The forms that a question may have, once it is made plain: `<p>` is a port, `<q>` a quote."""

# ruff: noqa: E501  (a form is read as a whole)

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal[
    "what_happened", "why", "status", "how_often", "last_boot", "which_ports", "boot_diff",
    "printed", "compare", "incident", "knowledge",
]  # fmt: skip
Event = Literal["", "reset", "hang", "crash"]
Turn = Literal["", "first", "last"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a form tells of a question."""

    kind: Kind
    topic: str = ""  # words to look for
    event: Event = ""
    incident: int | None = None
    is_newest: bool = False  # the newest lines are meant
    turn: Turn = ""  # of several times, which one is meant


def fitting(words: str) -> Form | None:
    """Return the first form that plain words have from end to end, None for none."""
    words = " ".join(words.split())
    for pattern, kind in _compiled():
        if found := pattern.fullmatch(words):
            groups = found.groupdict()
            number = groups.get("incident")
            return Form(
                kind,
                topic=_ARTICLE.sub("", groups.get("topic") or ""),
                event="hang" if groups.get("hang") else _event_of(groups.get("event") or ""),
                incident=int(number) if number else None,
                is_newest=bool(groups.get("newest")),
                turn=_turn_of(groups.get("turn") or groups.get("turn2") or ""),
            )
    return None


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Kind], ...]:
    """Return the forms, compiled with the first question: few daemons are ever asked one."""
    return tuple((re.compile(form), kind) for kind, forms in _FORMS for form in forms)


def _turn_of(words: str) -> Turn:
    if not words:
        return ""
    return "first" if words == "first" else "last"


def _event_of(words: str) -> Event:
    if re.search(rf"\b(?:{_RESET}|(?:re)?boots?|start)\b", words) and "not" not in words:
        return "reset"
    if re.search(rf"\b(?:{_HANG})\b", words):
        return "hang"
    return "crash" if words else ""


_ARTICLE = re.compile(r"^(?:the|any|an?|some|its|their) ")

_RESET = r"reset(?:s|ting)?|re-?boot(?:s|ed|ing)?|restart(?:s|ed|ing)?|power[- ]?cycled?"
_HANG = (
    r"hangs?|hung|hanging|freez(?:e|es|ing)|froze(?:n)?|stuck|block(?:s|ed)?|locks? up|locked up"
    r"|stop(?:s|ped)?(?: (?:responding|printing|working|booting|answering))?|silent|quiet|dead"
    r"|not boot(?:ing)?|not (?:finish|complete) (?:its |the )?boot(?:ing)?"
)
_CRASH = (
    r"crash(?:es|ed|ing)?|panic(?:s|ked|king)?|oops(?:es|ed)?|die[sd]?|dying|fail(?:s|ed|ing)?"
    r"|fault(?:s|ed)?|abort(?:s|ed)?|go(?:es)? down|went down|misbehav(?:e|es|ed|ing)|break|broke"
)
_EVENT = (
    rf"(?P<event>(?:(?:just|suddenly|keep|keeps|always|go|goes|went|get|got|been|being|become|became) )*"
    rf"(?:{_RESET}|{_HANG}|{_CRASH}))(?: itself| by itself| on its own| suddenly)?"
    r"(?: (?:at|during|in|to|while|on|before) (?:its |the )?boot(?:ing|up)?)?"
)
_OF = r"(?:to|with|on|at|in|of|for|from)"
_BOARDS = r"(?:boards?|ports?|duts?|devices?|targets?)"
_TOPIC = r"(?P<topic>[^<>]{2,}|<q>)"
_FEW_WORDS = r"(?P<topic>[\w.:/#-]{2,}(?: [\w.:/#-]+){0,2}|<q>)"
_PAST = r"(?:(?:boot|start|come up)(?:ed|s)?|(?:re-?boot|restart)(?:ed)?|reset|started|came up)"
_GOOD = (
    r"(?:all right|alright|ok|okay|fine|healthy|alive|up(?: and running)?|well|good|down|dead|running"
    r"|working|stable|there|online|connected|silent|quiet|in order|still (?:alive|up|running|ok|there))"
)
_FAULTS = r"(?:incidents?|faults?|problems?|errors?|issues|failures|trouble|news)"
_SAID = r"(?:print(?:ed)?|say|said|log(?:ged)?|write|wrote|report(?:ed)?|output|show(?:ed|n)?|emit(?:ted)?)"

LINKS = (
    r"(?:(?:serial |usb |uart )?(?:cables?|wir(?:e|es|ing)|adapters?|connections?|connectors?|links?"
    r"|plugs?|hub))"
)
_THAT = r"(?:(?:the|its|there|it|a|an|any) )*"
_BAD_OR_GOOD = (
    r"(?:(?:a |an |the )?(?:bad|broken|faulty|loose|defective|damaged|flaky|dead|noisy|off|unplugged"
    r"|to blame|ok|okay|fine|good|all right))"
)

# Tried in this order; the first that fits from end to end counts.
_FORMS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("incident", (
        r"(?:(?:what|which) (?:is|was|about|were)|tell me about|explain|show(?: me)?|why|summari[sz]e"
        r"|describe|what (?:is|was) the (?:cause|reason) (?:of|for)|what caused|what do you know about"
        r"|what happened in|what is known about)? ?"
        r"(?:the )?(?:incident|fault|report)(?: number| no\.?)? ?#?(?P<incident>\d{1,9})(?: about)?",
        r"(?:what (?:is|was|about) |explain |show )?#(?P<incident>\d{1,9})(?: about)?",
        r"why did (?:incident|fault) #?(?P<incident>\d{1,9}) (?:happen|occur|come)",
    )),
    ("compare", (
        r"compare <p> (?:and|with|to|against|vs) <p>",
        r"compare <p>,? <p>",
        r"<p> (?:vs|versus|against|compared (?:with|to)) <p>",
        r"(?:what is )?(?:the )?differences? between <p> and <p>",
        r"how (?:do|does|is|are) <p> (?:and <p> (?:differ|different)|(?:differ|different) from <p>)",
        r"what is different (?:between|on) <p> (?:and|than on) <p>",
    )),
    ("boot_diff", (
        r"what (?:is|has|have|was)? ?(?:changed|different)(?: (?:on|in|with|at|for) <p>)?"
        r"(?: (?:since|compared (?:to|with)|from|against) (?:the |its )?(?:last|previous)"
        r"(?: (?:good|working|clean|healthy))? boot)?(?: (?:of|on) <p>)?",
        r"(?:compare|difference between|diff) (?:the )?(?:last (?:two )?)?boots(?: (?:of|on|for) <p>)?",
        r"(?:compare|diff) <b>(?: (?:of|on|for) <p>)?",
        r"compare (?:on )?<p> <b>",
            r"what (?:has |is )?(?:changed|different) between <b>(?: (?:of|on|for) <p>)?",
        r"(?:what is )?(?:the )?(?:difference|different) between <b>(?: (?:of|on|for) <p>)?",
        r"compare (?:the )?(?:last|newest|this) boot (?:of <p> )?(?:with|to|and) the "
        r"(?:last good|previous|one before)(?: one| boot)?(?: (?:of|on) <p>)?",
    )),
    ("why", (
        rf"why (?:did|has|does|is|was|do|have|are|had|would) <p> (?:not )?{_EVENT}",
        r"why did not <p> (?P<hang>boot|start|come up|finish booting)",
        rf"why <p> {_EVENT}",
        rf"what (?:made|makes|causes?|caused|let) <p> (?:to )?{_EVENT}",
        r"what (?:caused|is the (?:cause|reason) (?:of|for)|was the (?:cause|reason) (?:of|for)"
        r"|triggered|is behind|explains) (?:the )?(?:last )?"
        rf"(?P<event>{_RESET}|hang|freeze|crash|panic|oops|failure|fault|abort|boot loop)s? "
        rf"{_OF} <p>",
        rf"(?:the )?(?:cause|reason) (?:of|for) the (?:last )?(?P<event>{_RESET}|hang|freeze|crash"
        rf"|panic|failure) {_OF} <p>",
        r"what (?:is|was|went) wrong with <p>",
            r"what (?:is|was) the (?:problem|matter|trouble) with <p>",
        r"why (?:is|was) <p> (?P<event>down|broken|silent|quiet|dead|stuck|slow)",
        rf"what happened(?: when| as)? <p> {_EVENT}",
        r"why",
    )),
    ("last_boot", (
        rf"when (?:did|was|has|is) <p> (?:last|lately|most recently) {_PAST}",
        rf"when (?:did|was|has) <p> {_PAST}(?: (?:last|the last time|most recently))?",
        r"when was (?:the )?(?:last|latest|newest) (?:boot|reboot|restart|reset|start) "
        r"(?:of|on|from) <p>",
        r"(?:the )?(?:last|latest) (?:boot|reboot|restart|reset) (?:of|on) <p>",
        r"how long (?:has|have|is|was) <p> (?:been )?(?:up|running|on)",
        r"(?:what is )?(?:the )?uptime(?: (?:of|on) <p>)?",
        r"how long (?:did|does) <p> (?:take|need) to (?:boot|start|come up)",
            r"since when (?:is|has|are) <p> (?:been )?(?:up|running)",
    )),
    ("status", (
        rf"how many {_BOARDS} (?:are (?:there|known|connected|here)|do (?:you|we) have)",
    )),
    ("how_often", (
        rf"how (?:often|many times) (?:did|has|have|does|was|were|had) <p> {_EVENT}",
        rf"how (?:often|many times) (?:did|has|have|does|had) <p> (?:have|had|{_SAID}|see|seen|got|get) "
        rf"{_TOPIC}",
        rf"how (?:often|many times) (?:did|has|have|does|do) {_TOPIC} "
        rf"(?:happen|occur|come|appear|show up|happened|occurred|appeared)(?: {_OF} <p>)?",
        rf"how (?:often|many times) (?:is|was|were) {_TOPIC} (?:seen|printed|reported|logged)"
        rf"(?: {_OF} <p>)?",
        r"how (?:often|many times) (?:does|do|did|has|have) <p> (?P<event>boot|start)(?:ed)?(?: up)?",
        rf"how (?:often|many times) (?:was|were) there {_TOPIC}(?: {_OF} <p>)?",
        rf"how many (?P<event>(?:re)?boots|resets|restarts|reboots|crashes|panics|hangs)"
        rf"(?: (?:did|has|have|had|were there|are there|does))?(?: {_OF})?(?: <p>)?(?: had| have)?",
        rf"how many {_TOPIC} (?:did|has|have|had|does) <p>(?: (?:have|had|get|got|{_SAID}|see|seen))?",
        rf"how many {_TOPIC} (?:were|are|have been) (?:there|on|seen)(?: (?:on )?<p>)?",
        rf"how many {_TOPIC} {_OF} <p>",
        rf"(?:count|number of) (?:the )?{_TOPIC} {_OF} <p>",
        rf"how many (?!{_BOARDS}\b){_FEW_WORDS}(?: (?:were|are|have been) there)?",
        rf"(?:has|have|had|did) <p> (?:had|have|seen|see|got|get|shown|show) {_TOPIC}",
    )),
    ("which_ports", (
        rf"(?:which|what|how many) (?:of the )?{_BOARDS}(?: (?:have|has|had|were|are|did|was|is))? {_EVENT}",
        rf"(?:which|what|how many) (?:of the )?{_BOARDS} (?:had|have|has|saw|see|got|get|report(?:ed)?"
        rf"|show(?:ed|s)?|print(?:ed|s)?|logged|have had|is having|are having) {_TOPIC}",
        rf"(?:on )?(?:which|what) {_BOARDS} (?:did|does|do) {_TOPIC} (?:happen|occur|appear|come)",
        rf"(?:which|what) {_BOARDS} (?:are|were|is|was) (?:affected|failing|unstable|bad|broken)",
    )),
    ("printed", (
        rf"what (?:did|does|has|have) <p> {_SAID} (?:about|on|regarding|concerning|for|with) {_TOPIC}",
        rf"what (?:was|is|were|has been|got) {_SAID} (?:{_OF} <p> )?"
        rf"(?:about|regarding|concerning) {_TOPIC}(?: {_OF} <p>)?",
        rf"what (?:did|does|has|is) <p> (?:{_SAID}|printing)(?P<newest> last| lately)?",
        r"(?:the )?(?:last|latest|newest) lines (?:of|on|from) <p>",
        rf"(?:did|has|does) <p> (?:ever )?{_SAID} (?:anything (?:about|with) )?{_TOPIC}",
        rf"when did <p> (?:first |last )?{_SAID} {_TOPIC}",
            r"what (?:is|was) the (?P<newest>last|newest) (?:thing|line|output)(?: that)? <p> (?:printed|said|logged)",
            r"(?:the )?(?:last|latest|newest) (?:line|output) (?:of|on|from) <p>",
            r"what is <p> (?:doing|printing|saying)(?: now)?",
        rf"(?:find|search(?: for)?|grep(?: for)?|look for|list|show(?: me)?) {_TOPIC} "
        r"(?:on|in|of|at|from) (?:the )?(?:log of )?<p>",
        rf"(?:find|search|grep|show)(?: the)? lines (?:of <p> )?(?:about|with) {_TOPIC}(?: {_OF} <p>)?",
        rf"search <p> for {_TOPIC}",
    )),
    ("status", (
        rf"(?:is|are|was|were) <p> (?:still )?{_GOOD}(?: now)?",
        r"how (?:is|are|was|were) <p>(?: (?:doing|now|going))?",
        r"(?:what is )?(?:the )?(?:status|state|health|condition)(?: (?:(?:of|on|for) )?<p>)?",
        r"<p>(?: is)? (?:status|state)",
        r"(?:is|are) (?:there )?(?:any )?<p> (?:in trouble|having problems)",
        r"how (?:does|do) <p> (?:look|stand|feel)",
        r"(?:are|is) <p>(?: (?:there|on))?",
        rf"(?:is|are|was|were) {_THAT}(?:{_BAD_OR_GOOD} )?{LINKS}(?: {_BAD_OR_GOOD})? {_OF} <p>",
        rf"(?:is|are|was|were) {_THAT}{LINKS} {_OF} <p> {_BAD_OR_GOOD}",
        rf"(?:is|are|was|were) <p>(?: s)? {LINKS} {_BAD_OR_GOOD}",
        rf"(?:which|what) {_BOARDS} (?:are|were|is|was) (?:not )?(?:down|up|offline|online|running|busy)",
    )),
    ("what_happened", (
        rf"what (?:has |have |had |did |all )?happen(?:ed|s|ing)?(?: {_OF} <p>)?(?: while i was away)?",
        rf"what (?:is|was|has been|had been) (?:going on|happening|up|the matter|new)(?: {_OF} <p>)?",
        rf"what (?:went|goes|has gone|is) wrong(?: {_OF} <p>)?",
        rf"(?:is|are|was|were) there (?:any(?:thing)?|some|a) (?:new |wrong|{_FAULTS}|unusual)*"
        rf"(?: {_OF} <p>)?",
        rf"(?:did )?(?:any(?:thing)?|something) (?:new|wrong|happen(?:ed)?|unusual|go wrong|break"
        rf"|fail(?:ed)?|crash(?:ed)?)(?: {_OF} <p>)?",
        rf"(?:any|(?:show|list|tell)(?: me| us)?(?: about)?(?: all)?(?: the)?|what|which|all|the)? ?"
        rf"(?:new |open |recent |latest |last )?{_FAULTS}"
        rf"(?: (?:are|were|was|did) (?:there|<p> have|<p>))?(?: {_OF} <p>| <p> had)?",
        rf"(?:did|has|have|had) <p> (?:have|had|any|see|seen)(?: any| some)?(?: an?)? {_FAULTS}",
        r"what did (?:i|we) miss(?: on <p>)?",
        rf"(?:give (?:me|us) )?(?:an? |the )?(?:summary|overview|digest)(?: {_OF} <p>)?",
        rf"(?:did|has|was|is) <p> {_EVENT}",
        rf"when (?:did|was|has) <p> (?:(?P<turn>first|last) )?{_EVENT}(?: (?P<turn2>first|last|most recently))?",
        r"when (?:was|is) (?:the )?(?P<turn>first|last|latest|newest|most recent) "
        rf"(?P<event>{_HANG}|freeze|{_CRASH}) {_OF} <p>",
            r"<p>",
        r"summari[sz]e <p>",
    )),
    ("knowledge", (
        r"what (?:do|does) (?:you|we|the bench|serialwatch|one) (?:know|remember) (?:about|of) "
        r"(?:<p>|(?P<topic>[^<>]{2,}|<q>))",
        rf"what (?:does|do|is|did) {_TOPIC} (?:mean|stand for)",
        rf"what (?:is|are) (?:meant by (?:an? )?|an? ){_TOPIC}",
        r"what (?:is|are|was) (?!the |this |that |these |those |my |your |our |its? |wrong|up\b)"
        rf"(?:rule )?{_FEW_WORDS}",
        rf"what (?:usually |normally |can |could |typically )?causes? {_TOPIC}",
        rf"(?:what is |what are )?(?:the )?(?:usual |known |likely )?(?:causes?|reasons?) (?:of|for) {_TOPIC}",
        r"tell me (?:about|everything about|all about) <p>",
            rf"(?:explain|tell me about) {_TOPIC}",
        rf"(?:how (?:do i|does one|to|can i) )(?:fix|debug|investigate|find the cause of) {_TOPIC}",
        rf"(?:have (?:you|we)|was) (?:ever )?seen {_TOPIC}(?: before)?",
    )),
)  # fmt: skip
