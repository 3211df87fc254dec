import asyncio
import gzip
import io
import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from bench_cli import COMMAND
from own_streams import STREAMS, Stream
from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.skills.registry import Registry, load_skills
from serialwatch.bundled import bundled_dir
from serialwatch.cli.main import run_cli
from serialwatch.saved.analysis import Analysis, analyze
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules

OOPS = (
    b"[   12.000001] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010\n"
    b"[   12.000201] pc : foo_irq+0x14/0x80\n"
    b"[   12.000301] ---[ end trace 0000000000000000 ]---\n"
)


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


@cache
def skills() -> Registry:
    return load_skills([bundled_dir("skills")])


@cache
def knowledge() -> Knowledge:
    return load_knowledge([bundled_dir("config/knowledge")])


def analyzed(matcher: Matcher, data: bytes) -> Analysis:
    return asyncio.run(analyze(io.BytesIO(data), matcher, skills(), knowledge()))


def test_lines_are_the_files_own(matcher: Matcher) -> None:
    found = analyzed(matcher, b"[    1.000000] hello\n" * 9 + OOPS)

    (incident,) = found.incidents
    assert (incident.trigger, incident.first_seq, found.lines) == ("linux.oops", 10, 12)
    assert {e.seq for c in found.report.conclusions for e in c.evidence} <= {10, 11, 12}


def test_a_line_of_many_pieces_is_one_line_of_the_file(matcher: Matcher) -> None:
    found = analyzed(matcher, b"x" * 100_000 + b"\n" + b"y" * 70_000 + b"\n" + OOPS)

    assert found.incidents[0].first_seq == 3
    assert found.lines == 5


def test_a_file_without_an_end_of_line_is_read_to_its_end(matcher: Matcher) -> None:
    found = analyzed(matcher, b"[    1.000000] hello\n" + OOPS.split(b"\n", maxsplit=1)[0])

    assert found.incidents[0].first_seq == 2


def test_lines_that_end_with_cr_alone_are_lines(matcher: Matcher) -> None:
    found = analyzed(matcher, b"[    1.000000] hello\r" * 9 + OOPS.replace(b"\n", b"\r"))

    assert found.incidents[0].first_seq == 10


def test_nuls_tell_no_bit_rate_where_nobody_knows_that_they_were_received(matcher: Matcher) -> None:
    (incident,) = analyzed(matcher, bytes(3000)).incidents

    assert incident.trigger == "link.garbage"
    assert incident.title.endswith(
        "3000 NULs, as from a line that is held low or a file that was not written"
    )


def test_an_empty_file_has_nothing(matcher: Matcher) -> None:
    found = analyzed(matcher, b"")

    assert (found.lines, found.boots, found.incidents, found.report) == (0, 0, (), None)


def test_faults_far_apart_in_the_boards_time_are_two_incidents(matcher: Matcher) -> None:
    overrun = b"[  500.000000] ttyS1: 12 input overrun(s)\n"
    found = analyzed(matcher, OOPS + b"[  400.000000] fine again\n" + overrun)

    assert [i.trigger for i in found.incidents] == ["linux.oops", "linux.tty_input_overrun"]


def test_each_boot_has_its_own_time_however_short_the_log(matcher: Matcher) -> None:
    start = b"[    0.000000] Linux version 6.6.30 (ci@bench) (gcc 13.2.0) #1 SMP\n"
    later = b"[  500.000000] ttyS1: 12 input overrun(s)\n[  600.000000] reboot: Restarting system\n"
    boot = start + OOPS + b"[  400.000000] fine again\n" + later
    found = analyzed(matcher, boot * 3)

    assert [i.trigger for i in found.incidents] == ["linux.oops", "linux.tty_input_overrun"] * 3
    assert found.boots == 3


@pytest.mark.parametrize("stream", STREAMS, ids=[s.id for s in STREAMS])
def test_our_own_streams_give_what_they_must(matcher: Matcher, stream: Stream) -> None:
    found = analyzed(matcher, stream.data)

    assert found.boots == stream.boots
    if not stream.expected:
        assert [i for i in found.incidents if i.severity != "note"] == []
        return
    seen = {hit.trigger for i in found.incidents for hit in i.hits}
    assert stream.expected[0] in seen
    first = stream.first_fault_line
    assert any(
        abs(i.first_seq - first) <= 5 or i.block_first <= first <= i.last_seq
        for i in found.incidents
    )
    assert found.report.claims.dropped == 0


def test_json_is_one_object_a_file_in_the_agreed_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(OOPS)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"all is well\n"))

    assert run_cli(["analyze", f"{tmp_path}/a.log", f"{tmp_path}/b.log.gz", "--json"]) == 0

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(first) == ["file", "lines", "boots", "incidents", "report"]
    assert list(first["incidents"][0]) == [
        "rule", "severity", "title", "first_line", "block_first", "last_line", "count", "fields",
    ]  # fmt: skip
    assert (first["incidents"][0]["rule"], first["incidents"][0]["first_line"]) == ("linux.oops", 1)
    assert (second["lines"], second["incidents"], second["report"]) == (1, [], None)


def test_fail_on_turns_a_fault_into_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(OOPS)

    assert run_cli(["analyze", f"{tmp_path}/a.log", "--fail-on", "critical", "--json"]) == 1
    assert run_cli(["analyze", f"{tmp_path}/a.log", "--json"]) == 0


def test_a_missing_file_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["analyze", f"{tmp_path}/none.log"]) == 2
    assert (
        capsys.readouterr().err == f"serialwatch: {tmp_path}/none.log: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(OOPS)[:12], "damaged: the file ends before its gzip data does"),
        (gzip.compress(OOPS)[:20] + b"\xff" * 40, "damaged gzip data: "),
        (b"\xfd7zXZ\x00 ...", "damaged: the file ends before its xz data does"),
        (b"\x28\xb5\x2f\xfd ...", "damaged: the file ends before its zstd data does"),
    ],
    ids=["cut", "garbled", "xz", "zstd"],
)
def test_a_packed_log_that_cannot_be_unpacked_is_told_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str
) -> None:
    (tmp_path / "a.log").write_bytes(data)

    assert run_cli(["analyze", f"{tmp_path}/a.log"]) == 2
    assert capsys.readouterr().err.startswith(f"serialwatch: {tmp_path}/a.log: {words}")


@pytest.mark.parametrize("packed", [gzip.compress(OOPS)[:-4], gzip.compress(OOPS)[:-8] + bytes(8)])
def test_a_packed_log_is_analyzed_as_far_as_it_goes_and_its_damage_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bytes
) -> None:
    (tmp_path / "a.log").write_bytes(packed)

    assert run_cli(["analyze", "--json", f"{tmp_path}/a.log"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [i["rule"] for i in found["incidents"]] == ["linux.oops"]
    assert found["damage"].startswith("damaged")
    assert err == (
        f"serialwatch: {tmp_path}/a.log: {found['damage']}; what could be unpacked is analyzed\n"
    )


def test_a_gzip_file_is_known_by_its_content_and_not_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "packed.log").write_bytes(gzip.compress(OOPS))
    (tmp_path / "text.gz").write_bytes(OOPS)

    assert run_cli(["analyze", f"{tmp_path}/packed.log", f"{tmp_path}/text.gz", "--json"]) == 0
    packed, text = map(json.loads, capsys.readouterr().out.splitlines())
    assert packed["lines"] == text["lines"] == 3


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_like_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    reader, writer = os.pipe()
    os.write(writer, gzip.compress(OOPS) if packed else OOPS)
    os.close(writer)

    assert run_cli(["analyze", f"/dev/fd/{reader}"]) == 0
    os.close(reader)
    assert "kernel NULL pointer" in capsys.readouterr().out


def test_an_empty_name_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["analyze", ""]) == 2
    assert capsys.readouterr().err == "serialwatch: '': No such file or directory\n"


def test_the_verdict_counts_also_when_nobody_reads_the_report(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(OOPS)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "analyze", f"{tmp_path}/a.log", "--fail-on", "error"],
        stdout=writer, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")
