"""A send at the pace of the board: a slow one loses characters that come too fast."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from serialwatch.api.bench import Bench, BenchError, Who
from serialwatch.wire import show

ECHO_LIMIT_S = 2.0  # for a character to come back
COMMAND_LIMIT_S = 30.0  # the same for the first of a line if no prompt told that it may come
PROMPT_LIMIT_S = 600.0  # for a command to end; one that erases a flash takes its time
SILENCE_S = 0.1  # a prompt stands, and Ctrl-C has had its effect, when nothing came for so long
QUESTION_S = 2.0  # what stands there for so long, and is no prompt, is a question
LOOK_S = 0.1  # how often it is looked whether whoever asked is still there

_SHOWN = 40  # bytes that came instead of an echo
_KEPT = 64 * 1024  # bytes of the board in which an echo is looked for
_LINE_END = re.compile(rb"[\r\n]")
_PROMPT_END = 2  # bytes of a prompt that stay the same in another folder
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|\Z)|\Z)")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a board takes what is typed."""

    char_s: float = 0.0  # pause after each character
    line_s: float = 0.0  # pause after each line end
    waits_for_echo: bool = False


class PacedSend:
    """Sends character by character, each when the one before it has come back or had its time."""

    def __init__(self, bench: Bench, port: str, who: Who, data: bytes, pace: Pace) -> None:
        self.port = port
        self.who = who
        self.sent_bytes = 0
        self.echoed = 0  # characters that came back
        self._bench = bench
        self._characters = characters(data)
        self._bytes = len(data)
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._heard = b""  # of the board, since the last character was sent
        self._heard_s = self._loop.time()
        self._prompt = _LINE_END.split(_ESCAPE.sub(b"", bench.recent(port)))[-1]
        self._woken = asyncio.Event()
        self._stopped = ""

    def on_bytes(self, data: bytes) -> None:
        """Take what the board prints."""
        self._heard = (self._heard + data)[-_KEPT:]
        self._heard_s = self._loop.time()
        self._woken.set()

    def on_state(self) -> None:
        """Look how the port stands."""
        self._woken.set()

    def stop(self, why: str) -> None:
        """Send nothing more."""
        self._stopped = why
        self._woken.set()

    async def run(self, has_left: Callable[[], bool]) -> int:
        """Send all of it; return the number of the line it may be answered from.

        Raises:
            BenchError: something did not come back, the port is lost, or whoever asked has left.

        """
        first_seq = 0
        limit_s = ECHO_LIMIT_S
        for number, character in enumerate(self._characters):
            self._refuse(has_left)
            self._heard = b""
            seq = await self._write(character)
            first_seq = first_seq or seq
            if self._pace.waits_for_echo:
                await self._wait_for_echo(character, limit_s, has_left)
            limit_s = ECHO_LIMIT_S
            if number == len(self._characters) - 1:
                break
            is_line_end = _LINE_END.fullmatch(character) is not None
            if is_line_end and self._pace.waits_for_echo:
                limit_s = await self._command_ended(has_left)
            else:
                pause_s = self._pace.char_s + (self._pace.line_s if is_line_end else 0.0)
                await self._until(lambda: False, pause_s, has_left)
        return first_seq

    async def _write(self, character: bytes) -> int:
        try:
            seq = await self._bench.write(self.port, character, "send")
        except BenchError as exc:
            self.sent_bytes += exc.sent
            raise BenchError(exc.code, f"{exc.message}: {self._sent_words()}", exc.hint) from exc
        self.sent_bytes += len(character)
        return seq

    async def _wait_for_echo(
        self, character: bytes, limit_s: float, has_left: Callable[[], bool]
    ) -> None:
        """Return when a character has come back; the board may print other things around it."""
        if (echo := _echo_of(character)) is None:
            await self._silence(SILENCE_S, has_left)
            return
        if await self._until(lambda: echo.search(_ESCAPE.sub(b"", self._heard)), limit_s, has_left):
            self.echoed += 1
            return
        instead = show(self._heard[-_SHOWN:])
        came = f"`{instead}` came instead" if instead else "nothing came"
        what = "Enter" if _LINE_END.fullmatch(character) else f"`{show(character)}`"
        raise BenchError(
            "echo_mismatch",
            f"port {self.port}: {self.echoed} of {len(self._characters)} characters came back, "
            f"then not {what} within {limit_s:g} s: {came}",
            f"the rest was not sent; `serialwatch send {self.port} --hex 03` (Ctrl-C) clears the "
            "board's line; what a board does not show, e.g. a password, goes without --wait-echo",
        )

    async def _command_ended(self, has_left: Callable[[], bool]) -> float:
        """Return when the board waits for the next line, and how long its first echo may take.

        While a command runs, what is typed may be thrown away; and what the command prints could
        hide by chance that a character did not come back.
        """
        quick_s = max(self._pace.char_s, self._pace.line_s or SILENCE_S)
        end_s = self._loop.time() + PROMPT_LIMIT_S
        while (now_s := self._loop.time()) < end_s:
            silent_s = silence_needed(_ESCAPE.sub(b"", self._heard), self._prompt, quick_s)
            if silent_s is not None and now_s - self._heard_s >= silent_s:
                is_known = bool(self._prompt) and silent_s == quick_s
                self._prompt = self._prompt or _LINE_END.split(_ESCAPE.sub(b"", self._heard))[-1]
                return ECHO_LIMIT_S if is_known else COMMAND_LIMIT_S
            left_s = LOOK_S if silent_s is None else self._heard_s + silent_s - now_s
            await self._until(lambda: False, left_s, has_left)
        prompt = show(self._prompt.strip())
        raise BenchError(
            "echo_mismatch",
            f"port {self.port}: no prompt `{prompt}` within {PROMPT_LIMIT_S:g} s: "
            + self._sent_words(),
        )

    async def _silence(self, silent_s: float, has_left: Callable[[], bool]) -> None:
        """Return when the board has printed nothing for so long, or never stops."""
        end_s = self._loop.time() + COMMAND_LIMIT_S
        self._heard_s = self._loop.time()
        while (left_s := min(self._heard_s + silent_s, end_s) - self._loop.time()) > 0:
            await self._until(lambda: False, left_s, has_left)

    async def _until(
        self, is_so: Callable[[], object], limit_s: float, has_left: Callable[[], bool]
    ) -> bool:
        """Wait for what the board prints to make something so; tell whether it did in time."""
        end_s = self._loop.time() + limit_s
        while not is_so():
            left_s = end_s - self._loop.time()
            if left_s <= 0:
                return False
            self._refuse(has_left)
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._woken.wait()
        return True

    def _refuse(self, has_left: Callable[[], bool]) -> None:
        """Raise if nothing more may be sent."""
        if self._stopped:
            raise BenchError("not_now", f"{self._stopped}: {self._sent_words()}")
        if has_left():
            raise BenchError("not_now", f"whoever sent it has left: {self._sent_words()}")
        view = self._bench.port(self.port)
        if view is None or view.state != "up":
            state = "no longer configured" if view is None else view.state
            raise BenchError("not_now", f"port {self.port} is {state}: {self._sent_words()}")

    def _sent_words(self) -> str:
        words = f"{self.sent_bytes} of {self._bytes} bytes were sent"
        if self._pace.waits_for_echo:
            words += f", {self.echoed} of {len(self._characters)} characters came back"
        return words


def silence_needed(heard: bytes, prompt: bytes, quick_s: float) -> float | None:
    """Return after how much silence the board waits for a line, None: it does not yet.

    `heard` is what it printed since Enter, `prompt` what stood there before, b"" if nothing did.
    """
    lines = _LINE_END.split(heard)
    unfinished = lines[-1]
    if not prompt.strip():
        return quick_s if unfinished.strip() else QUESTION_S
    # What the kernel says behind a prompt does not make it print another.
    if any(line.startswith(prompt) for line in lines[1:]):
        return quick_s
    if unfinished.endswith(prompt[-_PROMPT_END:]):
        return quick_s
    return QUESTION_S if unfinished.strip() else None


def characters(data: bytes) -> list[bytes]:
    """Cut bytes into characters of UTF-8; what is none is a character of its own."""
    text = data.decode("utf-8", errors="surrogateescape")
    return [character.encode("utf-8", errors="surrogateescape") for character in text]


def _echo_of(character: bytes) -> re.Pattern[bytes] | None:
    """Return what comes back for a character; None: boards show controls as they like."""
    if _LINE_END.fullmatch(character):
        return _LINE_END
    return None if character < b" " or character == b"\x7f" else re.compile(re.escape(character))
