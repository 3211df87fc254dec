from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch.agent.knowledge import PageError, load_knowledge, read_page

PAGE = """---
id: {id}
title: {title}
ecosystem: {ecosystem}
causes:
  - text: a handler that is not there
    likely: high
    check: read the line before
  - text: noise
    likely: low
    check: look with a scope
do:
  - 'read this: first'
never: []
---

{body}
"""


def write(
    root: Path,
    id: str,
    title: str = "A title",
    body: str = "Prose.",
    ecosystem: str = "linux",
) -> Path:
    path = root / f"{id}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PAGE.format(id=id, title=title, ecosystem=ecosystem, body=body))
    return path


def test_a_page_is_read(tmp_path: Path) -> None:
    page = read_page(write(tmp_path, "linux/oops"))

    assert (page.id, page.title, page.ecosystem) == ("linux/oops", "A title", "linux")
    assert [c.text for c in page.causes] == ["a handler that is not there", "noise"]
    assert (page.causes[0].likely, page.causes[0].check) == ("high", "read the line before")
    assert (page.do, page.never, page.body) == (("read this: first",), (), "Prose.")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title: A title", "title: ''", "title"),
        ("likely: high", "often: yes", "text, likely and check"),
        ("never: []", "never: none", "never must be a list"),
        ("'read this: first'", "read this: first", "needs quotes"),
        ("---\n\nProse", "--- \n\nProse", "closing line"),
    ],
)
def test_a_page_that_cannot_be_used_is_told(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = write(tmp_path, "linux/oops")
    path.write_text(path.read_text().replace(old, new))

    with pytest.raises(PageError, match=says):
        read_page(path)


def test_a_bad_page_is_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "linux/oops")
    (tmp_path / "linux" / "bad.md").write_text("no head")

    assert list(load_knowledge([tmp_path, tmp_path / "missing"]).pages) == ["linux/oops"]
    assert "bad.md" in caplog.text


def test_the_earlier_folder_wins(tmp_path: Path) -> None:
    write(tmp_path / "own", "linux/oops", "Ours")
    write(tmp_path / "bundled", "linux/oops", "Theirs")
    write(tmp_path / "bundled", "linux/panic")

    knowledge = load_knowledge([tmp_path / "own", tmp_path / "bundled"])

    assert knowledge.pages["linux/oops"].title == "Ours"
    assert set(knowledge.pages) == {"linux/oops", "linux/panic"}


def test_an_id_is_found_with_a_dot_too(tmp_path: Path) -> None:
    write(tmp_path, "linux/irq_nobody_cared")
    knowledge = load_knowledge([tmp_path])

    assert knowledge.get("linux.irq_nobody_cared") is knowledge.get("linux/irq_nobody_cared")
    assert knowledge.get("linux/none") is None


def test_words_find_the_page_that_is_about_them(tmp_path: Path) -> None:
    write(tmp_path, "linux/irq_nobody_cared", "An interrupt that no handler takes")
    write(
        tmp_path, "linux/uart_overrun", "Received bytes were lost", "The UART overran: FIFO full."
    )
    write(tmp_path, "esp/brownout", "The supply dropped", "Too little voltage.", "esp-idf")
    knowledge = load_knowledge([tmp_path])

    found = knowledge.search("rx FIFO overrun, bytes lost?")

    assert found[0].page.id == "linux/uart_overrun"
    assert found[0].score > (found[1].score if len(found) > 1 else 0)
    assert knowledge.search("irq nobody")[0].page.id == "linux/irq_nobody_cared"
    assert knowledge.search("zzz") == []
    assert knowledge.search("") == []


def test_a_search_keeps_to_the_ecosystem_and_the_limit(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"linux/page_{number}", "Voltage trouble")
    write(tmp_path, "esp/brownout", "Voltage trouble", ecosystem="esp-idf")
    write(tmp_path, "link/silence", "Voltage trouble", ecosystem="any")
    knowledge = load_knowledge([tmp_path])

    ids = {f.page.id for f in knowledge.search("voltage", "esp-idf", limit=9)}

    assert ids == {"esp/brownout", "link/silence"}
    assert len(knowledge.search("voltage", limit=2)) == 2


def test_an_empty_base_finds_nothing() -> None:
    assert load_knowledge([]).search("anything") == []
