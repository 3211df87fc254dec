"""Answers that come row by row, as the daemon and as other programs send them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from serialwatch.cli.row_answer import RowAnswer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def answered(data: bytes) -> list[bytes]:
    """Return the rows of an answer."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        answer = RowAnswer(ours, "GET", "/v1/logs/dut1?n=5", None)
        try:
            return list(answer.rows())
        finally:
            answer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_rows_are_whole_however_they_are_cut() -> None:
    data = HEAD + chunk(b"one\ntw") + chunk(b"o\n") + chunk(b"\nthree") + b"0\r\n\r\n"

    assert answered(data) == [b"one", b"two", b"", b"three"]


def test_an_answer_of_known_length_and_one_that_ends_with_its_connection_are_read() -> None:
    assert answered(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none\ntwo\n") == [b"one", b"tw"]
    assert answered(b"HTTP/1.0 200 OK\r\n\r\none\ntwo\n") == [b"one", b"two"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\xff" * 100_000,
        HEAD + b"5\r\none",
        HEAD + chunk(b"one\n"),
        HEAD + b"-5\r\n",
        HEAD + b"zz\r\n",
    ],
)
def test_what_is_no_whole_answer_is_told(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        answered(data)


def test_a_request_has_its_body_and_its_length() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
        answer = RowAnswer(ours, "POST", "/v1/ask", '{"a": "\N{DEGREE SIGN}"}')
        request = theirs.recv(65536)
        assert (answer.status, answer.read()) == (404, b"{}")
        answer.close()
    head, _, body = request.partition(b"\r\n\r\n")

    assert head.splitlines()[0] == b"POST /v1/ask HTTP/1.1"
    assert b"Content-Length: %d" % len(body) in head
    assert json.loads(body) == {"a": "\N{DEGREE SIGN}"}


@pytest.mark.parametrize("source", ["saved_logs", "log_source"])
def test_the_logs_command_starts_without_what_takes_long_to_import(source: str) -> None:
    code = f"""
import sys
import serialwatch.cli.main, serialwatch.cli.logs, serialwatch.cli.{source}
heavy = "aiohttp asyncio http.client logging pydantic rich sqlite3 ssl serialwatch.records"
print(*(name for name in heavy.split() if name in sys.modules))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert shown.stdout == b"\n"
