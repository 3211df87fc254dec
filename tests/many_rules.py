"""Packs of any size, of rules as people write them, and how fast they are searched."""

from __future__ import annotations

import random
import time

from serialwatch.records import Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.watch import PortWatch

CHUNK = 4096  # bytes: what a port at full speed hands over at a time
_SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ka",
    "le",
    "mi",
    "no",
    "pu",
    "ra",
    "se",
    "ti",
    "vo",
    "wu",
    "za",
    "che",
    "sto",
    "gra",
]
_KINDS = (
    r"{0}: {1} {2} failed with \d",
    r"^{0}: {1} timed out after \d+ ms$",
    r"\b{0} {1}: no {2} at 0x[0-9a-f]{{8}}",
    r"(?i){0} {1} (?:error|fault) in {2}",
)


def many_rules(count: int, seed: int = 1) -> str:
    """Return a pack of so many different rules."""
    rng = random.Random(seed)

    def word() -> str:
        return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))

    tables = []
    for number in range(count):
        words = word(), word(), word()
        pattern = _KINDS[number % len(_KINDS)].format(*words)
        tables.append(
            f'[[rule]]\nid = "many.r{seed}_{number}"\ntitle = "{words[0]} {{n}}"\n'
            f"severity = 'error'\nmatch = ['{pattern}']\n"
            f"fields = '{words[0]}.{{0,20}} (?P<n>\\d+)'\nunless = ['{words[2]} test']\n"
        )
    return "\n".join(tables)


def mb_per_s(matcher: Matcher, text: bytes, rounds: int = 3, chunk_ns: int = 10**7) -> float:
    """Return how fast a port's lines are searched: the best of some rounds."""
    chunks = list(_chunks(text, chunk_ns))
    best_s = float("inf")
    for _ in range(rounds):
        watch = PortWatch("bench", matcher)
        began = time.process_time()
        for number, chunk in enumerate(chunks, 1):
            watch.fed(chunk)
            watch.tick(number * chunk_ns, 0)
        best_s = min(best_s, time.process_time() - began)
    return len(text) / best_s / 1e6


def _chunks(text: bytes, chunk_ns: int) -> list[Lines]:
    found, seq, at = [], 1, 0
    while at < len(text):
        end = text.rfind(b"\n", at, at + CHUNK) + 1 or text.find(b"\n", at) + 1 or len(text)
        part = text[at:end]
        found.append(Lines(seq, part.count(b"\n"), part, chunk_ns * (len(found) + 1), 0))
        seq += part.count(b"\n")
        at = end
    return found
