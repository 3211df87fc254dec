"""The daemon as commands talk to it: HTTP over its Unix socket."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError, tell
from serialwatch.cli.row_answer import RowAnswer
from serialwatch.spelling import Json

if TYPE_CHECKING:
    import http.client
    from asyncio.trsock import TransportSocket

SYSTEM_SOCKET = Path("/run/serialwatch/serialwatch.sock")
ANSWER_LIMIT_S = 30.0
_TURN_S = 10  # to connect to a daemon to which many connect

Parameters = Mapping[str, str | int | None]  # what is None is left out


_PEER = struct.Struct("3i")  # pid, uid, gid of whoever listens


class Daemon:
    """A daemon that answers at `path`; `owner`: only one of this uid or root's is talked to."""

    def __init__(self, path: Path, owner: int | None = None) -> None:
        self.path = path
        self._owner = owner

    def get(self, address: str, parameters: Parameters | None = None) -> Json:
        """Ask for something.

        Raises:
            CliError: there is no daemon, or it refuses.

        """
        return self._ask("GET", _with(address, parameters))

    def post(
        self, address: str, body: Mapping[str, Any] | None = None, *, is_long: bool = False
    ) -> Json:
        """Have something done, which may take long; raises as `get` does."""
        return self._ask("POST", address, json.dumps(body or {}), is_long=is_long)

    def rows(self, address: str, parameters: Parameters | None = None) -> Iterator[Json]:
        """Ask for something that comes row by row, perhaps without end; raises as `get` does."""
        # A quiet board may stay quiet for days.
        yield from self._rows("GET", _with(address, parameters), None, limit_s=None)

    def post_rows(self, address: str, body: Mapping[str, Any]) -> Iterator[Json]:
        """Have something done that is told row by row, with a row every few seconds at least."""
        yield from self._rows("POST", address, json.dumps(body), limit_s=ANSWER_LIMIT_S)

    @contextmanager
    def held(
        self, address: str, body: Mapping[str, Any]
    ) -> Iterator[tuple[socket.socket, http.client.HTTPResponse]]:
        """Ask for something that lasts as long as its connection; raises as `get` does."""
        from http.client import HTTPException

        connection = self._connect()
        try:
            connection.request("POST", address, json.dumps(body))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _refused(answer.read())
            assert connection.sock is not None
            connection.sock.settimeout(None)
        except (OSError, HTTPException) as exc:
            connection.close()
            raise _broken(self.path, exc) from exc
        except CliError:
            connection.close()
            raise
        with closing(connection), closing(answer):
            yield connection.sock, answer

    def check(self, sock: socket.socket | TransportSocket) -> None:
        """Raise CliError if whoever listens at the far end of `sock` must not be talked to."""
        if self._owner is not None and (uid := listener(sock)[1]) not in (0, self._owner):
            raise CliError(_strange(self.path, uid))

    def _rows(
        self, method: str, address: str, body: str | None, limit_s: float | None
    ) -> Iterator[Json]:
        with self._open() as sock:
            try:
                answer = RowAnswer(sock, method, address, body)
                with closing(answer):
                    if answer.status >= 400:
                        raise _refused(answer.read())
                    sock.settimeout(limit_s)
                    yield from map(json.loads, answer.rows())
            except OSError as exc:
                raise _broken(self.path, exc) from exc

    def _ask(
        self, method: str, address: str, body: str | None = None, *, is_long: bool = False
    ) -> Json:
        from http.client import HTTPException

        connection = self._connect()
        try:
            if is_long:
                connection.sock.settimeout(None)
            connection.request(method, address, body)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as exc:
            raise _broken(self.path, exc) from exc
        finally:
            connection.close()
        if answer.status >= 400:
            raise _refused(text)
        return cast(Json, json.loads(text))

    def _connect(self) -> http.client.HTTPConnection:
        from http.client import HTTPConnection

        connection = HTTPConnection("localhost", timeout=ANSWER_LIMIT_S)
        connection.sock = self._open()
        return connection

    def _open(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(sock, self.path)
            sock.settimeout(ANSWER_LIMIT_S)
            self.check(sock)
        except OSError as exc:
            sock.close()
            raise _not_there(self.path, exc) from exc
        except CliError:
            sock.close()
            raise
        return sock


def find_daemon(named: str | None, *, is_quiet: bool = False) -> Daemon:
    """Return the daemon at `named`, else the user's own, else the system's.

    What somebody else serves in the user's place is told, unless `is_quiet`, and left alone.
    """
    if named:
        return Daemon(Path(named))
    uid = os.geteuid()
    *own, last = socket_places(os.environ, uid)
    for place in own:
        by = _served_by(place)
        if by in (0, uid):
            return Daemon(place, uid)
        if by is not None and not is_quiet:
            tell(_strange(place, by))
    return Daemon(last)


def socket_places(environ: Mapping[str, str], uid: int) -> list[Path]:
    """Return where a daemon's socket may be, the user's own first."""
    if given := environ.get("SERIALWATCH_SOCKET"):
        return [Path(given)]
    if uid == 0:
        return [SYSTEM_SOCKET]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/tmp/serialwatch-{uid}"  # noqa: S108 -- who listens is looked at
    return [Path(runtime) / "serialwatch" / "serialwatch.sock", SYSTEM_SOCKET]


def part(text: str | int) -> str:
    """Return `text` as one part of an address."""
    return quote(str(text), safe="")


def listener(sock: socket.socket | TransportSocket) -> tuple[int, int]:
    """Return pid and uid of who listens at the far end of a connection, as the kernel knows."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(peer)
    return pid, uid


def _served_by(place: Path) -> int | None:
    """Return the uid of who listens there, None if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            _connect(probe, place)
            return listener(probe)[1]
        except BlockingIOError:
            return os.geteuid()  # it takes nobody now; who it is can be asked when it does
        except OSError:
            return None


def _connect(sock: socket.socket, path: Path) -> None:
    """Connect, and wait for a turn while many do: with a timeout of Python's it would fail."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("2l", _TURN_S, 0))
    sock.connect(str(path))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(struct.calcsize("2l")))


def _with(address: str, parameters: Parameters | None) -> str:
    given = {name: value for name, value in (parameters or {}).items() if value is not None}
    if not given:
        return address
    return f"{address}?{urlencode(given, errors='surrogateescape')}"


def _strange(place: Path, uid: int) -> str:
    return (
        f"{place}: not used: uid {uid} listens there, it is not a daemon of yours "
        "(--socket PATH uses one all the same)"
    )


def _refused(text: bytes) -> CliError:
    try:
        error = json.loads(text)["error"]
        message, hint, code = str(error["message"]), str(error["hint"]), error["code"]
    except (ValueError, KeyError, TypeError):
        return CliError("the daemon answered what is no answer of serialwatch's")
    exit_code = WRONG_USE if code == "bad_request" else FAULT
    return CliError(f"{message}: {hint}" if hint else message, exit_code, str(code))


def _not_there(path: Path, exc: OSError) -> CliError:
    if isinstance(exc, BlockingIOError):
        return CliError(f"{path}: the daemon takes no connection for {_TURN_S} s: it hangs")
    if not isinstance(exc, (PermissionError, FileNotFoundError, ConnectionRefusedError)):
        return CliError(f"{path}: no socket of a daemon: {exc.strerror or exc}")
    if isinstance(exc, PermissionError):
        return CliError(
            f"{path}: permission denied: an administrator can add you to group serialwatch "
            "(then log in again)",
            code="forbidden",
        )
    service = " (the service: `systemctl start serialwatch`)" if path == SYSTEM_SOCKET else ""
    return CliError(
        f"no daemon at {path}: start it with `serialwatch run --port NAME=DEVICE`{service}, "
        "or look at saved logs with `serialwatch logs PORT --state DIR`",
        code="no_daemon",
    )


def _broken(path: Path, exc: Exception) -> CliError:
    if isinstance(exc, TimeoutError):
        return CliError(f"the daemon at {path} has not answered within {ANSWER_LIMIT_S:.0f} s")
    return CliError(f"the daemon at {path} has closed the connection")
