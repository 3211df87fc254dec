"""One skill: what it is, what it may do, and whether parameters fit it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from serialwatch.agent.skills.when import When
from serialwatch.records import Risk
from serialwatch.wire import Json

CAPABILITIES: Mapping[str, Risk] = {
    "log.lines": "L1",
    "log.stats": "L1",
    "log.compare": "L1",
    "ports": "L1",
    "incidents": "L1",
    "knowledge.search": "L1",
    "knowledge.get": "L1",
    "memory.search": "L1",
    "results.read": "L1",
    "call": "L1",
    "accept": "L1",
    "elf": "L1",
    "human.ask": "L1",
    "model.complete": "L1",
    "snapshot.read": "L1",
    "snapshot.write": "L2",
    "mark": "L2",
    "memory.write": "L2",
    "report.submit": "L2",
    "console.send": "L3",
    "port.reset": "L3",
    "port.set_lines": "L3",
    "port.send_break": "L3",
}  # what `ctx` offers, and from which risk on


@dataclass(frozen=True, slots=True)
class ParamProblem:
    """A parameter that does not fit the schema."""

    pointer: str  # JSON pointer, "" for the object itself
    message: str
    allowed: tuple[Any, ...] = ()  # values, types or names that would fit


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill that can be offered; one without `main.py` is text to read only."""

    name: str  # of its folder
    description: str
    body: str  # of SKILL.md
    version: str
    namespace: str
    tags: frozenset[str]
    risk: Risk
    timeout_s: float
    long_s: float  # its limit once it has called `ctx.accept`; 0: it may not
    is_idempotent: bool
    allowed: frozenset[str]  # capabilities, at most those of its risk
    roles: frozenset[str]  # "*": any
    when: When
    when_not: str
    folder: Path
    sha: str  # SHA-256 of all its files
    params: Mapping[str, Any]  # its JSON Schema
    has_main: bool
    hints: Mapping[str, str]  # of its text, by failure code: what the caller should do
    validator: Validator = field(compare=False, repr=False)
    any_boot: bool = False  # of L3: it may be done in another boot than it was proposed in

    def problems(self, params: object) -> tuple[ParamProblem, ...]:
        """Return what is wrong with `params`, nothing if they fit."""
        errors = sorted(
            self.validator.iter_errors(cast(Any, params)), key=lambda e: list(map(str, e.path))
        )
        return tuple(map(_problem, errors))

    def with_defaults(self, params: Mapping[str, Any]) -> Json:
        """Return `params` with the defaults of the schema where nothing is said."""
        defaults = {
            name: about["default"]
            for name, about in self.params.get("properties", {}).items()
            if "default" in about
        }
        return {**defaults, **params}

    def is_for(self, role: str, named: Collection[str]) -> bool:
        """Return whether a role may use it: the role names it, or it names the role."""
        return self.name in named or role in self.roles

    def example(self) -> Json | None:
        """Return a call that fits, None if the schema has none."""
        examples = self.params.get("examples", ())
        return next((e for e in examples if isinstance(e, dict) and not self.problems(e)), None)


def _fits_pattern(
    validator: Validator, pattern: str, value: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(value, str) and not re.search(_DOLLAR.sub(_at_the_end, pattern), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _at_the_end(found: re.Match[str]) -> str:
    """Return what `$` means in a schema: the end, where Python lets a line end come before it."""
    return r"\Z" if found[0] == "$" else found[0]


_DOLLAR = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)  # outside of [...] and behind no \

ParamsValidator: Callable[[Mapping[str, Any]], Validator] = validators.extend(  # type: ignore[no-untyped-call]  # jsonschema has no types there
    Draft202012Validator, {"pattern": _fits_pattern}
)


def _problem(error: ValidationError) -> ParamProblem:
    pointer = "".join(f"/{str(p).replace('~', '~0').replace('/', '~1')}" for p in error.path)
    message = error.message if len(error.message) <= 200 else error.message[:199] + "…"
    allowed: tuple[Any, ...] = ()
    match error.validator:
        case "enum":
            allowed = tuple(cast("list[Any]", error.validator_value))
        case "const" | "type":
            said = error.validator_value
            allowed = tuple(said) if isinstance(said, list) else (said,)
        case "additionalProperties":
            allowed = tuple(cast("Mapping[str, Any]", error.schema).get("properties", ()))
        case "required":
            allowed = tuple(cast("list[Any]", error.validator_value))
        case (
            "pattern" | "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems"
        ):
            allowed = (f"{error.validator}: {error.validator_value}",)
        case "oneOf" | "anyOf":
            allowed = tuple(_names(cast("list[Any]", error.validator_value)))
        case _:
            pass
    return ParamProblem(pointer, message, allowed)


def _names(choices: Sequence[Any]) -> Iterator[str]:
    """Yield what each of several schemas requires, such as `register and value`."""
    for choice in choices:
        if isinstance(choice, Mapping) and isinstance(required := choice.get("required"), list):
            yield " and ".join(map(str, required))
