import bz2
import gzip
import lzma
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serialwatch.saved.log import NoLogError, is_log, logs_below, open_log

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = "U-Boot 2024.01 (board naïve)\r\nDRAM:  512 MiB\r\n=> \r\n"

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


def saved(tmp_path: Path, data: bytes, name: str = "a.log") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "encoded",
    [
        TEXT.encode("utf-8"),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),  # with a mark
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.encode("utf-32-le"),
        TEXT.encode("utf-32-be"),
    ],
    ids=[
        *("utf-8", "utf-8 mark", "utf-16 mark", "utf-16-le", "utf-16-be", "utf-16-be mark"),
        *("utf-32 mark", "utf-32-le", "utf-32-be"),
    ],
)
def test_text_is_read_as_utf8_whatever_it_was_saved_as(tmp_path: Path, encoded: bytes) -> None:
    with open_log(saved(tmp_path, encoded)) as log:
        assert log.read() == TEXT.encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_wide_characters_are_cut_nowhere(tmp_path: Path, size: int) -> None:
    text = "temperature 21 °C, ok 👍\r\n" * 3
    with open_log(saved(tmp_path, text.encode("utf-16"))) as log:
        parts = list(iter(lambda: log.read(size), b""))

    assert b"".join(parts) == text.encode()
    assert {len(part) for part in parts[:-1]} == {size}


def test_latin1_and_noise_are_left_as_they_are(tmp_path: Path) -> None:
    data = "Gerät läuft\n".encode("latin-1") + bytes(range(256)) + b"\0\0\0\0ok\n"
    with open_log(saved(tmp_path, data)) as log:
        assert log.read() == data


@pytest.mark.parametrize("name", PACKERS)
def test_what_is_packed_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    with open_log(saved(tmp_path, PACKERS[name](TEXT.encode("utf-16")), "boot.txt")) as log:
        assert log.read(6) == TEXT.encode()[:6]
        log.seek(0)
        assert log.read() == TEXT.encode()
        assert 0 < log.read_bytes <= log.stored_bytes


@pytest.mark.parametrize("name", PACKERS)
def test_several_packed_parts_in_one_file_are_one_log(tmp_path: Path, name: str) -> None:
    pack = PACKERS[name]
    with open_log(saved(tmp_path, pack(b"one\n") + pack(b"two\n"))) as log:
        assert log.read() == b"one\ntwo\n"


@pytest.mark.parametrize("name", PACKERS)
def test_packed_data_that_ends_early_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    text = b"".join(b"line %d\n" % n for n in range(300_000))
    path = saved(tmp_path, PACKERS[name](text)[:-200])

    with open_log(path) as log:
        first = log.read()
        damage = log.damage
        log.seek(0)
        again = b"".join(iter(lambda: log.read(4096), b""))

    assert damage == f"damaged: the file ends before its {name} data does"
    assert first == again
    assert text.startswith(first)
    assert len(first) > len(text) / 2


@pytest.mark.parametrize("name", PACKERS)
def test_packed_data_of_which_nothing_is_left_is_damaged(tmp_path: Path, name: str) -> None:
    packed = bytearray(PACKERS[name](os.urandom(3000)))
    packed[6:60] = b"\xff" * 54

    with pytest.raises(OSError, match=f"damaged {name} data: "):
        open_log(saved(tmp_path, bytes(packed)))


def test_what_stands_behind_packed_data_does_not_hide_it(tmp_path: Path) -> None:
    with open_log(saved(tmp_path, gzip.compress(b"U-Boot\n") + b"written later\n")) as log:
        assert log.read() == b"U-Boot\n"
        assert log.damage.startswith("damaged gzip data: ")


def test_a_pipe_can_be_read_twice() -> None:
    printf = subprocess.Popen(["printf", "boot\\n"], stdout=subprocess.PIPE)
    with printf, open_log(f"/dev/fd/{printf.stdout.fileno()}") as log:
        assert log.read() == b"boot\n"
        log.seek(0)
        assert log.read() == b"boot\n"


def test_a_device_is_not_opened() -> None:
    master, slave = pty.openpty()
    try:
        with pytest.raises(OSError, match="a device, not a saved log"):
            open_log(os.ttyname(slave))
    finally:
        os.close(master)
        os.close(slave)
    with open_log("/dev/null") as log:
        assert log.read() == b""


def test_a_folder_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    saved(tmp_path, b"Booting Linux\n", "a.log")
    scandir = os.scandir

    def refused(path: str) -> object:  # root may read what nobody may
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    found = logs_below(tmp_path)

    assert [str(exc.filename) for exc in found.unread] == [str(tmp_path / "secret")]
    assert found.logs == (tmp_path / "a.log",)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"\x7fELF\x02\x01\x01", "a program"),
        (b"PK\x03\x04\x14\0\0\0", "a zip archive"),
        (gzip.compress(b"SQLite format 3\0", mtime=0), "a database"),
        (b"\x04\x22\x4d\x18\x64\x40", "packed by lz4"),
        (gzip.compress(b"boot.log".ljust(257, b"\0") + b"ustar\0", mtime=0), "a tar archive"),
    ],
)
def test_what_no_console_prints_is_refused_alone_and_skipped_in_a_folder(
    tmp_path: Path, start: bytes, told: str
) -> None:
    (tmp_path / "boot.log").write_bytes(start)

    with pytest.raises(NoLogError, match=f"no log: it is {told}"):
        open_log(tmp_path / "boot.log")
    assert logs_below(tmp_path).logs == ()


def test_a_folder_is_searched_in_order_and_binaries_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("z.log", "b/deep/putty", "b/a.txt", ".git/x.log", ".hidden.log"):
        saved(tmp_path, b"Booting Linux\n", name)
    saved(tmp_path, gzip.compress(TEXT.encode()), "old.log.1.gz")
    saved(tmp_path, TEXT.encode("utf-16"), "wide.log")
    saved(tmp_path, b"\x7fELF\x02\x01\x01" + bytes(100), "vmlinux")
    saved(tmp_path, b"# about these logs\n", "README.md")
    saved(tmp_path, gzip.compress(os.urandom(500)), "image.gz")
    os.symlink(tmp_path / "z.log", tmp_path / "link.log")
    os.symlink(tmp_path, tmp_path / "b" / "loop")
    os.mkfifo(tmp_path / "pipe.log")

    found = logs_below(tmp_path)

    def names(paths: tuple[Path, ...]) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in paths]

    assert names(found.logs) == ["b/a.txt", "b/deep/putty", "old.log.1.gz", "wide.log", "z.log"]
    assert names(found.skipped) == ["README.md", "image.gz", "vmlinux"]


def test_a_console_log_with_noise_in_it_is_a_log(tmp_path: Path) -> None:
    assert is_log(saved(tmp_path, b"\x00\xf8\x80\xfe" * 90 + b"\r\nboot\r\n" * 20, "com3.log"))
    assert is_log(saved(tmp_path, b"\x1b[31mred\x1b[0m\tB\xe4ume\b\b\r\n" * 20, "com4"))
