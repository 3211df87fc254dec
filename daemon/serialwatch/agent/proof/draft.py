"""A report as a model wrote it: read strictly, with complaints that a model can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from serialwatch.records import (
    Conclusion,
    ConclusionKind,
    Evidence,
    Hypothesis,
    NextStep,
    Report,
    Risk,
    Verdict,
)

MAX_CONCLUSIONS = 8


class DraftError(ValueError):
    """A draft is no report; `problems` says what to change, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_draft(body: Mapping[str, Any], baseline: Report, made_by: str) -> Report:
    """Return the report in `body`; what it does not say is taken from `baseline`.

    Raises:
        DraftError: something in it has the wrong shape.

    """
    reader = _Reader()
    conclusions = reader.conclusions(body.get("conclusions"))
    report = replace(
        baseline,
        made_by=made_by,
        title=reader.text(body.get("title"), "title"),
        fault_class=str(body.get("class") or baseline.fault_class),
        verdict=cast(Verdict, reader.choice(body.get("verdict"), get_args(Verdict), "verdict")),
        confidence=reader.fraction(body.get("confidence"), "confidence"),
        conclusions=conclusions,
        hypotheses=reader.hypotheses(body.get("hypotheses"), baseline),
        unknowns=reader.texts(body.get("unknowns"), "unknowns", baseline.unknowns),
        next_steps=reader.steps(body.get("next_steps"), baseline.next_steps),
        not_checked=reader.texts(body.get("not_checked"), "not_checked", baseline.not_checked),
    )
    if reader.problems:
        raise DraftError(reader.problems)
    return report


class _Reader:
    """Takes the parts of a draft and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def text(self, value: object, where: str) -> str:
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
        self.problems.append(f"{where}: a text is missing")
        return ""

    def choice(self, value: object, allowed: Sequence[str], where: str) -> str:
        if value in allowed:
            return str(value)
        self.problems.append(f"{where}: one of {', '.join(allowed)}, not {value!r}")
        return allowed[0]

    def fraction(self, value: object, where: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self.problems.append(f"{where}: a number from 0 to 1, not {value!r}")
        return 0.0

    def rows(self, value: object, where: str) -> list[Any]:
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.problems.append(f"{where}: a list, not {type(value).__name__}")
        return []

    def texts(self, value: object, where: str, default: tuple[str, ...]) -> tuple[str, ...]:
        if value is None:
            return default
        return tuple(self.text(row, where) for row in self.rows(value, where))

    def conclusions(self, value: object) -> tuple[Conclusion, ...]:
        rows = self.rows(value, "conclusions")
        if not rows:
            self.problems.append("conclusions: at least one, with the lines it rests on")
        if len(rows) > MAX_CONCLUSIONS:
            self.problems.append(f"conclusions: at most {MAX_CONCLUSIONS}")
        found = []
        for n, row in enumerate(rows[:MAX_CONCLUSIONS], start=1):
            where = f"conclusions[{n}]"
            if not isinstance(row, dict):
                self.problems.append(f"{where}: an object")
                continue
            kinds = get_args(ConclusionKind)
            found.append(
                Conclusion(
                    id=str(row.get("id") or f"c{n}"),
                    kind=cast(ConclusionKind, self.choice(row.get("kind"), kinds, f"{where}.kind")),
                    claim=self.text(row.get("claim"), f"{where}.claim"),
                    evidence=self.evidence(row.get("evidence"), f"{where}.evidence"),
                    knowledge=self.texts(row.get("knowledge"), f"{where}.knowledge", ()),
                    results=self.texts(row.get("results"), f"{where}.results", ()),
                    rests_on=self.texts(row.get("rests_on"), f"{where}.rests_on", ()),
                )
            )
        return tuple(found)

    def evidence(self, value: object, where: str) -> tuple[Evidence, ...]:
        found = []
        for row in self.rows(value, where):
            port, seq = _line_of(row) if isinstance(row, dict) else ("", 0)
            if not port or seq < 1:
                self.problems.append(f"{where}: port and seq of a line, such as dut1 and 48212")
                continue
            found.append(Evidence(port, seq, self.text(row.get("quote"), f"{where}.quote")))
        return tuple(found)

    def hypotheses(self, value: object, baseline: Report) -> tuple[Hypothesis, ...]:
        if value is None:
            return baseline.hypotheses
        found = []
        for n, row in enumerate(self.rows(value, "hypotheses"), start=1):
            where = f"hypotheses[{n}]"
            if not isinstance(row, dict):
                self.problems.append(f"{where}: an object")
                continue
            status = self.choice(row.get("status", "open"), _STATUS, f"{where}.status")
            found.append(
                Hypothesis(
                    fault_class=str(row.get("class") or baseline.fault_class),
                    text=self.text(row.get("text"), f"{where}.text"),
                    score=self.fraction(row.get("score", 0.5), f"{where}.score"),
                    status=cast(Any, status),
                )
            )
        return tuple(found)

    def steps(self, value: object, default: tuple[NextStep, ...]) -> tuple[NextStep, ...]:
        if value is None:
            return default
        found = []
        for n, row in enumerate(self.rows(value, "next_steps"), start=1):
            where = f"next_steps[{n}]"
            if isinstance(row, str):
                row = {"text": row}  # noqa: PLW2901
            if not isinstance(row, dict):
                self.problems.append(f"{where}: an object with text and risk")
                continue
            risk = self.choice(row.get("risk", "L1"), get_args(Risk), f"{where}.risk")
            found.append(NextStep(self.text(row.get("text"), f"{where}.text"), cast(Risk, risk)))
        return tuple(found)


_STATUS = ("confirmed", "refuted", "open")


def _line_of(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return port and number; `"dut1:L48212"` in `line`, `seq` or `port` will do as well."""
    for key in ("line", "seq", "port"):
        found = re.fullmatch(r"([a-z0-9][a-z0-9_-]*):L?(\d{1,15})", str(row.get(key, "")).strip())
        if found:
            return found[1], int(found[2])
    seq = re.fullmatch(r"L?(\d{1,15})", str(row.get("seq", "")).strip())
    return str(row.get("port", "")), int(seq[1]) if seq else 0
