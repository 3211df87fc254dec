from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from serialwatch.agent.front_matter import parse_front_matter
from serialwatch.agent.knowledge import Knowledge, Page, load_knowledge, read_page
from serialwatch.bundled import bundled_dir

ROOT = bundled_dir("config/knowledge")
PAGES = sorted(ROOT.glob("*/*.md"))
LIKELY = ("high", "medium", "low")  # as pages list their causes
DETECTORS = (
    "boot/loop",
    "daemon/database_damaged",
    "daemon/log_not_written",
    "daemon/part_failed",
    "link/framing_errors",
    "link/rx_overrun_host",
    "link/silence",
    "rate/flood",
    "rate/interrupt_storm",
)


@cache
def read() -> dict[str, tuple[Path, Page]]:
    """Return all pages as they are read, by their place."""
    return {f"{p.parent.name}/{p.stem}": (p, read_page(p)) for p in PAGES}


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return load_knowledge([ROOT])


def test_every_rule_and_detector_of_the_packs_names_a_page_that_exists(
    knowledge: Knowledge,
) -> None:
    named = dict(_pages_named())

    assert {rule: page for rule, page in named.items() if page not in knowledge.pages} == {}


def test_every_first_detector_has_a_page(knowledge: Knowledge) -> None:
    assert [page for page in DETECTORS if page not in knowledge.pages] == []


def test_every_page_is_about_a_rule_or_a_detector(knowledge: Knowledge) -> None:
    assert set(knowledge.pages) - {page for _, page in _pages_named()} <= set(DETECTORS)


def test_a_rule_names_the_page_of_its_own_id() -> None:
    named = dict(_pages_named())

    assert {rule: page for rule, page in named.items() if page != rule.replace(".", "/")} == {}


def test_no_page_advises_what_cannot_be_undone_or_may_do_damage() -> None:
    harmful = re.compile(r"\bburn\b|^short\b|; short\b|\bfeel\b|erase (?:NVS|the flash)")
    told = {
        name: found
        for name, (_, page) in read().items()
        if (found := harmful.findall("\n".join([*page.do, *(c.check for c in page.causes)])))
    }

    assert told == {}


def test_a_page_has_exactly_the_head_that_is_read() -> None:
    for name, (path, _) in read().items():
        head = parse_front_matter(path.read_text()).head

        also = ["also"] if "also" in head else []
        assert list(head) == ["id", "title", "ecosystem", *also, "causes", "do", "never"], name
        assert head["id"] == name


def test_a_page_lists_its_causes_likeliest_first_and_says_what_to_do() -> None:
    for name, (_, page) in read().items():
        order = [LIKELY.index(cause.likely) for cause in page.causes]

        assert page.causes, name
        assert page.do, name
        assert order == sorted(order), name
        assert all(cause.check for cause in page.causes), name


def test_every_line_of_a_list_is_one_short_plain_phrase() -> None:
    for name, (_, page) in read().items():
        for phrase in _phrases(page):
            assert 8 <= len(phrase) <= 200, (name, phrase)
            assert not phrase.endswith("."), (name, phrase)
            assert phrase.isprintable(), (name, phrase)


def test_the_prose_is_a_few_sentences_in_short_lines() -> None:
    for name, (_, page) in read().items():
        sentences = re.findall(r"[.!?](?=\s|$)", page.body)

        assert 2 <= len(sentences) <= 12, name
        assert max(map(len, page.body.splitlines())) <= 100, name


def test_no_sign_of_a_cause_is_the_beginning_of_another_number() -> None:
    signs = (s for _, page in read().values() for c in page.causes for s in (*c.lines, *c.unless))

    assert [sign for sign in signs if re.search(r"(?<!\\)\d\Z", sign)] == []


def test_links_of_a_page_lead_to_pages() -> None:
    astray = [
        (name, target)
        for name, (path, _) in read().items()
        for target in re.findall(r"\]\(([^)]+)\)", path.read_text())
        if "://" in target or not (path.parent / target).is_file()
    ]

    assert astray == []


def test_no_two_pages_say_the_same(knowledge: Knowledge) -> None:
    texts: Counter[str] = Counter()
    for page in knowledge.pages.values():
        texts.update({page.title, *(" ".join(s.split()) for s in _sentences(page.body))})

    assert [text for text, count in texts.items() if count > 1 and len(text) > 30] == []


def test_a_page_is_found_by_what_people_call_its_fault(knowledge: Knowledge) -> None:
    for words, page in (
        ("interrupt nobody cared", "linux/irq_nobody_cared"),
        ("guru meditation LoadProhibited", "esp/guru"),
        ("synchronous abort esr", "uboot/sync_abort"),
        ("stop bit bit rate garbage", "link/framing_errors"),
        ("BFAR precise bus error zephyr", "zephyr/cpu_fault"),
    ):
        assert page in [found.page.id for found in knowledge.search(words)], words


def _pages_named() -> Iterator[tuple[str, str]]:
    for path in sorted(bundled_dir("config/rules").glob("*.toml")):
        pack = tomllib.loads(path.read_text())
        for table in (*pack.get("rule", ()), *pack.get("detector", ())):
            yield table["id"], table.get("knowledge", "")


def _phrases(page: Page) -> Iterator[str]:
    for cause in page.causes:
        yield cause.text
        yield cause.check
    yield from page.do
    yield from page.never


def _sentences(body: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+", body)
