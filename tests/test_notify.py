import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_cable import within_s
from bench_cli import Cli
from serialwatch.notify import command as module
from serialwatch.notify.command import CommandNotifier, Notification


async def test_the_program_gets_the_report_on_stdin(tmp_path: Path) -> None:
    fifo = tmp_path / "told"
    notifier = CommandNotifier(["sh", "-c", f"cat > {fifo}.new; mv {fifo}.new {fifo}"], "error")
    notifier.offer(Notification("critical", {"title": "an oops; `$(reboot)`"}))
    task = asyncio.create_task(notifier.run())
    try:
        async with asyncio.timeout(10):
            while not fifo.exists():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert json.loads(fifo.read_text()) == {"title": "an oops; `$(reboot)`"}


async def test_what_is_not_severe_enough_is_not_told() -> None:
    notifier = CommandNotifier(["true"], "error")

    notifier.offer(Notification("warning", {}))

    assert notifier._queue.empty()


async def test_a_hanging_program_drops_the_oldest_and_counts() -> None:
    notifier = CommandNotifier(["true"], "error")

    for n in range(module.WAITING + 5):
        notifier.offer(Notification("error", {"n": n}))

    assert notifier.dropped == 5
    assert notifier._queue.get_nowait().body == {"n": 5}


async def test_a_program_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.05)
    notifier = CommandNotifier(["sleep", "1000"], "error")

    await within_s(5, notifier._tell(b"{}"))

    assert "killed" in caplog.text


async def test_a_program_that_is_missing_raises_for_its_supervisor() -> None:
    notifier = CommandNotifier(["/does/not/exist"], "error")
    notifier.offer(Notification("error", {}))

    with pytest.raises(FileNotFoundError):
        await within_s(5, notifier.run())


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands where no daemon is."""
    return Cli(tmp_path / "sw", capsys)


def configured(tmp_path: Path, *commands: Sequence[str]) -> str:
    path = tmp_path / "serialwatch.toml"
    path.write_text("".join(f"[[notify]]\ncommand = {json.dumps(c)}\n" for c in commands))
    return str(path)


def test_a_test_goes_through_each_program_and_one_that_fails_is_told(
    tmp_path: Path, cli: Cli
) -> None:
    got = tmp_path / "got"
    path = configured(
        tmp_path,
        ["sh", "-c", f"cat > {got}; echo sent"],
        ["sh", "-c", "cat; echo; echo 'no \x1b[2Jroute' >&2; exit 3"],
        ["/does/not/exist"],
    )
    told = cli("notify", "test", path)
    body = json.loads(got.read_text())

    assert told.code == 1
    assert [line.split()[0] for line in told.out.splitlines()] == ["good", "failed", "failed"]
    assert r"ended with status 3; it said: no \x1b[2Jroute" in told.out
    assert "/does/not/exist: cannot be started: No such file or directory" in told.out
    assert (body["port"], body["is_test"], body["report"]["severity"]) == ("test", True, "error")


def test_programs_that_all_take_the_test_are_good(tmp_path: Path, cli: Cli) -> None:
    path = configured(tmp_path, ["cat"])
    told = cli("notify", "test", "-c", path, "--json")
    (program,) = json.loads(told.out)["programs"]

    assert told.code == 0
    assert (program["command"], program["ok"], program["problem"]) == (["cat"], True, "")


def test_a_program_that_hangs_fails_the_test(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.05)
    told = cli("notify", "test", configured(tmp_path, ["sleep", "1000"]))

    assert told.code == 1
    assert "sleep 1000: still running after 0 s, killed" in told.out


def test_who_tells_nobody_is_told_how_to(tmp_path: Path, cli: Cli) -> None:
    told = cli("notify", "test", configured(tmp_path))

    assert (told.code, told.out) == (2, "")
    assert "nobody is told of reports; write there e.g." in told.err
