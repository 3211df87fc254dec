"""Board, cable or PC: where a fault of the line lies, as far as counters and the kernel say.

One answer for people (`ports`), for programs (the API) and for the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Place = Literal["nothing", "board", "cable", "PC", "settings", "unknown"]

SILENT_S = 60.0  # a board that printed before and then nothing for so long is silent
MANY = 20  # framing or parity errors: more than a plug that is pushed in makes
SHARE = 0.01  # of the characters that are bad: then it is no single disturbance
KINDS = ("overrun", "framing", "parity", "breaks", "buffer_overrun")


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that points to a place; `text` has `{}` for a number or a name."""

    place: Place
    text: str
    is_weak: bool = False  # it need not be a fault at all


NOTHING = Sign("nothing", "no counter or state says that anything is wrong")
OF_STATE = {
    "absent": Sign("cable", "the device is not there: adapter unplugged, or the board's own USB"),
    "flapping": Sign(
        "cable", "it comes and goes: cable, hub, supply, or a board that resets its own USB"
    ),
    "busy": Sign("PC", "another program holds it: {}"),
    "denied": Sign("PC", "the daemon may not open it"),
    "broken": Sign("PC", "the driver or the device reports an error"),
    "released": Sign("PC", "it is lent to another program now"),
    "opening": Sign("unknown", "it is being opened now"),
}
# Of `command:`, where a program stands for the board: nothing is plugged.
OF_PROGRAM = {
    "absent": Sign("PC", "the program that is read in place of a board does not run"),
    "broken": Sign(
        "PC", "the program that is read in place of a board cannot run, or ends at once"
    ),
    "denied": Sign("PC", "the daemon may not run the program that is read in place of a board"),
}
NO_LOG = Sign("PC", "nothing is written to the log: {}")
LOG_LOST = Sign("PC", "{} bytes were given up because the disk took them too slowly, or not at all")
BUFFER_OVERRUN = Sign("PC", "the kernel's buffer overran {} times: the PC read too late")
OVERRUN = Sign(
    "PC",
    "the UART's FIFO overran {} times: PC or adapter took bytes too late, and no flow control "
    "stopped the board",
)
WRONG_RATE = Sign(
    "settings",
    "{} framing and parity errors, more than one in a hundred bytes: bit rate or frame format "
    "differ from the board's; if they came all at once, the cable or its ground",
)
DISTURBED = Sign(
    "cable",
    "{} framing and parity errors, too few for a wrong bit rate: disturbance, ground or a loose "
    "contact",
)
BREAKS = Sign(
    "board",
    "{} breaks: the line was held low, as by a board without power, in reset, or before it "
    "drives its TX pin",
)
NEVER = Sign(
    "unknown",
    "nothing was received since the daemon started: board without power, TX and RX swapped, the "
    "wrong port, or a board that prints nothing; the PC's side is open",
    is_weak=True,
)
SILENT = Sign(
    "board",
    "silent for {} s after it printed, without a line error: it hangs, sleeps or has nothing to "
    "say; a wire that came off looks the same",
    is_weak=True,
)
STOPPED = Sign(
    "PC",
    "the last byte that was sent to it is XOFF (Ctrl-S), which stops a console: XON (Ctrl-Q, "
    "`serialwatch send PORT --hex 11`) lets it go on",
)
LOST_BEFORE = Sign("cable", "the device was lost and found again {} times", is_weak=True)
ENDED_BEFORE = Sign("PC", "the program ended and was started again {} times", is_weak=True)
OTHERS = Sign("PC", "another program reads from it too, so lines are missing here: {}")
KERNEL = (  # what the PC's own kernel says of the adapter or its place
    (
        re.compile(
            r"over-current|[Cc]annot enable|Not enough bandwidth|device descriptor read"
            r"|not accepting address|unable to enumerate|error -(?:71|110|84)"
            r"|disabled by hub|EMI"
        ),
        Sign("cable", "the PC's kernel says of its USB place: {}"),
    ),
    (
        re.compile(r"claimed by \S+ while '"),
        Sign("PC", "another driver or program took the adapter: {}"),
    ),
    (
        re.compile(r"failed|error|urb stopped|overrun"),
        Sign("PC", "the PC's kernel says: {}"),
    ),
)


def judged(view: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """Return the likeliest place, why, every sign there is, and what the counters cannot say.

    `view` is a port as the API shows it. What is `is_weak` need not be a fault.
    """
    signs = list(_signs(view, _age_s(view.get("last_rx_at"), now or datetime.now(UTC))))
    place, text, is_weak = signs[0] if signs else (NOTHING.place, NOTHING.text, True)
    counted = view.get("uart_errors") or {}
    return {
        "place": place,
        "text": text,
        "is_weak": is_weak,
        "signs": [{"place": where, "text": words} for where, words, _ in signs],
        "not_counted": [kind for kind in KINDS if kind not in counted],
    }


_Told = tuple[Place, str, bool]


def _signs(view: Mapping[str, Any], age_s: float | None) -> Iterator[_Told]:
    """Yield what points somewhere, the strongest first."""
    state = view.get("state")
    is_program = str(view.get("device")).startswith("command:")
    of_states = OF_STATE | OF_PROGRAM if is_program else OF_STATE
    if (of_state := of_states.get(str(state))) is not None:
        place, text, _ = _told(of_state, view.get("holder") or "unknown")
        yield place, f"{text} ({view['problem']})" if view.get("problem") else text, False
    if view.get("others"):
        yield _told(OTHERS, view["others"])
    yield from _of_kernel(view.get("host_messages") or ())
    if view.get("log_problem"):
        yield _told(NO_LOG, view["log_problem"])
    errors = view.get("uart_errors") or {}
    if lost := (view.get("lost_bytes") or {}).get("log"):
        yield _told(LOG_LOST, lost)
    for kind, sign in (("buffer_overrun", BUFFER_OVERRUN), ("overrun", OVERRUN)):
        if errors.get(kind):
            yield _told(sign, errors[kind])
    bad = int(errors.get("framing") or 0) + int(errors.get("parity") or 0)
    if bad > MANY:
        is_often = bad > SHARE * int(view.get("rx_bytes") or 0)
        yield _told(WRONG_RATE if is_often else DISTURBED, bad)
    if errors.get("breaks"):
        yield _told(BREAKS, errors["breaks"])
    if view.get("reconnects") and state == "up":
        yield _told(ENDED_BEFORE if is_program else LOST_BEFORE, view["reconnects"])
    is_silent = age_s is None or age_s > SILENT_S
    if state == "up" and is_silent and view.get("is_stopped"):
        yield _told(STOPPED)
    if state == "up" and not view.get("last_rx_at"):
        yield _with_lines(_told(NEVER), view)
    elif state == "up" and age_s is not None and age_s > SILENT_S and bad <= MANY:
        yield _with_lines(_told(SILENT, round(age_s)), view)


def _with_lines(told: _Told, view: Mapping[str, Any]) -> _Told:
    """Add how the modem lines stand: a board may wait for one of them."""
    place, text, is_weak = told
    lines = view.get("modem_lines") or {}
    words = [f"{name.upper()} {'on' if is_on else 'off'}" for name, is_on in lines.items()]
    return place, "; ".join([text, ", ".join(words)]) if words else text, is_weak


def _of_kernel(messages: Sequence[Mapping[str, Any]]) -> Iterator[_Told]:
    """Yield the newest message of each kind."""
    for pattern, sign in KERNEL:
        for message in reversed(messages):
            if pattern.search(str(message.get("text", ""))):
                yield _told(sign, message["text"])
                break


def _told(sign: Sign, what: object = "") -> _Told:
    text = sign.text.format(what)
    if what == 1:
        text = text.replace(" 1 times", " once").replace("1 breaks", "1 break")
    return sign.place, text, sign.is_weak


def _age_s(at: str | None, now: datetime) -> float | None:
    """Return how long ago something was, None if it never was."""
    if not at:
        return None
    return round(max((now - datetime.fromisoformat(at)).total_seconds(), 0.0), 1)
