"""What the runs of the agent add to the metrics, each thing once."""

from __future__ import annotations

import re

from serialwatch.metrics import CODES, ROUND_KINDS, RUN_ENDS, Metrics
from serialwatch.store.runs import Fresh, Trace

MAX_SKILLS = 200  # names that are a label; more than anybody installs

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


def count_run(metrics: Metrics, trace: Trace, fresh: Fresh) -> None:
    """Count what is new of a run; what came before, and comes again, is not counted again."""
    run = trace.run
    for call in trace.skill_calls:
        if call.n not in fresh.calls:
            continue
        skill = _label(metrics, call.skill)
        metrics.skill_calls.labels(skill, call.status).inc()
        metrics.skill_seconds.labels(skill).observe(call.elapsed_ms / 1000)
        if call.error_code == "invalid_args":
            metrics.param_errors.labels(skill).inc()
    for turn in trace.rounds:
        if turn.n not in fresh.rounds:
            continue
        metrics.rounds.labels(_one_of(turn.kind, ROUND_KINDS)).inc()
        metrics.llm_requests.labels("ok").inc()
        metrics.llm_seconds.observe(turn.latency_ms / 1000)
        metrics.llm_tokens.labels("prompt").inc(turn.prompt_tokens)
        metrics.llm_tokens.labels("completion").inc(turn.completion_tokens)
    if not fresh.has_ended:
        return
    metrics.runs.labels(run.kind, _one_of(run.exit_status, RUN_ENDS)).inc()
    if run.kind != "model":
        return
    state = run.state
    # A round that was begun and not answered is one whose request failed, retries and all.
    unanswered = int(state.get("rounds", 0)) - int(state.get("answered", 0))
    metrics.llm_requests.labels("error").inc(max(0, unanswered))
    for metric, key in (
        (metrics.skill_offered, "offered"),
        (metrics.skill_used, "called"),
        (metrics.skill_cited, "cited"),
    ):
        for skill in state.get(key, ()):
            metric.labels(_label(metrics, str(skill))).inc()
    for refusal in state.get("refused", ()):
        what = "dropped" if refusal.get("is_dropped") else "changed"
        metrics.report_refusals.labels(_one_of(str(refusal.get("code")), CODES), what).inc()


def _label(metrics: Metrics, skill: str) -> str:
    """Return the name of a skill as a label: a model may ask for any, and labels cost memory."""
    if skill in metrics.skill_names:
        return skill
    if _NAME.fullmatch(skill) and len(metrics.skill_names) < MAX_SKILLS:
        metrics.skill_names.add(skill)
        return skill
    return "other"


def _one_of(word: str, known: tuple[str, ...]) -> str:
    return word if word in known else "other"
