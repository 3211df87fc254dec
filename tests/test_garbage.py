"""Garbage as a UART makes it: text is sent bit by bit at one rate and sampled at another."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from own_streams import LOGS, STREAMS
from serialwatch.bundled import bundled_dir
from serialwatch.lines import Splitter
from serialwatch.records import Finding, Hit, Lines
from serialwatch.triggers.detectors.bit_rate import guess
from serialwatch.triggers.detectors.garbage import is_plain
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.view import strip_escapes
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
MS = S // 1000
USUAL = (9600, 19200, 38400, 57600, 74880, 115200, 230400, 460800, 921600, 1500000)
APP = b"".join(
    b"I (%d) app: sensor %d reads %d.%d C, heap %d bytes free\r\n"
    % (300 + 97 * n, n % 7, 20 + n % 9, n % 10, 180_000 - 31 * n)
    for n in range(400)
)
ESP8266_ROM = (
    b"\r\n ets Jan  8 2013,rst cause:2, boot mode:(3,6)\r\n\r\nload 0x4010f000, len 3584, room 16 \r\n"
    b"tail 0\r\nchksum 0xb0\r\ncsum 0xb0\r\nv2843a5ac\r\n~ld\r\n"
)


class Wire:
    """A UART's transmitter: levels by the bit; `clock` is how wrong its crystal is."""

    def __init__(self, data: bytes, bit_rate: float, clock: float = 0.0) -> None:
        self.bit_s = 1 / (bit_rate * (1 + clock))
        self.levels = [1, 1]
        for byte in data:
            self.levels += [0, *(byte >> bit & 1 for bit in range(8)), 1]
        self.levels += [1] * 40

    def at(self, when_s: float) -> int:
        bit = int(when_s / self.bit_s)
        return self.levels[bit] if bit < len(self.levels) else 1

    def sampled(self, bit_rate: float) -> Iterator[int]:
        """Receive it as hardware does: look for a start 16 times a bit, then take the middles."""
        step_s = 1 / bit_rate / 16
        end_s = len(self.levels) * self.bit_s
        now_s = 0.0
        while now_s < end_s:
            if self.at(now_s):
                now_s += step_s
                continue
            if self.at(now_s + 8 * step_s):  # a glitch, no start
                now_s += step_s
                continue
            middle_s = now_s + 8 * step_s
            yield sum(self.at(middle_s + 16 * step_s * (bit + 1)) << bit for bit in range(8))
            has_stop = self.at(middle_s + 16 * step_s * 9)
            now_s = middle_s + 16 * step_s * 9
            while not has_stop and now_s < end_s and not self.at(now_s):
                now_s += step_s


@cache
def wrong(sent_at: int, read_at: int, size: int = 1200, clock: float = 0.004) -> bytes:
    """Return what is read of `size` bytes of APP."""
    return bytes(Wire(APP[:size], sent_at, clock).sampled(read_at))


@cache
def bundled() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Port:
    """A port at a bit rate, its clock, and what was found."""

    def __init__(self, bit_rate: int | None = 115200, matcher: Matcher | None = None) -> None:
        self.watch = PortWatch("dut1", matcher or bundled(), WatchOptions(bit_rate=bit_rate))
        self.splitter = Splitter("lf")
        self.now = 1000 * S
        self.seq = 1
        self.found: list[Finding] = []

    def gets(self, data: bytes, for_s: float = 0.0, parts: int = 20) -> Port:
        """Receive bytes evenly over a time; a line that stands still is handed on, as it is live."""
        size = max(1, -(-len(data) // parts))
        for at in range(0, len(data), size):
            text, count = self.splitter.feed(data[at : at + size])
            if count:
                self.found += self.watch.fed(Lines(self.seq, count, text, self.now, self.now))
                self.seq += count
            if rest := self.splitter.partial():
                self.found += self.watch.partial(self.seq, rest, self.now, self.now)
            self.waits(for_s / parts)
        return self

    def waits(self, seconds: float) -> Port:
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now = min(end, self.now + 50 * MS)
            self.found += self.watch.tick(self.now, self.now)
        return self

    def hits(self) -> list[Hit]:
        return [f for f in self.found if isinstance(f, Hit) and f.severity != "note"]

    def told(self) -> list[tuple[str, str]]:
        return [(hit.trigger, hit.fields.get("likely_bit_rate", "")) for hit in self.hits()]


# The rate


@pytest.mark.parametrize(
    ("sent_at", "read_at"),
    [
        (57600, 115200),
        (74880, 115200),
        (38400, 115200),
        (19200, 115200),
        (9600, 115200),
        (230400, 115200),
        (460800, 115200),
        (115200, 57600),
        (115200, 74880),
        (115200, 9600),
        (115200, 921600),
        (921600, 460800),
        (1500000, 921600),
        (9600, 19200),
    ],
)
def test_the_likely_rate_is_named(sent_at: int, read_at: int) -> None:
    port = Port(read_at).gets(wrong(sent_at, read_at)[:1000], for_s=4)

    assert port.told() == [("link.baud_mismatch", str(sent_at))]
    hit = port.hits()[0]
    words = f"what the board sends is no text: it seems to talk at {sent_at} "
    assert hit.title.startswith(words), "where two rates look alike it names both"
    assert hit.title.endswith(f"the port reads at {read_at}")
    assert hit.seq <= 4, "short lines may be no garbage by themselves"
    assert (hit.severity, hit.knowledge) == ("warning", "link/baud_mismatch")


def test_of_many_pairs_of_rates_nearly_all_are_named_right() -> None:
    rng = random.Random(1)
    verdicts: Counter[str] = Counter()
    for read_at in USUAL:
        for sent_at in USUAL:
            if sent_at == read_at or not 1 / 8 < sent_at / read_at < 7:
                continue
            size = 300 if sent_at < read_at else 300 * sent_at // read_at
            at = rng.randrange(len(APP) - size)
            clock = rng.uniform(-0.01, 0.01)
            sample = bytes(Wire(APP[at : at + size], sent_at, clock).sampled(read_at))[:300]
            named = guess(sample, read_at)
            verdicts["right" if named.bit_rate == sent_at else "wrong"] += 1
            verdicts["noise"] += named.bit_rate is None

    assert verdicts["right"] / (verdicts["right"] + verdicts["wrong"]) > 0.95, verdicts
    assert not verdicts["noise"]


def test_noise_has_no_rate() -> None:
    rng = random.Random(2)
    for _ in range(50):
        mixed = bytes(b if rng.random() < 0.5 else rng.randrange(256) for b in APP[:400])
        flipped = bytes(b ^ 1 << rng.randrange(8) for b in APP[:400])
        for sample in (rng.randbytes(300), mixed, flipped):
            assert guess(sample, rng.choice(USUAL)).bit_rate is None


@pytest.mark.parametrize(("parity", "flip"), [("even", 0), ("odd", 1)])
def test_seven_bits_with_parity_are_told_from_a_wrong_rate(parity: str, flip: int) -> None:
    data = bytes(b | (b.bit_count() + flip & 1) << 7 for b in APP[:600])
    hit = Port().gets(data, for_s=4).hits()[0]

    assert hit.trigger == "link.baud_mismatch"
    assert f"7 data bits and {parity} parity" in hit.title


def test_a_saved_log_is_taken_to_be_read_at_115200() -> None:
    hit = Port(None).gets(wrong(57600, 115200), for_s=4).hits()[0]

    assert "it seems to talk at 57600 bit/s, if this was read at 115200" in hit.title


# When it counts


def test_noise_is_garbage() -> None:
    port = Port().gets(random.Random(3).randbytes(2000), for_s=4)

    assert [hit.trigger for hit in port.hits()] == ["link.garbage"]
    assert "noise, or data that is none" in port.hits()[0].title


def test_garbage_is_told_once_until_text_comes() -> None:
    port = Port().gets(wrong(57600, 115200), for_s=20)
    assert len(port.hits()) == 1

    port.gets(APP[:500], for_s=1).gets(wrong(57600, 115200), for_s=4)
    assert len(port.hits()) == 2


def test_a_burst_before_text_is_a_start_and_no_fault() -> None:
    burst = wrong(74880, 115200, size=60)

    assert Port().gets(burst + b"\r\nI (23) boot: ok\r\n").waits(10).hits() == []
    assert Port().gets(burst).waits(60).hits() == []
    assert Port().gets(bytes(64) + APP[:300], for_s=1).waits(10).hits() == []


def test_a_boot_rom_with_its_own_rate_is_noted_once_however_often_it_speaks() -> None:
    rom = bytes(Wire(ESP8266_ROM, 74880).sampled(115200))
    port = Port()
    for _ in range(30):
        port.gets(rom).waits(0.1).gets(b"\r\n" + APP[:2000], for_s=3)

    assert port.hits() == []
    notes = [f for f in port.found if isinstance(f, Hit) and f.key == "rom"]
    assert [(note.severity, note.trigger) for note in notes] == [("note", "link.baud_mismatch")]


def test_a_board_that_is_stuck_in_such_a_rom_is_told() -> None:
    rom = bytes(Wire(ESP8266_ROM * 4, 74880).sampled(115200))

    assert Port().gets(rom, for_s=4).told() == [("link.baud_mismatch", "74880")]


def test_garbage_right_behind_a_hand_over_needs_little_evidence() -> None:
    boot = b"ets Jun  8 2016 00:22:57\r\n\r\nload:0x3fff0018,len:4\r\nentry 0x4008114c\r\n"
    port = Port().gets(boot + wrong(74880, 115200, size=50)).waits(6)

    assert port.told() == [("link.baud_mismatch", "74880")]
    assert (port.hits()[0].block_first, port.hits()[0].seq) == (4, 5)
    assert Port().gets(b"some line\r\n" + wrong(74880, 115200, size=50)).waits(6).hits() == []


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        (
            b"W (56) rtc_clk_init: Possibly invalid CONFIG_ESP32_XTAL_FREQ setting (40MHz). Detected 26 MHz.",
            "74880",
        ),
        (b"## Switch baudrate to 460800 bps and press ENTER ...", "460800"),
    ],
)
def test_a_line_that_tells_the_rate_is_believed(line: bytes, rate: str) -> None:
    port = Port().gets(line + b"\r\n" + random.Random(4).randbytes(60)).waits(6)

    assert port.told() == [("link.baud_mismatch", rate)]


def test_bytes_that_were_lost_before_us_count_and_so_does_the_clock_of_a_logger() -> None:
    lines = [
        f"23:32:{20 + n}.580 -> I\ufffd\ufffdi\ufffd5\ufffd\ufffd[\ufffdW5\n" for n in range(15)
    ]
    port = Port(None).gets("".join(lines).encode(), parts=1).waits(1)

    assert [(hit.trigger, hit.seq) for hit in port.hits()] == [("link.garbage", 1)]


def test_many_bad_lines_with_good_ones_in_between_are_noise() -> None:
    rng = random.Random(5)
    port = Port()
    for number in range(60):
        port.gets(APP[number * 50 : number * 50 + 40] + b"\r\n", for_s=0.1, parts=1)
        port.gets(bytes(rng.randrange(128, 256) for _ in range(30)) + b"\x01\r\n", parts=1)

    assert [hit.trigger for hit in port.hits()] == ["link.garbage"]
    assert port.hits()[0].title == ("12 of 30 lines are no text, with good lines in between: noise")


@pytest.mark.parametrize("kind", ["flash", "reset"])
def test_garbage_after_a_flash_or_a_reset_is_expected_for_a_while(kind: str) -> None:
    port = Port()
    port.watch.marked(kind, port.now)

    assert port.gets(wrong(57600, 115200), for_s=20).hits() == []
    assert len(port.waits(120).gets(wrong(57600, 115200), for_s=4).hits()) == 1


def test_a_port_that_was_opened_anew_begins_anew() -> None:
    port = Port().gets(wrong(57600, 115200)[:300], for_s=1)
    port.watch.opened(port.now)

    assert port.waits(10).hits() == []


@pytest.mark.parametrize(
    "asked",
    [
        b"root@dut:~# cat /bin/busybox",
        b"=> loady 0x82000000",
        b"## Ready for binary (ymodem) download to 0x80200000 at 115200 bps...",
        b"$ sudo dd if=/dev/mmcblk0 count=8",
    ],
)
def test_a_binary_dump_that_was_asked_for_is_no_garbage(asked: bytes) -> None:
    rng = random.Random(6)
    data = b"".join(rng.randbytes(400) + b"\nusage: %d FILE\n" % n for n in range(60))

    assert Port().gets(asked + b"\r\n" + data, for_s=6).waits(10).hits() == []
    assert Port().gets(b"init: all good\r\n" + data, for_s=6).waits(10).hits() != []


HEALTHY = {
    "umlauts": "Gerät läuft, Größe über 5 µm, Öl ölig, Übertemperatur äußerst möglich\r\n".encode(),
    "latin-1": "Gerät läuft, Größe über 5 µm, Öl ölig\r\n".encode("latin-1"),
    "boxes": "┌──────────┬───────┐\r\n│ ░▒▓█ 42 % │ ✓ ok  │\r\n└──────────┴───────┘\r\n".encode(),
    "chinese": "温度过高警告：当前温度八十五度，系统即将关闭\r\n".encode(),
    "gbk": "温度过高警告：当前温度八十五度，系统即将关闭\r\n".encode("gbk"),
    "japanese": "起動しました。ネットワーク接続を待っています\r\n".encode("shift_jis"),
    "russian": "загрузка завершена, температура в норме\r\n".encode("koi8-r"),
    "cyrillic": "загрузка завершена, температура в норме\r\n".encode("cp1251"),
    "emoji": "🚀🚀 started 🎉🎉 ✅✅✅\r\n".encode(),
    "colours": b"\x1b[0;32mI (312) \x1b[1;31mapp\x1b[0m: \x1b[38;5;208mok\x1b[0m\r\n",
    "bar": b"\x1b[2K\r[####      ] 40 %\x1b[10D\x08\x08 \r\n",
    "bell": b"\a\a\a\a\a\a\r\n",
    "nuls": bytes(40) + b"U-Boot 2023.04 (Apr 12 2023)\r\nDRAM:  512 MiB\r\n",
    "base64": b"f0VMRgEBAQAAAAAAAAAAAAIAKAABAAAA9IgBADQAAAC4SgQAAAIABTQAIAAJACgAHgAdAA==\r\n",
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_healthy_consoles_are_not_garbage(text: bytes) -> None:
    port = Port().gets(text * 40, for_s=10).waits(10)

    assert [h for h in port.hits() if h.trigger.startswith("link.")] == []


def test_lone_nuls_that_keep_a_line_alive_are_not_garbage() -> None:
    port = Port()
    for _ in range(200):
        port.gets(b"\0", parts=1).waits(2)

    assert port.hits() == []


def test_streams_of_real_text_are_not_garbage() -> None:
    for stream in (s for s in STREAMS if s.family != "link"):
        port = Port().gets(stream.data, parts=3).waits(3)
        assert not {h.trigger for h in port.hits()} & {"link.garbage", "link.baud_mismatch"}


# Not of chunks


@pytest.mark.parametrize("seed", range(20))
def test_chunks_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    garbage = wrong(rng.choice((38400, 57600, 74880, 230400)), 115200)
    stream = APP[:300] + garbage[: rng.randrange(2000)] + b"\r\n" + APP[:200] + bytes(20)
    for number in range(30):  # with text in between, and a start that explains it for a while
        stream += b"\r\n" + rng.randbytes(rng.randrange(40)) + b"\r\nsome text %d\r\n" % number
        if rng.random() < 0.05:
            stream += b"U-Boot 2023.01 (Jun 22 2026)\r\n"
    stream += garbage[:900]

    def found(parts: int) -> list[tuple[str, int, str]]:
        port = Port().gets(stream, parts=parts)
        port.now += 10 * S
        port.found += port.watch.tick(port.now, port.now)
        return [(f.trigger, f.seq, f.title) for f in port.found if isinstance(f, Hit)]

    assert found(1) == found(7) == found(500)


def test_plain_and_coloured_text_needs_no_closer_look() -> None:
    text = (APP * 2)[:4096]
    colours = (HEALTHY["colours"] * 80)[:4096]

    assert is_plain(text, text)
    assert is_plain(colours, strip_escapes(colours))


@pytest.mark.parametrize(("sent_at", "family"), [(230400, "uboot"), (460800, "linux")])
def test_a_wrong_rate_whose_lines_look_like_text_by_chance_is_no_noise(
    sent_at: int, family: str
) -> None:
    text = b"".join(p.read_bytes() for p in sorted((LOGS / family).glob("*.log"))[:3])
    data = text.replace(b"\n", b"\r\n")[:12_000]
    port = Port().gets(bytes(Wire(data, sent_at, 0.002).sampled(115200)), for_s=4)

    assert port.told() == [("link.baud_mismatch", str(sent_at))]


def test_noise_says_that_good_lines_are_between_only_if_there_are() -> None:
    rng = random.Random(8)
    good = b"pump: water level is good, next look in a minute\r\n"
    noise = [rng.randbytes(30).replace(b"\n", b"x") + b"\r\n" for _ in range(40)]
    with_text = Port().gets(b"".join(line + good for line in noise[:16]), for_s=4)

    assert "with good lines in between" in with_text.hits()[0].title
    assert all("good lines" not in h.title for h in Port().gets(b"".join(noise), for_s=4).hits())


def test_the_rom_of_an_esp8266_is_not_taken_for_a_faster_sender() -> None:
    for size in (120, 240, 480):
        sent = (ESP8266_ROM * 4)[:size]
        named = guess(bytes(Wire(sent, 74880, 0.003).sampled(115200)), 115200)
        assert (named.bit_rate, named.other) in ((74880, None), (74880, 57600))


def test_a_rate_is_at_most_or_at_least_what_is_told_where_more_cannot_be_seen() -> None:
    slow = guess(bytes(400), 921600)
    fast = Port(57600).gets(wrong(460800, 57600, 12_000)[:1000], for_s=4).hits()[0].title

    assert (slow.bit_rate, slow.other, slow.is_at_most) == (9600, 74880, True)
    assert fast.endswith("it seems to talk at 460800 bit/s or more, the port reads at 57600")
