from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
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
EVERY_PAGE = pytest.mark.parametrize(
    "path", PAGES, ids=[f"{p.parent.name}/{p.stem}" for p in PAGES]
)


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


@EVERY_PAGE
def test_no_page_advises_what_cannot_be_undone_or_may_do_damage(path: Path) -> None:
    page = read_page(path)
    advice = "\n".join([*page.do, *(cause.check for cause in page.causes)])

    assert re.findall(r"\bburn\b|^short\b|; short\b|\bfeel\b|erase (?:NVS|the flash)", advice) == []


@EVERY_PAGE
def test_a_page_has_exactly_the_head_that_is_read(path: Path) -> None:
    head = parse_front_matter(path.read_text()).head

    also = ["also"] if "also" in head else []
    assert list(head) == ["id", "title", "ecosystem", *also, "causes", "do", "never"]
    assert head["id"] == f"{path.parent.name}/{path.stem}"


@EVERY_PAGE
def test_a_page_lists_its_causes_likeliest_first_and_says_what_to_do(path: Path) -> None:
    page = read_page(path)
    order = [LIKELY.index(cause.likely) for cause in page.causes]

    assert page.causes
    assert page.do
    assert order == sorted(order)
    assert all(cause.check for cause in page.causes)


@EVERY_PAGE
def test_every_line_of_a_list_is_one_short_plain_phrase(path: Path) -> None:
    for phrase in _phrases(read_page(path)):
        assert 8 <= len(phrase) <= 200, phrase
        assert not phrase.endswith("."), phrase
        assert phrase.isprintable()


@EVERY_PAGE
def test_the_prose_is_a_few_sentences_in_short_lines(path: Path) -> None:
    body = read_page(path).body
    sentences = re.findall(r"[.!?](?=\s|$)", body)

    assert 2 <= len(sentences) <= 12
    assert max(map(len, body.splitlines())) <= 100


@EVERY_PAGE
def test_links_of_a_page_lead_to_pages(path: Path) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", path.read_text())

    assert [t for t in targets if "://" in t or not (path.parent / t).is_file()] == []


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
