"""What a reader does while nothing tells yet how the lines of its port end."""

from __future__ import annotations

from live_port import CutPort
from serialwatch.capture.reader import PARTIAL_NS, UNTOLD_NS
from serialwatch.store.log_format import Cut
from serialwatch.store.log_items import Chunk, NewFile, Note, Turned

BEGUN = (Cut.STOP, "lf", 1)  # with which every port begins


def test_a_console_of_crs_has_lines_from_its_first_byte_on() -> None:
    port = CutPort()
    parts = (b"U-Boot SPL 2023.01\rTrying to b", b"oot\rFailed to load\r", b"hang\r")
    for data in parts[:-1]:
        port.prints(data)
        assert port.lines == []
    port.prints(parts[-1])

    assert port.texts == [b"U-Boot SPL 2023.01", b"Trying to boot", b"Failed to load", b"hang"]
    begun, *first, turned, last = port.ring.take()
    assert isinstance(begun, NewFile)
    assert [i.data for i in (*first, last) if isinstance(i, Chunk)] == list(parts)
    assert isinstance(turned, Turned)
    assert turned.chunks == tuple(first)
    assert (turned.eol, turned.seq, turned.next_seq) == ("cr", 1, 4)


def test_what_comes_is_on_its_way_to_the_log_at_once() -> None:
    port = CutPort()
    port.prints(b"U-Boot SPL 2023.01\rTrying")

    assert [i.data for i in port.ring.take() if isinstance(i, Chunk)] == [
        b"U-Boot SPL 2023.01\rTrying"
    ]


def test_what_stood_for_a_quarter_of_a_second_stays_one_line() -> None:
    port = CutPort()
    port.prints(b"U-Boot SPL 2023.01\rTrying")
    port.passes(UNTOLD_NS)
    port.prints(b" to boot\rFailed to load\rhang\r")

    assert port.texts == [b"U-Boot SPL 2023.01\rTrying to boot\rFailed to load\r", b"hang"]
    assert port.files == [BEGUN, (Cut.EOL, "cr", 2)]


def test_an_lf_in_the_first_line_leaves_all_as_it_came() -> None:
    port = CutPort()
    port.prints(b" 10%\r 20")
    port.prints(b"%\r\nready")

    _, *chunks = port.ring.take()
    assert [(i.data, i.seq, i.filled) for i in chunks if isinstance(i, Chunk)] == [
        (b" 10%\r 20", 1, 0), (b"%\r\nready", 1, 8),
    ]  # fmt: skip
    assert port.texts == [b" 10%\r 20%\r"]


def test_what_is_noted_stands_behind_the_bytes_before_it() -> None:
    port = CutPort()
    port.prints(b"U-Boot")
    port.reader.mark(7)

    _, first, second = port.ring.take()
    assert isinstance(first, Chunk)
    assert isinstance(second, Note)


def test_what_may_be_several_lines_is_not_shown_as_one() -> None:
    port = CutPort()
    port.prints(b"U-Boot\rTrying")
    port.passes(PARTIAL_NS)
    assert port.partials == []
    port.passes(UNTOLD_NS)

    assert port.partials == [(1, b"U-Boot\rTrying")]


def test_what_is_shown_is_in_the_log() -> None:
    port = CutPort()
    port.prints(b"login: ")
    port.passes(PARTIAL_NS)

    assert port.partials == [(1, b"login: ")]
    assert [i.data for i in port.ring.take() if isinstance(i, Chunk)] == [b"login: "]


def test_a_port_is_no_console_of_crs_when_lf_ends_its_lines_again() -> None:
    port = CutPort()
    port.prints(b"".join(b"block %d of 900\r" % n for n in range(300)))
    port.prints(b"\r\none\r\ntwo\r\nthree\r\n 1%\r 2%\r\nend\n")

    assert port.texts[-5:] == [b"one", b"two", b"three", b" 1%\r 2%\r", b"end"]
    ends = [i.eol for i in port.ring.take() if isinstance(i, NewFile | Turned)]
    assert ends == ["lf", "cr", "lf"]


def test_a_line_that_nothing_ends_is_closed_with_its_port() -> None:
    port = CutPort()
    port.prints(b"U-Boot\rTrying")
    port.reader._end_file(Cut.LOST)

    assert port.texts == [b"U-Boot\rTrying"]
    assert [type(i).__name__ for i in port.ring.take()] == ["NewFile", "Chunk", "NewFile"]
