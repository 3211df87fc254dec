from __future__ import annotations

import random

import pytest

from serialwatch.agent.text.templates import MAX_WORDS, Templates


def learned(*lines: str, most: int = 500) -> Templates:
    templates = Templates(most=most)
    for line in lines:
        templates.learn(line)
    return templates


@pytest.mark.parametrize(
    ("line", "alike"),
    [
        ("[    1.234567] usb 1-1: new device number 2", "[ 9999.000001] usb 2-3: new device number 17"),
        ("I (325) wifi: state: run -> auth (b0)", "I (99325) wifi: state: run -> auth (c0)"),
        ("[00:00:01.000,000] <inf> app: sample 12", "[00:12:41.123,456] <inf> app: sample 4711"),
        ("dma at 0xdeadbeef ready", "dma at 0x0 ready"),
        ("eth0: link is up at 100 Mbit/s", "eth0: link is up at 1000 Mbit/s"),
    ],
)  # fmt: skip
def test_times_and_numbers_make_no_new_template(line: str, alike: str) -> None:
    templates = learned(line)

    assert templates.knows(alike)
    assert not templates.learn(alike)
    assert len(templates) == 1


def test_a_word_that_changes_becomes_a_place() -> None:
    templates = learned("mounted rootfs on /dev/mmcblk now", "mounted overlay on /dev/mmcblk now")

    assert templates.texts() == ["mounted <*> on /dev/mmcblk now"]
    assert templates.knows("mounted data on /dev/mmcblk now")


@pytest.mark.parametrize("word", ["failed", "Failed.", "stopped", "timeout", "off"])
def test_a_word_that_says_how_it_went_does_not(word: str) -> None:
    templates = learned("service network on port one started")

    assert not templates.knows(f"service network on port one {word}")


def test_other_first_words_and_lengths_are_other_lines() -> None:
    templates = learned("spi probe done")

    assert not templates.knows("i2c probe done")
    assert not templates.knows("spi probe done twice")
    assert templates.knows("")
    assert templates.knows("[    1.000000] ")


def test_the_one_not_seen_for_longest_is_forgotten() -> None:
    templates = learned("a one", "b two", "a one", "c three", most=2)

    assert templates.texts() == ["a one", "c three"]
    assert templates.forgotten == 1


def test_what_is_learned_survives_as_text() -> None:
    templates = learned("mounted rootfs on disk", "mounted data on disk", "irq 7 handler set")
    again = Templates(templates.texts())

    assert again.texts() == templates.texts()
    assert again.knows("mounted home on disk")


def test_no_stream_makes_it_grow() -> None:
    rng = random.Random(5)
    templates = Templates(most=50)
    for _ in range(2000):
        words = rng.randint(0, 200)
        line = " ".join("".join(rng.choices("abcxyz/0", k=5)) for _ in range(words))
        templates.learn(line)
        assert templates.knows(line)

    assert len(templates) <= 50
    assert sum(map(len, templates._like.values())) == len(templates)
    assert max(len(text.split()) for text in templates.texts()) <= MAX_WORDS
