from __future__ import annotations

from collections.abc import Iterator

from serialwatch.agent.novel.novelty import (
    GOOD_AFTER_S,
    LEARN_LINES,
    MAX_TOLD,
    BootSeen,
    PortNovelty,
)
from serialwatch.records import Line
from serialwatch.store.log_reader import LogGap

S = 1_000_000_000
BOOT = ["U-Boot 2024.01", "Loading kernel from mmc", "[    0.000000] Booting Linux", "login:"]


class Board:
    """A log that grows boot by boot, and what the database says of its boots."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.of_boot: list[int] = []
        self.boots: list[BootSeen] = []
        self.now_s = 1000.0

    def prints(self, *texts: str | bytes) -> None:
        for text in texts:
            self.texts.append(text.encode() if isinstance(text, str) else text)
            self.of_boot.append(len(self.boots))

    def starts(self, *more: str, is_ready: bool = True, has_fault: bool = False) -> None:
        seq = len(self.texts) + 1
        number = len(self.boots) + 1
        ready = (seq + 3, round(self.now_s * S)) if is_ready else (None, None)
        self.boots.append(BootSeen(number, seq, *ready, has_fault))
        self.prints(*BOOT, *more)

    # What `LogView` has

    def refresh(self) -> None: ...

    def bounds(self) -> tuple[int, int] | None:
        return (1, len(self.texts)) if self.texts else None

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Line]:
        low, high = first or 1, min(last or 2**62, len(self.texts))
        seqs = range(low, high + 1)
        for seq in (seqs[::-1] if reverse else seqs)[:limit]:
            yield Line("dut1", seq, self.texts[seq - 1], self.of_boot[seq - 1], 0, 0, 0)

    def seq_at(self, utc_ns: int) -> int | None:
        return None

    def last_seq_at(self, utc_ns: int) -> int | None:
        return None

    def boots_of_index(self) -> list[tuple[int, int, int]]:
        return []

    def gaps(self) -> list[LogGap]:
        return []


def looks(board: Board, novelty: PortNovelty, times: int = 5) -> list[str]:
    found: list[str] = []
    for _ in range(times):
        now_ns = round(board.now_s * S)
        found += [n.text for n in novelty.look(board, board.boots, now_ns)]  # type: ignore[arg-type]  # all of it that is used
    return found


def after_good_boots(count: int = 2, **kind: bool) -> tuple[Board, PortNovelty]:
    board, novelty = Board(), PortNovelty()
    board.prints("power on")
    looks(board, novelty)
    for _ in range(count):
        board.starts("eth0: link is up", **kind)
        looks(board, novelty)
    board.now_s += GOOD_AFTER_S
    looks(board, novelty)
    return board, novelty


def test_a_line_that_no_good_boot_had_is_told_once() -> None:
    board, novelty = after_good_boots()
    board.prints("eth0: link is up", "pump: pressure 17 is odd", "pump: pressure 19 is odd")

    assert looks(board, novelty) == ["pump: pressure 17 is odd"]
    board.prints("pump: pressure 4 is odd")
    assert looks(board, novelty) == []


def test_one_good_boot_is_not_enough() -> None:
    board, novelty = after_good_boots(1)
    board.prints("pump: pressure 17 is odd")

    assert looks(board, novelty) == []


def test_a_boot_with_a_fault_or_without_an_end_teaches_nothing() -> None:
    assert after_good_boots(3, has_fault=True)[1].good_boots == 0
    assert after_good_boots(3, is_ready=False)[1].good_boots == 0


def test_a_boot_is_learned_when_it_has_run_for_a_while_or_another_follows() -> None:
    board, novelty = Board(), PortNovelty()
    board.prints("power on")
    board.starts()
    looks(board, novelty)
    assert novelty.good_boots == 0
    board.now_s += GOOD_AFTER_S
    looks(board, novelty)
    assert novelty.good_boots == 1
    board.starts()
    board.starts()
    looks(board, novelty)

    assert novelty.good_boots == 2


def test_a_flood_is_looked_at_in_samples_and_told_in_a_few_lines() -> None:
    board, novelty = after_good_boots()
    board.prints(*(f"{chr(97 + n % 26)}{chr(97 + n // 26)} something new" for n in range(600)))

    assert len(looks(board, novelty)) == MAX_TOLD


def test_the_next_boot_may_tell_again() -> None:
    board, novelty = after_good_boots()
    board.prints(*(f"word{chr(97 + n)} something new" for n in range(9)))
    looks(board, novelty)
    board.starts()
    board.prints("valve: stuck at two")

    assert looks(board, novelty) == ["valve: stuck at two"]


def test_garbage_is_neither_learned_nor_told() -> None:
    board, novelty = after_good_boots()
    known = len(novelty.templates)
    board.prints(b"\xf8\x80\xc0\xfe\xe0" * 9, b"\x1b[32mok: \x1b[0m\xff\xff\xff\xff\xff\xff")

    assert looks(board, novelty) == []
    assert len(novelty.templates) == known


def test_long_boots_are_learned_step_by_step_and_whole() -> None:
    board, novelty = Board(), PortNovelty()
    board.prints("power on")
    looks(board, novelty)
    extra = [
        f"{chr(97 + n % 26)}x{chr(97 + n // 26)} module loaded" for n in range(LEARN_LINES + 50)
    ]
    board.starts(*extra)
    board.starts(*extra)
    board.starts(*extra)
    assert looks(board, novelty, 8) == []

    assert novelty.good_boots == 2
    assert novelty.templates.knows(extra[-1])


def test_after_a_flash_it_learns_anew() -> None:
    board, novelty = after_good_boots()
    novelty.flashed()
    board.prints("pump: pressure 17 is odd")

    assert looks(board, novelty) == []


def test_what_was_learned_is_taken_up_again() -> None:
    _, before = after_good_boots()
    novelty = PortNovelty(before.templates.texts(), before.good_boots)
    board = Board()
    board.prints("power on")
    looks(board, novelty)
    board.prints("eth0: link is up", "pump: pressure 17 is odd")

    assert looks(board, novelty) == ["pump: pressure 17 is odd"]
