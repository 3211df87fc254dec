"""Run the examples of every rule against all rules, and explain a rule to a person."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from serialwatch.records import TIERS, Hit, Lines
from serialwatch.titles import duration
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.moments import S
from serialwatch.triggers.patience import unanswered
from serialwatch.triggers.ruleset import Detector, Rule, RuleSet
from serialwatch.triggers.watch import PortWatch

_ESCAPE = re.compile(r"\\x1[bB]|\\e\b|\\033|\x1b")


def unknown_ecosystems(ruleset: RuleSet) -> Iterator[str]:
    """Return which rules wait for an ecosystem that no banner shows: they never hit."""
    known = {boot.ecosystem for boot in ruleset.boots} | {"linux"}  # that by its stamps, too
    for rule in ruleset.rules:
        for name in rule.ecosystem:
            if name in known:
                continue
            near = difflib.get_close_matches(name.lower(), known, n=1)
            meant = f"is {near[0]!r} meant? " if near else ""
            yield (
                f"rule {rule.id} ({rule.source}): no [[boot]] shows the ecosystem {name!r}, "
                f"so it never hits; {meant}known are {', '.join(sorted(known))}"
            )


def check_rules(ruleset: RuleSet, matcher: Matcher | None = None) -> list[str]:
    """Return what is wrong: problems of loading, then of each example and counterexample.

    An example must hit its rule. Beside it only notes, vaguer rules (parents, lower tiers) and
    rules that merely continue a block may hit. A counterexample must not hit its rule, and nothing
    from warning up but a rule that has that very text as an example.
    """
    matcher = matcher or Matcher(ruleset)
    problems = list(ruleset.problems)
    told = {example: rule.id for rule in ruleset.rules for example in rule.examples}
    for rule in ruleset.rules:
        where = f"rule {rule.id} ({rule.source})"
        before = unanswered()
        if not rule.examples:
            problems.append(f"{where}: needs an example, a line that it finds")
        for example in rule.examples:
            problems += (f"{where}: {wrong}" for wrong in _wrong_example(matcher, rule, example))
        for line in rule.counterexamples:
            problems += (
                f"{where}: {wrong}" for wrong in _wrong_counterexample(matcher, rule, line, told)
            )
        if unanswered() > before:
            problems.append(
                f"{where}: a pattern takes too long on its examples; "
                "let no part repeat that varies itself"
            )
    return problems


def check_rule(installed: RuleSet, matcher: Matcher, own: RuleSet) -> list[str]:
    """Return what is wrong with one more rule, by itself and beside those that are installed.

    `matcher` is of the installed ones. Cheaper than to compile all of them anew.
    """
    alone = Matcher(own)
    problems = check_rules(own, alone)
    (rule,) = own.rules
    for text in (*rule.examples, *rule.counterexamples):
        for hit in hits_of(matcher, text, rule.ecosystem):
            if hit.severity != "note" and hit.trigger != rule.parent:
                problems.append(
                    f"{hit.trigger} finds {text!r} already; for a sharper rule add "
                    f"`parent = '{hit.trigger}'`"
                )
    for other in installed.rules:
        for text in (*other.examples, *other.counterexamples):
            raw = text.encode("utf-8") + b"\n"
            if alone.scan(raw) and hits_of(alone, text, (*rule.ecosystem, *other.ecosystem)):
                problems.append(f"it hits an example of {other.id}, too: {text!r}")
    return list(dict.fromkeys(problems))


def hits_of(matcher: Matcher, text: str, ecosystems: Iterable[str] = ()) -> list[Hit]:
    """Return what the lines of a text hit on a port that shows nothing else."""
    watch = PortWatch("example", matcher, ecosystems=ecosystems)
    raw = text.encode("utf-8").rstrip(b"\n") + b"\n"
    found = watch.fed(Lines(1, raw.count(b"\n"), raw, mono_ns=S, utc_ns=S))
    found += watch.lost(2 * S)
    return [finding for finding in found if isinstance(finding, Hit)]


def explain_rule(ruleset: RuleSet, rule_id: str) -> str:
    """Return what a rule or detector does, in words for a person.

    Raises:
        KeyError: there is no such rule or detector.

    """
    if rule := ruleset.rule(rule_id):
        return "\n".join(_rule_words(ruleset, rule))
    if detector := ruleset.detector(rule_id):
        return "\n".join(_detector_words(detector))
    raise KeyError(rule_id)


def placeholders(ruleset: RuleSet, rule: Rule) -> dict[str, str]:
    """Return what the first example that tells it puts for each field of a rule."""
    alone = Matcher(RuleSet(rules=(rule,)))
    found: dict[str, str] = {}
    for example in rule.examples:
        for hit in hits_of(alone, example, rule.ecosystem):
            for name, value in hit.fields.items():
                found.setdefault(name, value)
    return found


def detector_sentence(detector: Detector) -> str:
    """Return what a detector finds in one sentence, with its own numbers in it."""
    words = (type(detector).__doc__ or "").split("\n")[0].rstrip(".")

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not hasattr(detector, name):
            return found[0]
        given = getattr(detector, name)
        if isinstance(given, tuple):
            return " or ".join(map(str, given))
        return _amount(name, given)

    return re.sub(r"`(\w+)`(?: seconds)?", value, words)


def _amount(name: str, value: object) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if name.endswith("per_s"):
        return f"{value:g} a second"
    if name.endswith("per_min"):
        return f"{value:g} a minute"
    if name.endswith("_s"):
        return duration(value)
    if name.endswith("_bytes"):
        return f"{value:g} bytes"
    return f"{value:g}"


def _wrong_example(matcher: Matcher, rule: Rule, example: str) -> Iterator[str]:
    hits = hits_of(matcher, example, rule.ecosystem)
    own = {rule.id, *_ancestors(matcher.ruleset, rule)}
    if rule.id not in {hit.trigger for hit in hits}:
        instead = ", ".join(dict.fromkeys(hit.trigger for hit in hits)) or "nothing"
        yield f"example {example!r} is not found by it, but by {instead}: {_why_missed(rule)}"
        return
    title = next(hit.title for hit in hits if hit.trigger == rule.id)
    if "?" in title and "?" not in rule.title:
        yield f"example {example!r} leaves a field of the title empty: {title!r}"
    for hit in hits:
        other = matcher.ruleset.rule(hit.trigger)
        if hit.trigger in own or hit.severity == "note" or other is None:
            continue
        if other.continues or TIERS.index(other.tier) < TIERS.index(rule.tier):
            continue
        remedy = f"make that one sharper, or let one be the `parent` of the other ({other.source})"
        yield f"example {example!r} also hits {hit.trigger}; {remedy}"


def _why_missed(rule: Rule) -> str:
    if any(_ESCAPE.search(pattern) for pattern in rule.match):
        return "escapes are taken out of a line before it is searched"
    if rule.count:
        return f"it counts, so an example must have {rule.count.n} lines that match"
    return "`serialwatch rules test FILE --rule ID --with PACK` tells why"


def _wrong_counterexample(
    matcher: Matcher, rule: Rule, line: str, told: dict[str, str]
) -> Iterator[str]:
    for hit in hits_of(matcher, line, rule.ecosystem):
        if hit.trigger == rule.id:
            yield f"counterexample {line!r} hits it"
        elif hit.severity != "note" and told.get(line) != hit.trigger:
            yield f"counterexample {line!r} hits {hit.trigger}"


def _ancestors(ruleset: RuleSet, rule: Rule) -> Iterator[str]:
    seen = {rule.id}
    while (parent := ruleset.rule(rule.parent)) and parent.id not in seen:
        seen.add(parent.id)
        yield parent.id
        rule = parent


def _rule_words(ruleset: RuleSet, rule: Rule) -> Iterator[str]:
    yield f"{rule.id}: {rule.title}"
    yield f"  severity   {rule.severity}" + "".join(
        f", {when.severity}"
        + (f" in state {when.state}" if when.state else "")
        + (f" if the line matches {when.match}" if when.match else "")
        for when in rule.severity_when
    )
    yield f"  tier       {rule.tier}"
    if rule.parent:
        yield f"  sharpens   {rule.parent}"
    sharper = [other.id for other in ruleset.rules if other.parent == rule.id]
    if sharper:
        yield f"  sharpened  by {', '.join(sharper)}"
    if rule.ecosystem:
        yield f"  only       on ports that showed {' or '.join(rule.ecosystem)}"
    yield from _listed("finds", rule.match)
    yield from _listed("but not", rule.unless)
    yield from _listed("fields", rule.fields)
    for name, value in placeholders(ruleset, rule).items():
        yield f"             {{{name}}} is {value!r} in the example"
    if rule.needs:
        words = f"within {rule.needs.within_lines} lines"
        if rule.needs.only:
            words += " (for " + " or ".join(rule.needs.only) + ")"
        yield from _listed("needs", [f"{p}  {words}" for p in rule.needs.match])
    if rule.unless_near:
        near = rule.unless_near
        words = f"in {near.before} lines before to {near.after} after"
        yield from _listed("unless", [f"{p}  {words}" for p in near.match])
    if rule.count:
        yield f"  counts     each {rule.count.n}th hit within {duration(rule.count.in_s)}"
    if rule.block:
        start = " or ".join(rule.block.start) or "the line itself"
        yield f"  evidence   from {start} (at most {rule.block.back_lines} lines back)"
        end = " or ".join(rule.block.end) or "a boot, a prompt or silence"
        yield f"             to {end} (at most {rule.block.max_lines} lines)"
    if rule.continues:
        yield "  continues  a block that is open; opens one only if none is"
    if rule.led_by:
        yield f"  led by     {', '.join(rule.led_by)}"
    yield f"  same fault if {', '.join(rule.key) or 'the title without its numbers'} is the same"
    yield f"  holdoff    {duration(rule.holdoff_s)}"
    if rule.knowledge:
        yield f"  knowledge  {rule.knowledge}"
    yield from _listed("examples", rule.examples)
    yield from _listed("not", rule.counterexamples)
    yield f"  from       {rule.source}"


def _listed(word: str, items: tuple[str, ...] | list[str]) -> Iterator[str]:
    for number, item in enumerate(items):
        lines = item.split("\n")
        yield f"  {word if not number else '':<10} {lines[0]}"
        for line in lines[1:]:
            yield f"             {line}"


def _detector_words(detector: Detector) -> Iterator[str]:
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("severity", (detector.severity,)),
        ("holdoff", (duration(detector.holdoff_s),)),
    ]
    for name in type(detector).__dataclass_fields__:
        if name in ("id", "severity", "holdoff_s", "knowledge", "source"):
            continue
        value = getattr(detector, name)
        if isinstance(value, tuple):
            rows.append((name, tuple(map(str, value))))
        elif value is not None and value != "":
            rows.append((name, (_amount(name, value),)))
    if detector.knowledge:
        rows.append(("knowledge", (detector.knowledge,)))
    rows.append(("from", (detector.source,)))
    yield f"{detector.id}: {detector_sentence(detector)}"
    width = max(len(name) for name, _ in rows)
    for name, lines in rows:
        for number, line in enumerate(lines):
            yield f"  {name if not number else '':<{width}} {line}"
