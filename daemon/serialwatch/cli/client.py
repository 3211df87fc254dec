"""The daemon as commands talk to it: HTTP over its Unix socket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.row_answer import RowAnswer
from serialwatch.spelling import Json

if TYPE_CHECKING:
    import http.client

SYSTEM_SOCKET = Path("/run/serialwatch/serialwatch.sock")
ANSWER_LIMIT_S = 30.0

Parameters = Mapping[str, str | int | None]  # what is None is left out


class Daemon:
    """A daemon that answers at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
            sock.settimeout(ANSWER_LIMIT_S)
            sock.connect(str(self.path))
        except OSError as exc:
            sock.close()
            raise _not_there(self.path, exc) from exc
        return sock


def find_daemon(named: str | None) -> Daemon:
    """Return the daemon at `named`, else the user's own, else the system's."""
    if named:
        return Daemon(Path(named))
    places = socket_places(os.environ, os.geteuid())
    return Daemon(next((place for place in places[:-1] if _is_served(place)), places[-1]))


def socket_places(environ: Mapping[str, str], uid: int) -> list[Path]:
    """Return where a daemon's socket may be, the user's own first."""
    if given := environ.get("SERIALWATCH_SOCKET"):
        return [Path(given)]
    if uid == 0:
        return [SYSTEM_SOCKET]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/tmp/serialwatch-{uid}"  # noqa: S108 -- the daemon makes it 0700
    return [Path(runtime) / "serialwatch" / "serialwatch.sock", SYSTEM_SOCKET]


def part(text: str | int) -> str:
    """Return `text` as one part of an address."""
    return quote(str(text), safe="")


def _is_served(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(place))
        except OSError:
            return False
    return True


def _with(address: str, parameters: Parameters | None) -> str:
    given = {name: value for name, value in (parameters or {}).items() if value is not None}
    if not given:
        return address
    return f"{address}?{urlencode(given, errors='surrogateescape')}"


def _refused(text: bytes) -> CliError:
    try:
        error = json.loads(text)["error"]
        message, hint, code = str(error["message"]), str(error["hint"]), error["code"]
    except (ValueError, KeyError, TypeError):
        return CliError("the daemon answered what is no answer of serialwatch's")
    exit_code = WRONG_USE if code == "bad_request" else FAULT
    return CliError(f"{message}: {hint}" if hint else message, exit_code, str(code))


def _not_there(path: Path, exc: OSError) -> CliError:
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
