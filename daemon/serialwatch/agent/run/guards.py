"""What keeps a run from turning in circles: the same call again, two calls in turn, failures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from serialwatch.agent.run.run_state import RunState

MAX_REPEATS = 3  # then nothing but the report is offered
NUDGE_AT = 2  # repeats
IN_A_ROW = 3  # failures of one skill; then it is not offered any more
MAX_FAILURES = 5  # in all; then nothing but the report is offered
ALTERNATING = 4  # calls A B A B
_BACK = 8  # calls looked at for that

# What makes a range end somewhere: more lines do not change the answer then.
_CLOSED = ("last", "until", "boot", "id", "pc", "register")


def call_key(skill: str, params: Mapping[str, Any], mark: int) -> str:
    """Return what a call asks; `mark` is the newest line of the port that it is about."""
    is_open = skill.startswith("log-") and not any(params.get(name) for name in _CLOSED)
    whole = json.dumps([skill, params, mark if is_open else 0], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:24]


def note_key(state: RunState, key: str) -> bool:
    """Note a call; return whether calls come in turn now, A B A B, which leads nowhere."""
    state.keys = [*state.keys, key][-_BACK:]
    last = state.keys[-ALTERNATING:]
    return len(last) == ALTERNATING and last[0] == last[2] != last[1] == last[3]


def note_outcome(state: RunState, skill: str, is_good: bool) -> None:
    """Count a call that ran; a skill that fails again and again is withdrawn."""
    if is_good:
        state.failed_in_a_row.pop(skill, None)
        return
    state.failures += 1
    state.failed_in_a_row[skill] = in_a_row = state.failed_in_a_row.get(skill, 0) + 1
    if in_a_row >= IN_A_ROW and skill not in state.withdrawn:
        state.withdrawn.append(skill)


def is_stuck(state: RunState) -> bool:
    """Tell whether more calls make no sense."""
    return state.repeats >= MAX_REPEATS or state.failures >= MAX_FAILURES
