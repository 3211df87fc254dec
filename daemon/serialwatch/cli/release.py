"""`serialwatch release`: lend a port to another program, e.g. a flasher."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse

import click

from serialwatch.cli.client import Daemon, find_daemon, part
from serialwatch.cli.errors import CliError, tell
from serialwatch.cli.options import PORT, Number, json_option, socket_option

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have them
_BACK_LIMIT_S = 2.0  # for the daemon to take the port back
_LOOK_S = 0.02


class _WithCommand(click.Command):
    """Knows `--` with nothing behind it, as an empty variable leaves it, from no command at all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[-1:] == ["--"] and not ctx.resilient_parsing:
            raise click.UsageError("no COMMAND is behind --: leave -- out to hold the port", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_WithCommand, context_settings={"ignore_unknown_options": False})
@click.argument("port", type=PORT)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--for", "ttl_s", type=Number(min=1), help="Lend it for so many seconds, and return at once."
)
@click.option("--take-back", is_flag=True, help="End a release, whoever has the port.")
@json_option
@socket_option
def release(
    port: str,
    command: tuple[str, ...],
    ttl_s: float | None,
    take_back: bool,
    as_json: bool,
    socket: str | None,
) -> int:
    """Close PORT so that COMMAND can open it, e.g. `release dut1 -- esptool write_flash …`.

    It is opened again when COMMAND has ended; its exit code is ours. In its environment
    SERIALWATCH_DEVICE is what to open. Without COMMAND the port stays closed until Ctrl-C; with
    --for it does so on its own, until then or --take-back. With --json what COMMAND prints goes to
    standard error.
    """
    if sum((bool(command), ttl_s is not None, take_back)) > 1:
        raise click.UsageError("COMMAND, --for and --take-back exclude each other")
    daemon = find_daemon(socket)
    address = f"/v1/ports/{part(port)}"
    if take_back:
        body = daemon.post(f"{address}/take_back")
        click.echo(json.dumps(body) if as_json else f"{port} is taken back")
        return 0
    if ttl_s is not None:
        body = daemon.post(f"{address}/release", {"ttl_s": ttl_s})
        words = f"{port} is released for {ttl_s:g} s: {body['device']}"
        click.echo(json.dumps(body) if as_json else words)
        return 0
    if command and (code := _why_not(command[0])):
        if as_json:
            click.echo(json.dumps({"port": port, "device": None, "exit_code": code}))
        return code
    with _borrowed(daemon, port, shlex.join(command)) as loan:
        if command:
            code = _run(
                loan, command, lambda pid: _tell_pid(daemon, address, pid), is_quiet=as_json
            )
        else:
            code = _hold(loan)
    _wait_until_back(daemon, port)
    if not command and not loan.is_taken_back:
        _say(f"{port} is taken back")
    if as_json:
        click.echo(json.dumps({"port": port, "device": loan.device, "exit_code": code}))
    return code


class _Loan:
    """An open request: the port is ours as long as its connection is."""

    def __init__(self, port: str, sock: socket.socket, answer: HTTPResponse) -> None:
        self.port = port
        self.sock = sock
        self.is_taken_back = False
        self._answer = answer
        self.device = str(json.loads(answer.readline())["device"])

    def hear(self) -> None:
        """Take what the daemon says: there is something."""
        try:
            row = self._answer.readline()
        except (OSError, ValueError):
            row = b""
        if row and (by := json.loads(row).get("by")):
            self.is_taken_back = True
            _say(f"{self.port} was taken back by {by}")
        elif not row:
            _say(f"the daemon has gone; it leaves {self.port} alone as long as this runs")


@contextlib.contextmanager
def _borrowed(daemon: Daemon, port: str, words: str) -> Iterator[_Loan]:
    with daemon.held(f"/v1/ports/{part(port)}/release", {"command": words}) as (sock, answer):
        try:
            yield _Loan(port, sock, answer)
        finally:
            # What COMMAND has left running may still have the connection open.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _tell_pid(daemon: Daemon, address: str, pid: int) -> None:
    """Tell which process has the port, so that it keeps it when the daemon and we have ended."""
    with contextlib.suppress(CliError):  # it may have ended already, and the port be taken back
        daemon.post(f"{address}/release", {"pid": pid})


def _run(
    loan: _Loan, command: tuple[str, ...], on_start: Callable[[int], None], *, is_quiet: bool
) -> int:
    """Run a command to its end and return its exit code; if quiet, it prints to our stderr."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        # A handler, not SIG_IGN, which the command would inherit. It gets Ctrl-C by itself.
        signal.signal(number, lambda *_: None)
    try:
        # With the connection in its hands the port stays its own, even if we are killed.
        child = subprocess.Popen(
            command,
            env=os.environ | {"SERIALWATCH_DEVICE": loan.device, "SERIALWATCH_PORT": loan.port},
            pass_fds=(loan.sock.fileno(),),
            stdout=2 if is_quiet else None,
        )
    except OSError as exc:
        _say(f"{command[0]}: {exc.strerror}")
        return NOT_FOUND if exc.errno == errno.ENOENT else NOT_EXECUTABLE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: child.send_signal(got))
    ended = os.pidfd_open(child.pid)
    on_start(child.pid)
    try:
        _wait(loan, ended, is_command=True)
    finally:
        os.close(ended)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _hold(loan: _Loan) -> int:
    """Keep the port closed until Ctrl-C, or until somebody takes it back."""
    read, write = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(write, b"x"))
    _say(f"{loan.port} is released: {loan.device}; Ctrl-C takes it back")
    try:
        _wait(loan, read)
    finally:
        if os.isatty(0):
            click.echo(err=True)  # behind ^C
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(read)
        os.close(write)
    return 1 if loan.is_taken_back else 0


def _wait(loan: _Loan, ended: int, *, is_command: bool = False) -> None:
    """Return when `ended` can be read; tell what happens to the loan meanwhile.

    A command goes on when its port is taken back; without one there is nothing to wait for.
    """
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(loan.sock, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if ended in ready:
            return
        loan.hear()
        poll.unregister(loan.sock)
        if loan.is_taken_back and not is_command:
            return


def _wait_until_back(daemon: Daemon, port: str) -> None:
    """Let whatever comes next find the port as if it had never been lent."""
    deadline = time.monotonic() + _BACK_LIMIT_S
    with contextlib.suppress(CliError):  # there is no daemon any more: that was told
        while time.monotonic() < deadline:
            ports = {view["name"]: view["state"] for view in daemon.get("/v1/ports")["ports"]}
            if ports.get(port) not in ("released", "opening"):
                return
            time.sleep(_LOOK_S)


def _why_not(program: str) -> int:
    """Say why a program cannot be run, before anything is released; return 0 if it can."""
    if shutil.which(program) is not None:
        return 0
    is_there = os.path.isfile(program)
    _say(f"{program}: {'is not executable' if is_there else 'no such program'}")
    return NOT_EXECUTABLE if is_there else NOT_FOUND


def _say(text: str) -> None:
    tell(text)
