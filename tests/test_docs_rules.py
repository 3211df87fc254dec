"""The annotated pack of docs/rules.md is one, and leaves no table and no key out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serialwatch.records import Lines
from serialwatch.triggers.check import check_rules
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.pack_tables import DETECTORS, TABLES
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.watch import PortWatch

PATH = Path(__file__).parent.parent / "docs" / "rules.md"
if not PATH.exists():
    pytest.skip("docs/rules.md is not in a wheel", allow_module_level=True)
DOC = PATH.read_text(encoding="utf-8")
PACK = DOC.split("```toml\n")[1].split("```")[0]


def test_the_annotated_pack_loads_and_holds_what_it_promises() -> None:
    assert check_rules(parse_rules(PACK)) == []


def test_its_banner_starts_a_boot_with_the_cause_that_it_names() -> None:
    watch = PortWatch("dut1", Matcher(parse_rules(PACK)))
    text = b"PlantOS v2 (wd)\nplant is running\n"
    found = watch.fed(Lines(1, 2, text, 10**9, 10**9)) + watch.lost(2 * 10**9)

    assert [getattr(each, "cause", "") for each in found][:1] == ["watchdog"]


def test_every_table_and_key_is_explained() -> None:
    for kind, model in (TABLES | {"detector": DETECTORS["gauge"][0]}).items():
        tables = re.findall(rf"(?ms)^\[\[{kind}\]\].*?(?=^\[\[|\Z)", PACK)
        missing = [
            key
            for key in model.model_fields
            if not any(re.search(rf"(?m)^(?:# )?{key} = ", table) for table in tables)
        ]

        assert (kind, missing) == (kind, [])
