"""Time as a saved log tells it: by the stamps in its lines, else by its bytes at a nominal rate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

NOMINAL_BIT_RATE = 115200  # bit/s: how fast time passes where no stamp tells it

_S = 1_000_000_000
_DAY_NS = 24 * 3600 * _S
_BYTE_NS = 10 * _S // NOMINAL_BIT_RATE
_UNSTAMPED = 4096  # bytes without a stamp; behind them the time is not known any more
_PAUSE_NS = 2 * _S  # from here on a pause decides something even where nothing was found
_PIECE = 1536  # bytes: text of less than that need not be cut each second
_DOUBTFUL_NS = 10 * _S  # a step that the next stamp must confirm: digits get lost on a wire
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_NO_YEAR = 2000  # where none is given; a leap year


@dataclass(frozen=True, slots=True)
class _Form:
    """A way to write a time before a line.

    Lines are looked at by runs: those whose stamps agree, in the second or in its tenth, cost one
    match together.
    """

    second: bytes  # from the start of the line to the whole seconds
    tenth: bytes
    rest: bytes  # as far as it tells the form from others
    read_ns: Callable[[bytes], int]  # of second and tenth
    is_boards: bool = False  # it starts anew with the board
    has_date: bool = True
    is_step: bool = False  # it tells how long after the line before, if not the minute

    @property
    def stamp(self) -> bytes:
        """Return the pattern of a stamp."""
        return self.second + self.tenth + self.rest

    def runs(self, *, by_tenth: bool) -> re.Pattern[bytes]:
        """Return the pattern of a run; a line feed stands before each line."""
        if by_tenth:
            same, rest = rb"(%s%s)()" % (self.second, self.tenth), self.rest
        else:
            same, rest = rb"(%s)(%s)" % (self.second, self.tenth), self.rest
        more = rb"\1" + (self.rest if by_tenth else self.tenth + self.rest)
        return re.compile(rb"\n%s%s[^\n]*(?:\n%s[^\n]*)*" % (same, rest, more))


def _seconds_ns(text: bytes) -> int:
    """Read a number of seconds, the last one in the text."""
    whole, _, tenth = text.lstrip(b"[( ").partition(b".")
    if not whole.isdigit():  # a level before it, the end of half a line in it
        whole, _, tenth = _last_number(b"".join(text.splitlines())).partition(b".")
    return int(whole) * _S + int(tenth or b"0") * _S // 10


def _tenths_ns(text: bytes) -> int:
    """Read milliseconds without their last two digits."""
    digits = text.rpartition(b"(")[2]
    return int(digits or b"0") * _S // 10


def _clock_ns(text: bytes) -> int:
    """Read the last HH:MM:SS in the text, with tenths if it has them."""
    found = _CLOCK.search(text)
    assert found is not None  # the form asked for it
    hours, minutes, seconds, tenths = found.groups()
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _S + int(tenths or 0) * _S // 10


def _iso_ns(text: bytes) -> int:
    found = _DATE.search(text)
    assert found is not None
    return _day_ns(*map(int, found.groups())) + _clock_ns(text)


def _syslog_ns(text: bytes) -> int:
    found = _MONTH_DAY.search(text)
    assert found is not None
    month = _MONTHS.find(found[1]) // 3 + 1
    year = _YEAR.search(text)
    return _day_ns(int(year[1]) if year else _NO_YEAR, month, int(found[2])) + _clock_ns(text)


def _local_ns(text: bytes) -> int:
    """Read a date as people write it, with twelve or twenty-four hours."""
    found = _LOCAL_DATE.search(text)
    assert found is not None
    first, second, year = int(found[1]), int(found[2]), int(found[3])
    half = _HALF_DAY.search(text)
    is_month_first = (half is not None and second <= 31 and first <= 12) or second > 12
    day, month = (second, first) if is_month_first else (first, second)
    at_ns = _day_ns(year if year > 99 else _NO_YEAR + year, month, day) + _clock_ns(text)
    if half is not None:
        is_twelve = found[4].zfill(2) == b"12"
        at_ns += ((half[1] in b"Pp") - is_twelve) * _DAY_NS // 2
    return at_ns


def _month_day_ns(text: bytes) -> int:
    found = _MONTH_DAY_NUMBERS.search(text)
    assert found is not None
    return _day_ns(_NO_YEAR, int(found[1]), int(found[2])) + _clock_ns(text)


def _step_or_minute_ns(text: bytes) -> int:
    if b"+" in text:
        return _seconds_ns(b"[" + text.partition(b"+")[2])
    found = _DMESG_MINUTE.search(text)
    assert found is not None
    month = _MONTHS.find(found[1]) // 3 + 1
    minutes = int(found[3]) * 60 + int(found[4])
    return _day_ns(_NO_YEAR, month, int(found[2])) + minutes * 60 * _S


def _day_ns(year: int, month: int, day: int) -> int:
    try:
        return date(year, month, day).toordinal() * _DAY_NS
    except ValueError:  # garbled
        return 0


def _last_number(text: bytes) -> bytes:
    numbers: list[bytes] = _NUMBER.findall(text)
    return numbers[-1]


_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_CLOCK = re.compile(rb"(\d{1,2}):(\d\d):(\d\d)(?:[.,:](\d))?[^:]*\Z")
_DATE = re.compile(rb"(\d{4})[-/.](\d\d)[-/.](\d\d)")
_LOCAL_DATE = re.compile(rb"(\d{1,2})[./-](\d{1,2})[./-](\d{2,4}),? (\d{1,2})")
_HALF_DAY = re.compile(rb"([AaPp])[Mm]\Z")
_MONTH_DAY_NUMBERS = re.compile(rb"(\d\d)-(\d\d) ")
_MONTH_DAY = re.compile(rb"([A-Z][a-z]{2}) +(\d{1,2}) ")
_DMESG_MINUTE = re.compile(rb"([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)\Z")
_YEAR = re.compile(rb" (\d{4})\Z")

_HMS = rb"[0-2]\d:[0-5]\d:[0-5]\d"
_MONTH = rb"(?:%s)" % b"|".join(_MONTHS[i : i + 3] for i in range(0, len(_MONTHS), 3))
_TENTH = rb"(?:[.,:]\d)?"
_DAYS = rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?"
_LEVEL = rb"(?:<\d{1,3}>)?"  # of syslog
_LOCAL = rb"[\[(]?\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d\d),? "
# What logged the line knows the time better than the board that printed it, so that comes first.
_FORMS = (
    _Form(
        rb"(?:" + _LEVEL + rb"(?:1 )?[\[(]?(?:tio )?" + _DAYS + rb"|- \{\"?dt\"?: ['\"])"
        rb"\d{4}[-/.]\d\d[-/.]\d\d[ T]" + _HMS, _TENTH, rb"[\d ,Z+\]:)'\"\t-]", _iso_ns,
    ),
    _Form(
        _LEVEL + rb"\[?" + _DAYS + _MONTH + rb" [ \d]\d " + _HMS
        + rb"(?: \d{4}(?=\]| [a-z]+\.[a-z]+ ))?",
        _TENTH,
        rb"[\d \]]",
        _syslog_ns,
    ),
    _Form(
        rb"(?:\[(?:tio |\d{1,3} )?" + _HMS + rb"(?=(?:[.,:]\d{1,6})?(?: \d+\.\d+)?\])|"
        rb"\(" + _HMS + rb"(?=(?:[.,:]\d{1,6})?\) )|"
        + _HMS + rb"(?=(?:[.,:]\d{1,9})?(?: ->| :|>)?[ \t]))", _TENTH,
        rb"\d{0,8}[\] :>)\t-]", _clock_ns, has_date=False,
    ),
    _Form(  # of 12 hours
        _LOCAL + rb"(?:0?\d|1[0-2]):[0-5]\d:[0-5]\d(?:[.,:]\d{1,6})? ?[AaPp][Mm]", rb"",
        rb"[] ,)\t]", _local_ns,
    ),
    _Form(_LOCAL + rb"\d{1,2}:[0-5]\d:[0-5]\d", _TENTH, rb"[\d \],)\t]", _local_ns),
    _Form(rb"(?:\[ )?[01]\d-[0-3]\d " + _HMS, rb"\.\d", rb"\d{2,8} ", _month_day_ns),  # logcat
    _Form(rb"[\[(]?1\d{9}", rb"\.\d", rb"\d{1,8}[\])]?(?: |\t)", _seconds_ns),  # ts '%.s'
    _Form(rb"\[\d{1,8}", rb"\.\d", rb"\d{5} \d+\.\d{6}\]", _seconds_ns),  # grabserial -t
    _Form(
        rb"(?:<\d{1,3}>)?\[ {0,11}(?:\d{1,8}|\d{0,7}\r?\n {0,11}\d{0,8}(?=\.))",
        rb"\.(?:\d|(?=\r?\n\d))",
        rb"(?:\d{2,8}(?:\]| / | <| {16}\])|\d{0,5}(?=\r?\n))",
        _seconds_ns, is_boards=True,  # the line may be torn in its stamp
    ),
    _Form(  # dmesg -e
        rb"\[(?: {1,8}\+\d{1,8}|" + _MONTH + rb" ?\d{1,2} \d\d:\d\d(?=\]))", rb"(?:\.\d)?",
        rb"(?:\d{5})?\]", _step_or_minute_ns, is_step=True,
    ),
    _Form(rb"\[" + _HMS, rb"\.\d", rb"\d\d,\d{3}\]", _clock_ns, is_boards=True),  # Zephyr
    _Form(rb"[EWIDV] \(\d{0,7}", rb"\d", rb"\d\d\) ", _tenths_ns, is_boards=True),  # ESP
    _Form(rb"[EWIDV] \(" + _HMS, rb"\.\d", rb"\d\d\) ", _clock_ns, is_boards=True),
    _Form(rb"\(\d{1,8}", rb"\.\d", rb"\d{2,5}\) ", _seconds_ns, is_boards=True),  # candump -t z
)  # fmt: skip
# The kernel's clock behind something else: a port's name, another writer's text.
_INSIDE = _Form(rb"\[ {0,8}\d{1,8}", rb"\.\d", rb"\d{5}\]", _seconds_ns, is_boards=True)
_INSIDE_STAMP = re.compile(rb"(%s%s)()%s" % (_INSIDE.second, _INSIDE.tenth, _INSIDE.rest))
_BY_SECOND = tuple(form.runs(by_tenth=False) for form in _FORMS)
_BY_TENTH = tuple(form.runs(by_tenth=True) for form in _FORMS)
_ANY = re.compile(
    rb"\n(?=[\[(<\d-]|[A-Z][a-z][a-z] |[EWIDV] \()(?:%s)"  # how all of them begin
    % b"|".join(b"(?P<f%d>%s)" % (i, form.stamp) for i, form in enumerate(_FORMS))
)


_BEFORE_STAMP = 120  # bytes: text of others, and the stamp


def kernel_stamps_first(view: bytes, ends: Sequence[int]) -> bytes:
    """Return lines without the text of others that stands before the kernel's stamp.

    `ends` are places in the lines that matter, in order. Mostly that is the same object.
    """
    parts = []
    done = 0
    for end in ends:
        start = view.rfind(b"\n", 0, end - 1 if end else 0) + 1
        if start < done or view.startswith(b"[", start):
            continue
        stamp = _INSIDE_STAMP.search(view, start, start + _BEFORE_STAMP)
        if stamp is None or view.find(b"\n", start, stamp.start()) >= 0:
            continue
        if not _ANY.match(b"\n" + view[start : stamp.start()]):
            parts.append(view[done:start])
            done = stamp.start()
    return b"".join((*parts, view[done:])) if parts else view


class LogClock:
    """The time of each piece of a log; it never goes back.

    A stamp that is older than one before it was printed late or printed again, by `dmesg` say: it
    tells nothing. After a start of the board (`restarted`) its own clock counts anew.
    """

    def __init__(self) -> None:
        self.now_ns = self.begun_ns = _S  # of the end of the newest piece, and of its start
        self._form: _Form | None = None
        self._number = 0  # of the form
        self._stamp_ns: int | None = None  # the newest
        self._ended_ns: int | None = None  # the newest before the board's clock began anew
        self._unstamped = _UNSTAMPED  # bytes since then, so many at most

    @property
    def is_known(self) -> bool:
        """Tell whether stamps have told the time up to now."""
        return self._unstamped < _UNSTAMPED

    def restarted(self) -> None:
        """Note that the board's clock counts anew."""
        if self._form is not None and self._form.is_boards:
            self._ended_ns, self._stamp_ns = self._stamp_ns, None

    def interrupted(self) -> None:
        """Note that nobody logged for a while: how long tells nothing of the board."""
        self._stamp_ns = self._ended_ns = None

    def passed(self, text: bytes, *, is_exact: bool = True) -> Iterator[tuple[bytes, int]]:
        """Cut complete lines of the match view where time went by; give each the time of its end.

        Not to be exact, but to the second, is enough for lines in which nothing was found. `look`
        has chosen whose stamps tell the time, in these lines and perhaps in others around them.
        """
        runs = self._stamps(b"\n" + text, _BY_TENTH if is_exact else _BY_SECOND)
        pause_ns = _S // 5 if is_exact else _PAUSE_NS
        begun_ns = first_ns = self.now_ns
        begun = last = 0  # where the piece, and the lines since the newest stamp, start in `text`
        for index, (at, stamp_ns, size) in enumerate(runs):
            following = runs[index + 1][1] if index + 1 < len(runs) else None
            step_ns = self._step_ns(stamp_ns, following)
            if step_ns is None:
                continue
            self._unseen(at - last)
            now_ns = self.now_ns + step_ns
            is_long = at - begun >= _PIECE or now_ns - begun_ns >= _PAUSE_NS
            is_due = is_long and now_ns // _S != self.now_ns // _S
            if at > begun and (is_due or step_ns >= pause_ns):
                self.begun_ns = first_ns
                yield text[begun:at], self.now_ns
                begun, begun_ns = at, now_ns
            if at <= begun:
                first_ns = now_ns
            self.now_ns = now_ns
            self._unstamped = 0
            last = min(at + size, len(text))
        self._unseen(len(text) - last)
        if begun < len(text):
            self.begun_ns = first_ns
            yield text[begun:], self.now_ns

    def look(self, text: bytes) -> None:
        """Choose whose stamps tell the time in the next lines."""
        text = b"\n" + text
        first = _ANY.search(text)
        if first is not None:
            number = int((first.lastgroup or "f0")[1:])
            if self._form is None or self._form is _INSIDE:
                self._take(number)
            elif number != self._number:
                # Another form: better if it is the logger's, or if ours is not there any more.
                is_better = self._form.is_boards and not _FORMS[number].is_boards
                if is_better or not _BY_SECOND[self._number].search(text):
                    self._take(number)
        elif self._form is None and _INSIDE_STAMP.search(text):
            self._form = _INSIDE

    def _stamps(
        self, text: bytes, all_runs: Sequence[re.Pattern[bytes]]
    ) -> list[tuple[int, int, int]]:
        """Return where runs of one stamp start, what it says, and how long they are."""
        if self._form is None:
            return []
        read_ns = self._form.read_ns
        if self._form is _INSIDE:
            return [
                (max(0, text.rfind(b"\n", 0, m.start())), read_ns(m[1]), m.end() - m.start())
                for m in _INSIDE_STAMP.finditer(text)
            ]
        return [
            (m.start(), read_ns(m[1] + m[2]), m.end() - m.start())
            for m in all_runs[self._number].finditer(text)
        ]

    def _take(self, number: int) -> None:
        self._form, self._number = _FORMS[number], number
        self._stamp_ns = self._ended_ns = None

    def _step_ns(self, stamp_ns: int, following_ns: int | None) -> int | None:
        """Return how much time a stamp says went by; None: it cannot be believed."""
        before_ns, form = self._stamp_ns, self._form
        assert form is not None
        if form.is_step:
            is_minute = stamp_ns >= _DAY_NS
            step_ns = max(0, stamp_ns - (before_ns or stamp_ns)) if is_minute else stamp_ns
            self._stamp_ns = (
                stamp_ns if is_minute and before_ns is None else (before_ns or 0) + step_ns
            )
            return step_ns
        if before_ns is None:
            ended_ns, self._ended_ns = self._ended_ns, None
            self._stamp_ns = stamp_ns
            # A clock that began anew tells how long ago that was.
            return stamp_ns if ended_ns is not None and stamp_ns < ended_ns else 0
        if not form.has_date and before_ns - stamp_ns > _DAY_NS // 2:
            self._stamp_ns = before_ns = before_ns - _DAY_NS  # midnight
        step_ns = stamp_ns - before_ns
        if step_ns < 0:
            if form.is_boards:
                return None
            step_ns = 0  # the logger's clock was set, or another day begins
        elif (
            step_ns >= _DOUBTFUL_NS
            and following_ns is not None
            and (before_ns <= following_ns < stamp_ns - _S)
        ):
            return None
        self._stamp_ns = stamp_ns
        return step_ns

    def _unseen(self, size: int) -> None:
        """Let the time pass that so many bytes without a stamp take."""
        known = min(size, _UNSTAMPED - self._unstamped)
        self._unstamped += known
        self.now_ns += (size - known) * _BYTE_NS
