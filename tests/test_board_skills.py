"""The skills that act on boards, over a port that answers as it likes."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from serialwatch.bundled import bundled_dir

PROMPT = {"seq": 7, "text": "root@dut:~# "}
DF = {"seq": 7, "text": "root@dut:~# df"}
FULL = {"seq": 8, "text": "/dev/mmcblk0p2 100%"}


def skill(name: str) -> Any:
    path = bundled_dir("skills") / name / "main.py"
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Board:
    """Has a prompt on its console; prints `lines`, the first of them in the place of the prompt."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        told = {"port": "dut1", "how": "RTS", "before_seq": 7, "before_text": "root@dut:~# "}
        self.told = told | {"is_rehearsal": False}
        self._lines = list(lines)
        self.console = SimpleNamespace(send=self._done)
        self.port = SimpleNamespace(reset=self._done)
        self.log = SimpleNamespace(lines=self._read)

    async def _done(self, *_: object) -> dict[str, Any]:
        return self.told

    async def _read(self, *_: object, **__: object) -> dict[str, Any]:
        return {"lines": list(self._lines)}


@pytest.mark.parametrize("name", ["console-send", "port-reset"])
@pytest.mark.parametrize(
    ("lines", "said", "came"),
    [
        ((PROMPT,), "nothing came after it", []),
        ((), "nothing came after it", []),
        ((PROMPT, FULL), "1 line came after it", [FULL]),
        ((DF, FULL), "2 lines came after it", [DF, FULL]),
    ],
)
async def test_what_stood_on_the_line_already_is_no_answer(
    name: str,
    lines: tuple[dict[str, Any], ...],
    said: str,
    came: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = skill(name)
    for limit in ("ANSWER_S", "QUIET_S", "START_S", "LOOK_S"):
        monkeypatch.setattr(module, limit, 0.001, raising=False)
    result = await module.run(Board(*lines), {"text": "df", "enter": True})

    assert result.output["lines"] == came
    assert result.metadata["summary"].endswith(said)
