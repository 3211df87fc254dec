"""Where a fault of a serial line lies, as far as its counters say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
NO_LOG = Sign("PC", "nothing is written to the log: {}")
LOG_LOST = Sign("PC", "{} bytes were given up because the disk was too slow")
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
)
SILENT = Sign(
    "board",
    "silent for {} s after it printed, without a line error: it hangs, sleeps or has nothing to "
    "say; a wire that came off looks the same",
)
LOST_BEFORE = Sign("cable", "the device was lost and found again {} times")


def judged(view: Mapping[str, Any], age_s: float | None) -> dict[str, Any]:
    """Return the likeliest place, why, every sign there is, and what the counters cannot say."""
    signs = list(_signs(view, age_s))
    place, text = signs[0] if signs else (NOTHING.place, NOTHING.text)
    counted = view.get("uart_errors") or {}
    return {
        "place": place,
        "text": text,
        "signs": [{"place": where, "text": words} for where, words in signs],
        "not_counted": [kind for kind in KINDS if kind not in counted],
    }


def _signs(view: Mapping[str, Any], age_s: float | None) -> Iterator[tuple[Place, str]]:
    """Yield what points somewhere, the strongest first."""
    state = view.get("state")
    if (of_state := OF_STATE.get(str(state))) is not None:
        place, text = _told(of_state, view.get("holder") or "unknown")
        yield place, f"{text} ({view['problem']})" if view.get("problem") else text
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
        yield _told(LOST_BEFORE, view["reconnects"])
    if state == "up" and not view.get("last_rx_at"):
        yield _told(NEVER)
    elif state == "up" and age_s is not None and age_s > SILENT_S and bad <= MANY:
        yield _told(SILENT, round(age_s))


def _told(sign: Sign, what: object = "") -> tuple[Place, str]:
    return sign.place, sign.text.format(what)
