"""What may be remembered: the gate that a memory passes before it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MemoryType = Literal["preference", "fact", "task_result", "snapshot"]
MemoryScope = Literal["bench", "port", "board", "user"]
MemorySource = Literal["human", "rule", "model"]
MemoryStatus = Literal["proposed", "active", "superseded"]

MAX_BODY = 400  # characters
MAX_TITLE = 120
MAX_TAGS = 16
MAX_EVIDENCE = 20
MAX_LIST = 1000
MAX_PRIORITY: Mapping[MemorySource, int] = {"human": 5, "rule": 3, "model": 3}

_TYPES = {"preference", "fact", "task_result", "snapshot"}
_SCOPES = {"bench", "port", "board", "user"}


class MemoryRefusedError(Exception):
    """What was to be remembered does not pass the gate; the message says why."""


@dataclass(frozen=True, slots=True)
class MemoryLink:
    """Where a memory comes from."""

    source_skill: str
    source_step: str


@dataclass(frozen=True, slots=True)
class NewMemory:
    """What is to be remembered."""

    type: MemoryType
    title: str
    body: str  # one line of text, a conclusion, never raw log
    priority: int  # 0..5
    source: MemorySource
    scope: MemoryScope = "bench"
    scope_name: str = ""  # the port, board or user; "" for bench
    tags: Sequence[str] = ()
    fingerprint: str = ""  # of the incident it is about
    evidence: Sequence[str] = ()  # e.g. dut1:L48213
    session_id: str = ""
    user_id: str = ""
    expires_utc_ns: int | None = None  # None: as its priority says
    links: Sequence[MemoryLink] = ()


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which memories are wanted; what is "" does not narrow them."""

    port: str = ""  # what a run about that port would see
    type: MemoryType | Literal[""] = ""
    scope: MemoryScope | Literal[""] = ""
    status: MemoryStatus | Literal["", "all"] = ""  # "": all but superseded
    limit: int = 100
    board: str = ""  # what a run about a port with that board on it would see


def memory_from_json(body: Mapping[str, Any]) -> NewMemory:
    """Return the memory of a message; keys that are missing have their defaults.

    Raises:
        MemoryRefusedError: a key is unknown, or of a wrong type.

    """
    known = NewMemory.__dataclass_fields__
    if unknown := sorted(set(body) - set(known)):
        raise MemoryRefusedError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    values = dict(body)
    try:
        values["links"] = [MemoryLink(**link) for link in body.get("links", ())]
        return NewMemory(**values)
    except TypeError as exc:
        raise MemoryRefusedError(f"not a memory: {exc}") from exc


def check_memory(memory: NewMemory) -> None:
    """Let a memory pass or not.

    Raises:
        MemoryRefusedError: with the first reason.

    """
    for problem in _problems(memory):
        raise MemoryRefusedError(problem)


def _problems(memory: NewMemory) -> Iterable[str]:
    if memory.type not in _TYPES:
        yield f"type is {memory.type!r}: preference, fact, task_result or snapshot"
    if memory.source not in MAX_PRIORITY:
        yield f"source is {memory.source!r}: human, rule or model"
    if memory.scope not in _SCOPES:
        yield f"scope is {memory.scope!r}: bench, port, board or user"
    lists = (memory.tags, memory.evidence, memory.links)
    if any(isinstance(each, str) or not isinstance(each, Sequence) for each in lists):
        yield "tags, evidence and links are lists"
    texts = [memory.title, memory.body, memory.scope_name, memory.fingerprint]
    texts += [*memory.tags, *memory.evidence]
    if not all(isinstance(text, str) for text in texts):
        yield "title, body, scope_name, tags and evidence are text"
    if not isinstance(memory.priority, int) or isinstance(memory.priority, bool):
        yield "priority is a number from 0 to 5"
    if (memory.scope == "bench") != (not memory.scope_name):
        yield "scope_name names the port, board or user, and is empty for scope bench"
    if not 0 <= memory.priority <= 5:
        yield f"priority is {memory.priority}: 0 to 5"
    if memory.priority > MAX_PRIORITY[memory.source]:
        most = MAX_PRIORITY[memory.source]
        yield f"priority is {memory.priority}: at most {most} from a {memory.source}"
    if not 1 <= len(memory.title.strip()) <= MAX_TITLE:
        yield f"title has {len(memory.title)} characters: 1 to {MAX_TITLE}"
    if not 1 <= len(memory.body.strip()) <= MAX_BODY:
        yield f"body has {len(memory.body)} characters: 1 to {MAX_BODY}"
    if not all(text.isprintable() for text in texts):
        yield "control characters (line breaks too) are not allowed"
    if len(memory.tags) > MAX_TAGS or not all(_TAG.fullmatch(tag) for tag in memory.tags):
        yield f"tags are at most {MAX_TAGS} words of letters, digits, _, . and -"
    if len(memory.evidence) > MAX_EVIDENCE:
        yield f"evidence has {len(memory.evidence)} entries: at most {MAX_EVIDENCE}"
    if memory.source != "human":
        yield from _problems_of_code(memory)
    if memory.source == "model":
        yield from _problems_of_a_model(memory)


def has_instruction(text: str) -> bool:
    """Tell whether a text wants something done instead of saying what is so."""
    return _INSTRUCTION.search(text) is not None


def _problems_of_code(memory: NewMemory) -> Iterable[str]:
    """What no person wrote may come from a board: it says what is so."""
    if has_instruction(_all_of(memory)):
        yield "a memory states what is so; URLs, commands and instructions are not allowed"


def _problems_of_a_model(memory: NewMemory) -> Iterable[str]:
    """What a model writes states facts, with lines that show them."""
    if memory.type in {"fact", "task_result"} and not memory.evidence:
        yield "a fact or task_result needs evidence: lines such as dut1:L48213"
    if memory.type == "preference" and memory.scope == "user":
        yield "what a person prefers is for them to say: `serialwatch memory add`"
    if _SILENCING.search(_all_of(memory)):
        yield "whether a fault matters is for a person to say: leave that out"


def _all_of(memory: NewMemory) -> str:
    return " ".join((memory.title, memory.body, *memory.tags))


_TAG = re.compile(r"[\w.-]{1,32}")
_INSTRUCTION = re.compile(
    r"""https?:// | \bwww\. | ``` | \$\( | \brm\s+-\w | \bcurl\s | \bwget\s | \bsudo\s
      | \b(?:ignore|disregard|forget)\s+(?:all|any|the|your|previous|earlier|above)\b
      | (?<!\bfile\s)(?<!\boperating\s)\b(?:system|assistant|user)\s*:
      | \byou\s+(?:must|should|shall|have\s+to|are\s+now)\b
      | \b(?:always|never|please|do\s+not|don't|must)\s+
        (?:run|send|type|execute|call|reply|answer|approve|write|ignor|report|mention|tell|trust
           |investigat|look|remember|skip|use)\w*
      | \bremember\s*(?::|that\b|to\b) | \bfrom\s+now\s+on\b""",
    re.IGNORECASE | re.VERBOSE,
)
_SILENCING = re.compile(
    r"""\bignor(?:e|ed|es|ing|able)\b | \bdisregard(?:s|ed|ing)?\b | \bharmless\b
      | \bnot\s+(?:a|an|any)\s+(?:\w+\s+)?(?:fault|problem|issue|error)s?\b
      | \bno\s+(?:need|reason)\s+to\b | \bfalse\s+(?:alarm|positive)s?\b
      | \b(?:need|can|may|should|could)\s+(?:not\s+)?be\s+
        (?:skipped|suppressed|muted|silenced|reported|investigated)\b""",
    re.IGNORECASE | re.VERBOSE,
)
