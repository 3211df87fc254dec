"""`serialwatch demo`: the daemon at work on boards without hardware."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import click
from rich.text import Text

from serialwatch.cli.client import Daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.report import about_of
from serialwatch.cli.show_report import report_lines
from serialwatch.cli.tables import SEVERITY_STYLES, console, safe, shorten, width_of
from serialwatch.cli.times import local, local_now
from serialwatch.config import run_dir
from serialwatch.demo.boards import BOARDS
from serialwatch.demo.uboot import CRASH, QEMU, UBoot, missing
from serialwatch.service.places import make_folder
from serialwatch.triggers.patterns import LineView
from serialwatch.wire import Json, report_from_json, utc_ns

START_S = 20.0
LIMIT_S = 55.0  # of `--once`
BOOT_S = 8.0  # that U-Boot's own complaints take to settle
REAL = "uboot"
_KINDS = "hit: a rule found a line · incident: wakes the agent · report: what it found out"
REAL_FAULT = frozenset({"uboot.sync_abort"})


@dataclass(slots=True)
class Expected:
    """A report that must come, and what has come of it."""

    port: str
    triggers: frozenset[str]
    incident: int = 0  # 0: not opened yet
    is_reported: bool = False


@dataclass(slots=True)
class Show:
    """What is on the screen and what is still awaited."""

    socket: Path
    is_usual: bool  # the socket is where other commands look for one
    expected: list[Expected]
    real: UBoot | None
    opened_s: dict[int, float] = field(default_factory=dict)  # by incident: monotonic
    settled: set[int] = field(default_factory=set)  # incidents of the real board
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, words: str, style: str = "") -> None:
        """Print one line, cut to the terminal."""
        out = console()
        width = width_of(out)
        out.print(Text(shorten(words, width) if width else words, style))

    def happened(self, at_utc_ns: int, port: str, what: str, words: str, style: str = "") -> None:
        """Print one event."""
        at = local(at_utc_ns).strftime("%H:%M:%S.%f")[:-3]
        self.say(f"{at}  {port:<11}  {what:<9} {safe(words)}", style)


@click.command()
@click.option("--once", is_flag=True, help="End by itself once all reports are in.")
def demo(once: bool) -> int:
    """Watch boards without hardware: three emulated ones, and a real U-Boot if QEMU is there.

    In a terminal it stays until Ctrl-C. With no terminal, or --once, it ends with exit code 0 when
    every report is in, and with 1 if one is missing.
    """
    ends = once or not sys.stdout.isatty()
    code = asyncio.run(_until_signal(_demo(ends=ends)))
    return 0 if code == 128 + signal.SIGINT and not ends else code


async def _until_signal(showing: Coroutine[None, None, int]) -> int:
    """Run until the end or a signal, also that of a closed window; the boards are put away."""
    task = asyncio.create_task(showing, name="demo")
    got: list[int] = []

    def stop(number: int) -> None:
        if not got:  # a second one must not cut short the tidying up
            got.append(number)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not got:
            raise
        return 128 + got[0]


async def _demo(*, ends: bool) -> int:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serialwatch-demo-")))
        go = await stack.enter_async_context(_boards(folder))
        devices = {board.name: str(folder / board.name) for board in BOARDS}
        real, why_not = await stack.enter_async_context(_real_board(folder))
        if real is not None:
            devices[REAL] = real.device
        socket, is_usual = _socket(folder)
        show = Show(
            socket,
            is_usual,
            [Expected(b.name, triggers) for b in BOARDS for triggers in b.faults],
            real,
        )
        if real is not None:
            show.expected.append(Expected(REAL, REAL_FAULT))
        _introduce(show, devices, why_not)
        await stack.enter_async_context(_daemon(folder, devices, socket))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))
        )
        events = await stack.enter_async_context(
            session.ws_connect("http://serialwatch/v1/events", heartbeat=10)
        )
        for port in Daemon(socket).get("/v1/ports")["ports"]:
            if port["state"] == "up":
                show.happened(time.time_ns(), port["name"], "up", port["device"])
        go()
        following = asyncio.create_task(_follow(show, events), name="events")
        typing = asyncio.create_task(_crash(show, session), name="type into U-Boot")
        try:
            return await _until_over(show, following, typing, ends=ends)
        finally:
            for task in (following, typing):
                task.cancel()
            await asyncio.gather(following, typing, return_exceptions=True)


async def _until_over(
    show: Show, following: asyncio.Task[None], typing: asyncio.Task[None], *, ends: bool
) -> int:
    finished = asyncio.create_task(show.done.wait())
    limit_s = LIMIT_S if ends else None
    await asyncio.wait({finished, following}, timeout=limit_s, return_when="FIRST_COMPLETED")
    finished.cancel()
    if typing.done() and typing.exception() is not None:
        show.say(f"U-Boot: {typing.exception()}", "yellow")
    if following.done():
        raise CliError("the daemon of the demo went away", 1)
    await asyncio.to_thread(_print_report, show)
    absent = [e for e in show.expected if not e.is_reported]
    for e in absent:
        show.say(f"missing: a report of {' or '.join(sorted(e.triggers))} on {e.port}", "red")
    if ends:
        if not absent:
            show.say("")
            show.say("All reports are in. In a terminal, `serialwatch demo` stays and can be used.")
        return 1 if absent else 0
    _say_what_to_try(show)
    await asyncio.wait({following})
    return 0


def _introduce(show: Show, devices: dict[str, str], why_not: str) -> None:
    about = {board.name: board.text for board in BOARDS}
    about[REAL] = "a real U-Boot in QEMU"
    for name, device in devices.items():
        shown = os.path.realpath(device)
        show.say(f"board   {name:<11}  {about[name]:<38}  {shown}")
    if show.real is None:
        show.say(f"        (no real board: {why_not})", "dim")
    show.say(_KINDS, "dim")


def _say_what_to_try(show: Show) -> None:
    name = REAL if show.real else BOARDS[0].name
    incident = next((e.incident for e in show.expected if e.port == name and e.incident), 1)
    lines = [] if show.is_usual else [f"export SERIALWATCH_SOCKET={show.socket}"]
    commands = (f"report {incident}", f"attach {name}", f"logs {name} -f", "incidents", "ports")
    lines += [f"{command_name()} {command}" for command in commands]
    out = console()  # these lines are not cut: they are there to be copied
    out.print(Text("\nIn another terminal:"))
    for line in lines:
        out.print(Text(f"  {line}"))
    out.print(Text("Ctrl-C ends the demo."))


def command_name() -> str:
    """Return how a person calls serialwatch here: after `make demo` it is not on the PATH."""
    if shutil.which("serialwatch"):
        return "serialwatch"
    called = Path(sys.argv[0]).absolute()  # another terminal is in another folder
    if called.name == "serialwatch":
        return shlex.quote(str(called))
    return f"{shlex.quote(sys.executable)} -m serialwatch"


def _print_report(show: Show) -> None:
    """Print the report of the real board, or of the first one, as `serialwatch report` does."""
    wanted = [e for e in show.expected if e.is_reported]
    if not wanted:
        return
    chosen = next((e for e in wanted if e.port == REAL), wanted[0])
    daemon = Daemon(show.socket)
    report = report_from_json(daemon.get(f"/v1/reports/{chosen.incident}"))
    about = about_of(daemon, daemon.get(f"/v1/incidents/{chosen.incident}"))
    out = console()
    out.print(Text())
    for line in report_lines(report, about, local_now(), width_of(out)):
        out.print(line)


async def _follow(show: Show, events: aiohttp.ClientWebSocketResponse) -> None:
    async for message in events:
        if message.type is aiohttp.WSMsgType.TEXT:
            _tell(show, json.loads(message.data))


def _tell(show: Show, event: Json) -> None:
    data, port, at = event["data"], event["port"], utc_ns(event["at"])
    match event["kind"]:
        case "port.state":
            show.happened(at, port, data["state"], data["problem"] or data["device"])
        case "hit" if data["severity"] != "note":
            style = SEVERITY_STYLES.get(data["severity"], "")
            text = _without_prefix(data["text"]) or data["title"]
            show.happened(at, port, "hit", f"{data['trigger']}  {text}", style)
        case "incident.opened":
            show.opened_s[data["id"]] = time.monotonic()
            show.happened(at, port, "incident", f"#{data['id']} {data['title']}")
            _expect(show, data)
        case "incident.changed":
            _expect(show, data)
            if data["is_settled"] and port == REAL:
                show.settled.add(data["id"])
        case "report.published":
            _reported(show, at, port, data)
        case _:
            pass


def _without_prefix(line: str) -> str:
    """Return a line without the time stamps before it: in 80 columns there is no room for them."""
    return LineView(line.encode()).shortest().decode(errors="replace").strip()


def _expect(show: Show, incident: Json) -> None:
    """Find out which awaited report this incident will have; its root cause may still change."""
    triggers = {hit["trigger"] for hit in incident["hits"]} | {incident["trigger"]}
    for e in show.expected:
        if e.port == incident["port"] and e.triggers & triggers and not e.incident:
            e.incident = incident["id"]


def _reported(show: Show, at: int, port: str, report: Json) -> None:
    took = ""
    if report["revision"] == 1 and (opened := show.opened_s.get(report["incident"])):
        took = f" (+{time.monotonic() - opened:.1f} s)"
    words = f"#{report['incident']}.{report['revision']}{took} {report['title']}"
    show.happened(at, port, "report", words, "bold")
    for e in show.expected:
        if e.incident == report["incident"] and report["revision"] > 1:
            e.is_reported = True
    if all(e.is_reported for e in show.expected):
        show.done.set()


async def _crash(show: Show, session: aiohttp.ClientSession) -> None:
    """Switch U-Boot on, stop its autoboot, and make it read where nothing is mapped."""
    if show.real is None:
        return
    seen = bytearray()
    async with session.ws_connect(f"http://serialwatch/v1/attach/{REAL}?read_only=1") as ws:
        await show.real.power_on()
        await _seen(ws, seen, b"stop autoboot")
        await _send(show, "")
        await _seen(ws, seen, b"=> ")
        await _boot_is_reported(show)
        await _send(show, CRASH)
        await _seen(ws, seen, b"stop autoboot")
        await _send(show, "")


async def _boot_is_reported(show: Show) -> None:
    """Wait until what the boot itself complained about is an incident of its own."""
    with suppress(TimeoutError):
        async with asyncio.timeout(BOOT_S):
            while not show.settled:
                await asyncio.sleep(0.1)


async def _seen(ws: aiohttp.ClientWebSocketResponse, seen: bytearray, marker: bytes) -> None:
    while marker not in seen:
        message = await ws.receive(timeout=20)
        if message.type is aiohttp.WSMsgType.BINARY:
            seen += message.data
        elif message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError("the console was closed")
    del seen[: seen.index(marker) + len(marker)]


async def _send(show: Show, keys: str) -> None:
    await asyncio.to_thread(
        Daemon(show.socket).post, f"/v1/ports/{REAL}/send", {"text": keys + "\r"}
    )
    if keys:
        show.happened(time.time_ns(), REAL, "typed", keys, "dim")


@asynccontextmanager
async def _boards(folder: Path) -> AsyncIterator[Callable[[], None]]:
    """Run the emulated boards; calling what it yields lets them begin."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serialwatch.demo.emulator", str(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            await process.stdout.readline()
        yield partial(process.stdin.write, b"go\n")
    finally:
        process.stdin.close()
        await _ended(process)


@asynccontextmanager
async def _real_board(folder: Path) -> AsyncIterator[tuple[UBoot | None, str]]:
    """Start the real board; where that cannot be, yield why."""
    why_not = missing()
    board = UBoot()
    try:
        if not why_not:
            try:
                await board.start(folder)
            except TimeoutError:
                why_not = f"{QEMU} does not answer"
            except OSError as exc:
                why_not = str(exc)
        yield None if why_not else board, why_not
    finally:
        await board.stop()


@asynccontextmanager
async def _daemon(folder: Path, devices: dict[str, str], socket: Path) -> AsyncIterator[None]:
    """Run `serialwatch run` on these devices until the end."""
    tables = [
        f'[daemon]\nstate_dir = "{folder / "state"}"\nrun_dir = "{socket.parent}"\n',
        *(f'[port.{n}]\ndevice = "{d}"\n' for n, d in devices.items()),
    ]
    config = folder / "serialwatch.toml"
    config.write_text("".join(tables))
    log = folder / "daemon.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serialwatch", "run", "-c", str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        await _listens(socket, process, log)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await _ended(process)


async def _listens(socket: Path, process: asyncio.subprocess.Process, log: Path) -> None:
    end = time.monotonic() + START_S
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(socket)
            writer.close()
            return
        if process.returncode is not None or time.monotonic() > end:
            raise CliError(f"the daemon did not start:\n{log.read_text()[-2000:]}", 1)
        await asyncio.sleep(0.02)


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _socket(folder: Path) -> tuple[Path, bool]:
    """Return the user's usual socket if no daemon has it, else one in `folder`."""
    usual = run_dir() / "serialwatch.sock"
    try:
        make_folder(usual.parent, None)
        if not usual.exists() and os.access(usual.parent, os.W_OK):
            return usual, True
    except OSError:
        pass
    return folder / "run" / "serialwatch.sock", False
