from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bench_cable import within_s
from serialwatch.agent.skills.results import MAX_KEPT, MAX_OUTPUT, error_code
from serialwatch.agent.workers.worker import Quota, Workers
from serialwatch.records import SkillResult
from skill_maker import make_skill
from skill_run import opened_run

ANY = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Workers]:
    async with Workers() as made:
        yield made


class Told:
    """Hears from a skill in the middle of its run: it asks for the ports when it is there."""

    def __init__(self, root: Path) -> None:
        self._data = root / "data"
        self._data.mkdir()
        self._is_there = asyncio.Event()
        self.about = {"data_dir": self._data, "ask_ports": self._ask_ports}

    async def pid(self) -> int:
        """Return the skill's process as soon as it runs."""
        await self._is_there.wait()
        return int((self._data / "pid").read_text())

    async def _ask_ports(self) -> dict[str, Any]:
        self._is_there.set()
        return {}


TELL = "(ctx.data_dir / 'pid').write_text(str(os.getpid()))\nawait ctx.ports()\n"


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(ended, readable.set)
        await readable.wait()
    finally:
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)


async def all_ended(workers: Workers) -> None:
    """Wait until no process of a skill is left."""
    while workers.alive:
        await asyncio.sleep(0)


async def run_skill(
    workers: Workers, root: Path, code: str, timeout_s: float | None = None, **about: Any
) -> SkillResult:
    """Make a skill with this code, run it once, return its result."""
    make_skill(root, "a-b", code)
    with opened_run([root], port="dut1", **about) as ctx:
        return await workers.run("a-b", {}, ctx, timeout_s)


async def test_a_skill_answers(workers: Workers, tmp_path: Path) -> None:
    make_skill(
        tmp_path,
        "a-b",
        "return SkillResult('require_more', {'n': params['n'] + 1}, ({'title': 't'},), {'x': 1})",
        schema=ANY,
    )
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {"n": 1}, ctx)

    assert (result.status, result.output) == ("require_more", {"n": 2})
    assert result.new_memories == ({"title": "t"},)
    assert result.metadata["x"] == 1
    assert result.metadata["taint"] == "host"
    assert ctx.results == {result.metadata["result"]: {"n": 2}}


async def test_a_skill_knows_its_run(workers: Workers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    result = await run_skill(
        workers,
        tmp_path / "skills",
        """
        import time
        (ctx.data_dir / 'note').write_text('kept')
        return SkillResult('success', {
            'run': ctx.run_id, 'step': ctx.step, 'port': ctx.port, 'incident': ctx.incident,
            'left': ctx.deadline_s - time.monotonic(), 'dir': str(ctx.skill_dir),
        })
        """,
        incident=17,
        data_dir=data,
    )

    left = result.output["left"]
    assert 0 < left <= 5
    assert result.output == {
        "run": "run-1",
        "step": 0,
        "port": "dut1",
        "incident": 17,
        "left": left,
        "dir": str(tmp_path / "skills" / "a-b"),
    }
    assert (data / "note").read_text() == "kept"


@pytest.mark.parametrize("code", ["while True: pass", "await asyncio.sleep(1000)"])
async def test_a_skill_that_does_not_end_is_killed(
    workers: Workers, tmp_path: Path, code: str
) -> None:
    result = await run_skill(workers, tmp_path, code, 0.3)

    assert error_code(result) == "timeout"
    assert 250 < result.metadata["elapsed_ms"] < 3000
    await within_s(5, all_ended(workers))


async def test_the_loop_turns_while_a_skill_spins(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "while True: pass")
    turns = 0
    with opened_run([tmp_path]) as ctx:
        running = asyncio.ensure_future(workers.run("a-b", {}, ctx, 0.3))
        while not running.done():
            await asyncio.sleep(0)
            turns += 1

    assert error_code(running.result()) == "timeout"
    assert turns > 100


@pytest.mark.parametrize(
    ("code", "error", "detail"),
    [
        ("os._exit(3)", "crashed", "exit code 3"),
        ("raise SystemExit(4)", "crashed", "SystemExit: 4"),
        ("raise ValueError('a \\x1b[31mred\\n one')", "crashed", r"ValueError: a \x1b[31mred\x0a"),
        ("os.kill(os.getpid(), 9)", "crashed", ""),
        ("x = []\nwhile True: x.append(bytearray(64 << 20))", "crashed", "MemoryError"),
        ("import ctypes; ctypes.string_at(0)", "crashed", "Segmentation fault"),
        ("return {'a': 1}", "bad_result", "dict"),
        ("return SkillResult('done', {})", "bad_result", "status 'done'"),
        ("return SkillResult('success', [1])", "bad_result", "objects"),
        ("return SkillResult('success', {'a': float('nan')})", "bad_result", "JSON"),
        ("return SkillResult('success', {'a': '\\ud800'})", "bad_result", "JSON"),
        ("return SkillResult('success', {'a': {1, 2}})", "bad_result", "JSON"),
        ("return SkillResult('success', {'a': 'x' * 300_000})", "bad_result", "bytes"),
        ("return SkillResult('success', {}, ({},) * 9)", "bad_result", "memories"),
        ("return SkillResult('success', {}, (), {'x': 'x' * 9000})", "bad_result", "metadata"),
        ("await ctx.memory.write({})", "denied", "may not use memory.write"),
        ("ctx._link.ask('shell.run', {})", "denied", "may not use shell.run"),
        ("await ctx.log.lines('nothere')", "precondition", "no log of a port 'nothere'"),
        ("await ctx.log.lines(limit=0)", "invalid_args", "limit"),
        ("ctx._link.ask('log.lines', {'regex': '.*'})", "invalid_args", "no such argument: regex"),
    ],
)
async def test_what_goes_wrong_in_a_skill_is_a_failure(
    workers: Workers, tmp_path: Path, code: str, error: str, detail: str
) -> None:
    result = await run_skill(workers, tmp_path, code, 4.0)

    assert result.status == "failure"
    assert error_code(result) == error
    assert detail in result.metadata["error"].get("detail", "")
    assert result.metadata["error"]["message"].endswith(".")


@pytest.mark.parametrize(
    "garbage",
    [
        "b'\\xff' * 100",
        "b'\\x00\\x00\\x00\\x04null'",
        "(200_000).to_bytes(4, 'big') + b'[' * 200_000",
        "b'\\x00\\x00\\x00\\x02{}'",
        "b'\\x00\\x00\\x00\\x0e' + b'{\"kind\":\"ask\"}'",
    ],
)
async def test_garbage_in_the_pipe_is_a_bad_result(
    workers: Workers, tmp_path: Path, garbage: str
) -> None:
    code = f"ctx._link._pipe.sendall({garbage})\nawait asyncio.sleep(60)"

    assert error_code(await run_skill(workers, tmp_path, code, 4.0)) == "bad_result"


async def test_a_skill_that_floods_the_pipe_does_not_fill_our_memory(
    workers: Workers, tmp_path: Path
) -> None:
    code = """
    import json
    ask = json.dumps({'kind': 'ask', 'op': 'ports', 'body': {}}).encode()
    while True:
        ctx._link._pipe.sendall(len(ask).to_bytes(4, 'big') + ask)
    """
    result = await run_skill(workers, tmp_path, code, 0.3)

    assert error_code(result) == "timeout"


@pytest.mark.skipif(
    os.uname().machine not in ("x86_64", "aarch64", "riscv64"), reason="no filter for this machine"
)
async def test_a_skill_cannot_start_a_process(workers: Workers, tmp_path: Path) -> None:
    code = """
    for _ in range(5):
        os.fork()
    """
    result = await run_skill(workers, tmp_path, code, 2.0)

    assert error_code(result) == "crashed"
    assert "PermissionError" in result.metadata["error"]["detail"]


async def test_parameters_that_do_not_fit_start_nothing(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", schema=ANY)
    workers = Workers()
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {"n": "x"}, ctx)

    assert error_code(result) == "invalid_args"
    assert result.output["problems"] == [
        {"pointer": "/n", "message": "'x' is not of type 'integer'", "allowed": ["integer"]}
    ]
    assert workers.pid is None


async def test_an_unknown_skill_names_the_similar_ones(tmp_path: Path) -> None:
    make_skill(tmp_path, "log-read")
    with opened_run([tmp_path]) as ctx:
        result = await Workers().run("log_read", {}, ctx)

    assert error_code(result) == "unknown_skill"
    assert result.output == {"similar": ["log-read"]}


async def test_what_is_too_risky_does_not_run(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", risk="L2")
    make_skill(tmp_path, "c-d", risk="L3")
    with opened_run([tmp_path], max_risk="L1") as ctx:
        codes = [error_code(await Workers().run(name, {}, ctx)) for name in ("a-b", "c-d")]

    assert codes == ["denied", "denied"]


async def test_a_skill_of_words_does_not_run(tmp_path: Path) -> None:
    (make_skill(tmp_path, "a-b") / "main.py").unlink()
    with opened_run([tmp_path]) as ctx:
        assert error_code(await Workers().run("a-b", {}, ctx)) == "precondition"


async def test_the_quota_counts_every_call(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")
    with opened_run([tmp_path], quota=Quota(2)) as ctx:
        codes = [error_code(await workers.run("a-b", {}, ctx)) for _ in range(3)]

    assert codes == ["", "", "quota_minute"]


def test_a_quota_is_full_for_a_minute() -> None:
    quota = Quota(2)

    assert [quota.take(s) for s in (0, 30, 59, 60, 61, 90)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


async def test_a_run_that_is_over_runs_nothing(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")
    with opened_run([tmp_path], deadline_s=time.monotonic() - 1) as ctx:
        assert error_code(await workers.run("a-b", {}, ctx)) == "budget"


async def test_a_large_result_is_cut_and_kept_whole(workers: Workers, tmp_path: Path) -> None:
    make_skill(
        tmp_path,
        "a-b",
        "return SkillResult('success', {'rows': [{'n': n, 't': 'x' * 50} for n in range(600)]})",
    )
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {}, ctx)

    note = result.metadata["truncated"]
    assert len(json.dumps(result.output)) <= MAX_OUTPUT
    assert result.output["rows"][0] == {"n": 0, "t": "x" * 50}
    assert len(ctx.results[note["ref"]]["rows"]) == 600
    assert note["bytes"] > MAX_OUTPUT


async def test_what_is_kept_has_an_end_too(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "return SkillResult('success', {'t': ['x' * 999] * 200})")
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {}, ctx)

    assert 0 < len(json.dumps(ctx.results[result.metadata["result"]])) <= MAX_KEPT


async def test_a_skill_calls_another(workers: Workers, tmp_path: Path) -> None:
    make_skill(
        tmp_path,
        "a-b",
        """
        inner = await ctx.call('c-d', {'n': 5})
        return SkillResult('success', {'inner': inner.output, 'status': inner.status})
        """,
    )
    make_skill(tmp_path, "c-d", "return SkillResult('success', {'n': params['n']})", schema=ANY)
    with opened_run([tmp_path], quota=Quota(2)) as ctx:
        result = await workers.run("a-b", {}, ctx)
        again = await workers.run("a-b", {}, ctx)

    assert result.output == {"inner": {"n": 5}, "status": "success"}
    assert ctx.results["R1"] == {"n": 5}
    assert error_code(again) == "quota_minute"


async def test_a_call_never_goes_above_the_caller_or_too_deep(
    workers: Workers, tmp_path: Path
) -> None:
    make_skill(tmp_path, "low-one", "return await ctx.call('high-one', {})")
    make_skill(tmp_path, "high-one", risk="L2")
    make_skill(tmp_path, "deep-one", "return await ctx.call('deep-one', {})")
    with opened_run([tmp_path]) as ctx:
        above = await workers.run("low-one", {}, ctx)
        deep = await workers.run("deep-one", {}, ctx)

    assert error_code(above) == error_code(deep) == "denied"
    assert len(ctx.results) == 2 + 4


async def test_a_nested_skill_ends_with_its_caller(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "await ctx.call('c-d', {})")
    make_skill(tmp_path, "c-d", "while True: pass")
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {}, ctx, 0.4)

    assert error_code(result) == "timeout"
    await within_s(5, all_ended(workers))


async def test_a_changed_skill_does_not_run(workers: Workers, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    with opened_run([tmp_path]) as ctx:
        (folder / "main.py").write_text("async def run(ctx, params): return 1\n")
        result = await workers.run("a-b", {}, ctx)

    assert error_code(result) == "precondition"
    assert "changed" in result.metadata["error"]["detail"]


async def test_modules_beside_main_can_be_imported(workers: Workers, tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    (folder / "table.py").write_text("A = 7\n")
    (folder / "main.py").write_text(
        "from table import A\nfrom serialwatch.records import SkillResult\n"
        "async def run(ctx, params): return SkillResult('success', {'a': A})\n"
    )
    with opened_run([tmp_path]) as ctx:
        assert (await workers.run("a-b", {}, ctx)).output == {"a": 7}


async def test_secrets_of_the_daemon_are_not_inherited(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = "return SkillResult('success', {'env': dict(os.environ)})"
    result = await run_skill(workers, tmp_path, code)

    assert "OPENAI_API_KEY" not in result.output["env"]


async def test_many_at_once(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "return SkillResult('success', {'n': params['n']})", schema=ANY)
    with opened_run([tmp_path]) as ctx:
        results = await asyncio.gather(*(workers.run("a-b", {"n": n}, ctx) for n in range(30)))

    assert [r.output for r in results] == [{"n": n} for n in range(30)]


async def test_the_forkserver_is_started_again_when_it_is_gone(
    workers: Workers, tmp_path: Path
) -> None:
    make_skill(tmp_path, "a-b")
    with opened_run([tmp_path]) as ctx:
        first = workers.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await within_s(5, gone(first))
        results = [await workers.run("a-b", {}, ctx) for _ in range(2)]

    assert results[-1].status == "success"
    assert workers.pid not in (first, None)


async def test_a_forkserver_that_dies_takes_its_skills_along(
    workers: Workers, tmp_path: Path
) -> None:
    told = Told(tmp_path)
    make_skill(tmp_path / "skills", "a-b", TELL + "await asyncio.sleep(60)")
    with opened_run([tmp_path / "skills"], **told.about) as ctx:
        running = asyncio.ensure_future(workers.run("a-b", {}, ctx))
        pid = await within_s(5, told.pid())
        assert workers.pid is not None
        os.kill(workers.pid, signal.SIGKILL)

        assert error_code(await within_s(5, running)) == "crashed"
    await within_s(5, gone(pid))


async def test_stopping_ends_what_runs(tmp_path: Path) -> None:
    told = Told(tmp_path)
    make_skill(tmp_path / "skills", "a-b", TELL + "await asyncio.sleep(60)")
    workers = Workers()
    with opened_run([tmp_path / "skills"], **told.about) as ctx:
        running = asyncio.ensure_future(workers.run("a-b", {}, ctx))
        pid = await within_s(5, told.pid())
        await workers.stop()

        assert error_code(await within_s(5, running)) == "crashed"
        assert error_code(await workers.run("a-b", {}, ctx)) == "crashed"
    await within_s(5, gone(pid))


async def test_a_cancelled_call_leaves_no_process(workers: Workers, tmp_path: Path) -> None:
    told = Told(tmp_path)
    make_skill(tmp_path / "skills", "a-b", TELL + "await asyncio.sleep(60)")
    with opened_run([tmp_path / "skills"], **told.about) as ctx:
        running = asyncio.ensure_future(workers.run("a-b", {}, ctx))
        pid = await within_s(5, told.pid())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await within_s(5, gone(pid))
