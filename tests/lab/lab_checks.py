"""What the lab measures, and what each figure has to be."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from lab_bench import CONFIG, LabBench, Printed, missing, since_s
from lab_image import REPO
from lab_pc import wait_for
from lab_qemu import LabError, ModemLines
from run import Figure

DUT1 = "DUT0001"  # its adapter's serial number
SOCKETS = ("1", "2", "4.1", "4.2", "3")  # where it is plugged in, in turn; 4 is the hub
HUB = "4"
CYCLES = 20
CYCLE_S = 3.6  # at least: a port that is lost ten times within 30 s counts as flapping
IDLE = 0.7  # of the emulated core, for daemon and agent
LINES = 40  # that are seen of each cycle
WATCHDOG_S = 10
WATCHDOG_UNIT = f"[Service]\nWatchdogSec={WATCHDOG_S}\n".encode()
HUNG_S = 60
RESTART_LIMIT_S = 300.0
DROP_IN = "/etc/systemd/system/serialwatch.service.d/watchdog.conf"
HANG_LOG = "/run/lab-hang.log"
ACM_LINES = 100
ACM_CYCLES = 3
GADGET_ID = "0525 a4a7"
ECHO_RULES = "/etc/udev/rules.d/61-lab-echo.rules"
GADGET = "iManufacturer=Lab iProduct=Gadget iSerialNumber=ACM0001"
GADGET_BOARD = r"""
exec 3<>/dev/ttyGS0
stty -F /dev/ttyGS0 raw -echo
cat <&3 >>/run/acm.received &
trap "kill $!; exit" TERM
while sleep 0.02; do
    n=$((n + 1))
    printf 'boot %d line %d: all is well\r\n' "$0" "$n" >&3 || exit
done
"""
FAULTS = re.compile(
    r"Traceback|^CRITICAL|^ERROR|never retrieved|never awaited|Unit process|core-dump"
)


def start(bench: LabBench) -> Iterator[Figure]:
    """The first boot after the installation, without an adapter: the rules are compiled."""
    pc = bench.pc
    bench.wait_until_watching()
    ready_s = _unit_time_s(bench, "ActiveEnterTimestampMonotonic")
    started_s = _unit_time_s(bench, "ExecMainStartTimestampMonotonic")
    restarts = int(_of_unit(bench, "NRestarts"))
    yield Figure("first start of the daemon", ready_s - started_s, "s", "", True)
    yield _none("  restarts meanwhile", restarts, "")
    loaded = {line.split()[0] for line in pc.must("cat", "/proc/modules").splitlines()}
    yield _yes("no adapter was ever there: usbserial is loaded", "usbserial" in loaded)
    yield _yes("  and ftdi_sio is not, DeviceAllow works all the same", "ftdi_sio" not in loaded)


def power(bench: LabBench) -> Iterator[Figure]:
    """The PC loses its power while a board prints, and gets it again."""
    pc = bench.pc
    _plugged(bench, "1")
    before = bench.wait_for_lines("dut1", bench.next_line("dut1"))[-1]
    time.sleep(2)  # the log is on disk a second after it was written
    at_s = bench.qemu.power_cycle()
    pc.connect()
    pc.wait_until_up()
    bench.wait_until_ready()
    ready_s = _unit_time_s(bench, "ActiveEnterTimestampMonotonic")
    took_s = ready_s - pc.clocks().mono_s - at_s
    yield Figure("power on -> READY", took_s, "s", "< 90", took_s < 90)
    started_s = _unit_time_s(bench, "ExecMainStartTimestampMonotonic")
    yield Figure("  of it the daemon's own start", ready_s - started_s, "s", "", True)
    lines = _after_restart(bench, before.seq)
    yield _yes("  history is there and goes on", lines[0].seq == before.seq)
    seqs = [line.seq for line in lines]
    yield _none("  numbers used twice", len(seqs) - len(set(seqs)), "")


def plug(bench: LabBench) -> Iterator[Figure]:
    """An adapter that comes and goes, at another USB socket each time."""
    _settled(bench)
    yield from _first_plug(bench)
    board = bench.boards["dut1"]
    began_s = bench.pc.clocks().mono_s + time.monotonic()
    _plug_hub(bench)
    first_line = bench.next_line("dut1") or 1
    first_byte_s, loss_s, opened = [], [], []
    first_mono_s, lost_mono_s = [], []
    kept = 0
    for n in range(CYCLES):
        ends_s = time.monotonic() + CYCLE_S
        clocks = bench.pc.clocks()
        before = bench.next_line("dut1") or 1
        at_s = bench.plug(SOCKETS[n % len(SOCKETS)], DUT1)
        lines = bench.wait_for_lines("dut1", before, LINES)
        first_byte_s.append(lines[0].utc_s - clocks.utc_s - at_s)
        first_mono_s.append(lines[0].utc_s - clocks.utc_s + clocks.mono_s)
        port = bench.port("dut1")
        opened.append(_place(bench, port["opened"]))
        at_s = bench.pull()
        port = bench.wait_for_state("dut1", "absent")
        loss_s.append(since_s(port) - clocks.utc_s - at_s)
        lost_mono_s.append(since_s(port) - clocks.utc_s + clocks.mono_s)
        kept += lines[0].seq == before and lines[-1].boot == board.boot
        time.sleep(max(0.0, ends_s - time.monotonic()))
    lines = bench.printed("dut1", first_line)
    told = bench.pc.kernel_log(began_s)
    attached_s = [entry.mono_s for entry in told if "now attached to ttyUSB" in entry.text]
    pulled_s = [entry.mono_s for entry in told if "now disconnected from ttyUSB" in entry.text]
    own_s = _percentile(_differences(attached_s, first_mono_s), 95)
    most_s, late_s = max(first_byte_s), _percentile(loss_s, 95)
    in_time = sum(s <= 1 for s in first_byte_s)
    goal = f"{CYCLES} of {CYCLES}"
    yield Figure("plug -> first byte: within a second", in_time, "", goal, in_time == CYCLES)
    yield Figure("plug -> first byte: most", most_s, "s", "<= 1", most_s <= 1)
    if most_s > 1:
        told_s = ", ".join(f"{s:.2f}" for s in first_byte_s)
        print(f"    plug -> first byte, in turn: {told_s} s", file=sys.stderr)
    yield Figure("plug -> first byte: median", _percentile(first_byte_s, 50), "s", "", True)
    yield Figure("  since the kernel has the tty: 95 %", own_s, "s", "", True)
    yield Figure("pull -> loss noticed: 95 %", late_s, "s", "<= 0.3", late_s <= 0.3)
    yield Figure("pull -> loss noticed: median", _percentile(loss_s, 50), "s", "", True)
    own_s = _percentile(_differences(pulled_s, lost_mono_s), 95)
    yield Figure("  since the kernel knows of it: 95 %", own_s, "s", "", True)
    yield Figure("  the clocks of both may differ by", clocks.doubt_s * 1000, "ms", "", True)
    places = len(set(opened))
    yield Figure("sockets it was plugged into", places, "", f"{len(SOCKETS)}", places == 5)
    yield Figure("replugs: name and history kept", kept, "", goal, kept == CYCLES)
    boots = {line.boot for line in lines} - {0}
    yield Figure("  boots of the board in one log", len(boots), "", goal, len(boots) == CYCLES)
    yield _none("  lines lost while it was plugged in", missing(lines), "lines")
    told = [e for e in bench.pc.journal(began_s) if e.text.startswith(("WARNING", "INFO dut1"))]
    a_cycle = len(told) / CYCLES
    yield Figure("journal lines a replug", a_cycle, "lines", "<= 3", a_cycle <= 3)


def hub(bench: LabBench) -> Iterator[Figure]:
    """A hub that is pulled with an adapter in it, away for a while, and back in another socket."""
    _plugged(bench, "4.2")
    before = bench.next_line("dut1")
    bench.pull(device="hub")
    bench.wait_for_state("dut1", "absent")
    cpu_s = _cpu_s(bench)
    time.sleep(30)
    idle = (_cpu_s(bench) - cpu_s) / 30 * 100
    yield Figure("adapter away for 30 s: CPU, emulated", idle, "% of a core", "", True)
    bench.qemu.plug_hub("3")
    bench.plug("3.2", DUT1)
    lines = bench.wait_for_lines("dut1", before)
    follows = [line.seq for line in lines] == list(range(before, before + len(lines)))
    yield _yes("hub pulled, back elsewhere: history goes on", follows)
    bench.pull(device="hub")
    bench.wait_for_state("dut1", "absent")


def lines_kept(bench: LabBench) -> Iterator[Figure]:
    """What the adapter is told about DTR and RTS, and what is lost, at reload and restart."""
    pc = bench.pc
    at_s = time.time()
    _plugged(bench, "1")
    told = bench.qemu.modem_lines(at_s)
    raised = sum(1 for line in told if line.dtr)
    yield Figure("first open: DTR raised, by the kernel", raised, "times", ">= 1", raised >= 1)

    before, at_s = bench.next_line("dut1"), time.time()
    bench.configure(CONFIG + '\n[port.more]\ndevice = "usbid:0403:6001:DUT0002"\n')
    pc.must("systemctl", "reload", "serialwatch")
    wait_for(lambda: bench.port("more"), "the new port")
    lines = bench.wait_for_lines("dut1", bench.next_line("dut1"), LINES)
    yield _none("reload: orders to DTR and RTS", len(bench.qemu.modem_lines(at_s)), "orders")
    yield _none("  lines lost", missing(bench.printed("dut1", before)), "lines")
    bench.configure(CONFIG)
    pc.must("systemctl", "reload", "serialwatch")

    _shorten_watchdog(bench)  # from here on: `hang` need not wait so long
    before, at_s = bench.next_line("dut1"), time.time()
    pc.must("systemctl", "restart", "serialwatch", limit_s=RESTART_LIMIT_S)
    lines = _after_restart(bench, before)
    told = bench.qemu.modem_lines(at_s)
    yield _none("restart: DTR or RTS lowered", _lowered(told), "times")
    yield Figure("  lines that the board printed meanwhile", missing(lines), "lines", "", True)


def kill(bench: LabBench) -> Iterator[Figure]:
    """kill -9 while the board prints."""
    pc = bench.pc
    _plugged(bench, "1")
    before, at_s, clocks = bench.next_line("dut1"), time.time(), pc.clocks()
    bench.wait_for_lines("dut1", before, LINES)
    began_s = clocks.mono_s + time.monotonic()
    pc.must("systemctl", "kill", "--kill-who=main", "--signal=KILL", "serialwatch")
    lines = _after_restart(bench, before)
    told = [entry for entry in pc.journal(began_s) if "Main process exited" in entry.text]
    killed_s = told[0].mono_s - clocks.mono_s + clocks.utc_s if told else 0.0  # as UTC of the PC
    whole = [line for line in lines if line.number]
    holes = [(a, b) for a, b in itertools.pairwise(whole) if missing([a, b])]
    kept = [line.utc_s for line in whole if line.utc_s < killed_s]
    if not told or not kept:
        raise LabError(f"kill -9: {len(told)} ends in the journal, {len(kept)} lines before it")
    tail_s = killed_s - max(kept)
    gap_s = _longest_gap_s(lines)
    yield Figure("kill -9: no capture for", gap_s, "s", "< 40", gap_s < 40)
    yield Figure("  lines that the board printed meanwhile", missing(lines), "lines", "", True)
    yield Figure("  last line kept is older than the end by", tail_s, "s", "< 0.3", tail_s < 0.3)
    yield Figure("  holes in the log", len(holes), "", "<= 1", len(holes) <= 1)
    crashed = _cuts(bench).count("CRASH")
    yield Figure("  recorded as ends by a crash", crashed, "", ">= 1", crashed >= 1)
    yield _none("  DTR or RTS lowered", _lowered(bench.qemu.modem_lines(at_s)), "times")


def hang(bench: LabBench) -> Iterator[Figure]:
    """The loop stands still while every other thread goes on."""
    pc = bench.pc
    _plugged(bench, "1")
    if _of_unit(bench, "WatchdogUSec") != f"{WATCHDOG_S}s":  # `lines` was not asked for
        _shorten_watchdog(bench)
        pc.must("systemctl", "restart", "serialwatch", limit_s=RESTART_LIMIT_S)
        _after_restart(bench, 1)
    before, clocks = bench.next_line("dut1"), pc.clocks()
    main = _of_unit(bench, "MainPID")
    delayed = f"inject=epoll_wait,epoll_pwait:delay_exit={HUNG_S * 1_000_000}"
    at_s = time.monotonic()
    strace = pc.start(
        "strace", "-qq", "-p", main, "-e", delayed, "-o", "/dev/null", output=HANG_LOG
    )
    told = wait_for(
        lambda: [e for e in pc.journal(clocks.mono_s + at_s) if "Watchdog timeout" in e.text],
        "the watchdog",
        HUNG_S,
    )
    pc.must("bash", "-c", f"kill {strace}")  # who is held by it cannot even be killed
    lines = _after_restart(bench, before)
    gap_s = _longest_gap_s(lines)
    noticed_s = told[0].mono_s - clocks.mono_s - at_s
    goal_s = WATCHDOG_S + 2.0
    name = f"loop hangs -> watchdog ({WATCHDOG_S} s) acts"
    yield Figure(name, noticed_s, "s", f"<= {goal_s:g}", noticed_s <= goal_s)
    yield Figure("loop hangs -> capturing again", gap_s, "s", "< 40", gap_s < 40)
    where = any("most recent call first" in e.text for e in pc.journal(clocks.mono_s + at_s))
    yield _yes("  the journal says where it hung", where)
    pc.must("rm", DROP_IN)
    pc.must("systemctl", "daemon-reload")


def twins(bench: LabBench) -> Iterator[Figure]:
    """Two adapters that say that they are the same."""
    pc = bench.pc
    _plugged(bench, "1")
    before = bench.next_line("dut1")
    bench.plug("2", DUT1, "dut2")
    wait_for(lambda: pc.run("test", "-e", "/dev/ttyUSB1").code == 0, "the second adapter")
    time.sleep(3)  # a second is what it takes to see that a link leads elsewhere
    lines = bench.printed("dut1", before)
    yield _none("a twin comes: lines lost of the first", missing(lines), "lines")
    yield _none("  bytes that the twin got", len(bench.boards["dut2"].received), "B")
    pc.must("systemctl", "restart", "serialwatch", limit_s=RESTART_LIMIT_S)
    port = bench.wait_for_state("dut1", "broken", "up")
    problem = port["problem"]
    yield _yes("both there at start: refused", port["state"] == "broken")
    named = sum(f"usb-0:{socket}:1.0" in problem for socket in ("1", "2"))
    yield Figure("  by-path links named to use instead", named, "", "2", named == 2)
    links = re.findall(r"/dev/serial/by-path/[\w.:+-]+", problem)
    bench.configure(
        CONFIG + "".join(f'\n[port.twin{n}]\ndevice = "{link}"\n' for n, link in enumerate(links))
    )
    pc.must("systemctl", "reload", "serialwatch")
    up = [bench.wait_for_state(f"twin{n}", "up", "broken")["state"] for n in range(len(links))]
    yield Figure("  used, they are", up.count("up"), "up", "2", up == ["up", "up"])
    bench.configure(CONFIG)
    pc.must("systemctl", "reload", "serialwatch")
    bench.pull("dut2")


def acm(bench: LabBench) -> Iterator[Figure]:
    """A USB CDC board in software, in the PC itself."""
    pc = bench.pc
    pc.must("modprobe", "dummy_hcd")
    back, rules = _acm_cycles(bench)
    goal = f"{ACM_CYCLES} of {ACM_CYCLES}"
    yield Figure("ttyACM: there and back, nothing lost", back, "", goal, back == ACM_CYCLES)
    got = int(pc.must("stat", "-c", "%s", "/run/acm.received"))
    yield _none("  bytes that it got, though nobody sent any", got, "B")
    yield _yes("  ModemManager is told to leave it alone", "ID_MM_PORT_IGNORE=1" in rules)
    pc.put(ECHO_RULES, _echo_rule().encode())
    pc.must("udevadm", "control", "--reload")
    pc.must("modprobe", "-r", "cdc_acm")
    pc.must("modprobe", "cdc_acm")
    pc.must("udevadm", "settle")
    back, _ = _acm_cycles(bench)
    yield Figure("  with the rule against echo", back, "", goal, back == ACM_CYCLES)
    more = int(pc.must("stat", "-c", "%s", "/run/acm.received")) - got
    yield _none("  bytes that it got then", more, "B")


def rights(bench: LabBench) -> Iterator[Figure]:
    """Who may look and who may write."""
    pc = bench.pc
    _plugged(bench, "1")
    mode = pc.must("stat", "-c", "%A %U:%G", "/run/serialwatch/serialwatch.sock").strip()
    yield _yes(f"socket {mode}", mode == "srw-rw---- serialwatch:serialwatch")
    yield _yes("member of serialwatch: looks", _as(bench, "viewer", "ports") == 0)
    yield _yes("  sending is refused", _as(bench, "viewer", "send", "dut1", "viewer") != 0)
    yield _yes("anybody else: looking is refused", _as(bench, "outsider", "ports") != 0)
    board = bench.boards["dut1"]
    already = len(board.received)
    yield _yes("operator: sends", _as(bench, "operator", "send", "dut1", "hello") == 0)
    wait_for(lambda: board.received[already:].endswith((b"\r", b"\n")), "what was sent, to its end")
    got = bytes(board.received[already:])
    yield _yes("  the board gets that and nothing else", got.rstrip(b"\r\n") == b"hello")
    board.asked += len(got) if got.rstrip(b"\r\n") == b"hello" else 0
    link = "/run/serialwatch/tty/dut1"
    pty = pc.must("readlink", "-f", link).strip()
    yield _yes("port's pty: a member of serialwatch opens it", _opens(bench, "viewer", link))
    others = [path for path in (link, pty) if _opens(bench, "outsider", path)]
    yield _none("  anybody else: by its link, or the pty behind it", len(others), "", others)
    lend = ("release", "dut1", "--", "true")
    yield _yes("release: refused to a member of serialwatch", _as(bench, "viewer", *lend) != 0)
    before, at_s = bench.next_line("dut1"), time.time()
    yield _yes("  operator: runs a command", _as(bench, "operator", *lend) == 0)
    bench.wait_for_state("dut1", "up")
    bench.wait_for_lines("dut1", before, LINES)
    yield _none("  DTR or RTS lowered", _lowered(bench.qemu.modem_lines(at_s)), "times")


def unit(bench: LabBench) -> Iterator[Figure]:
    """What systemd says of the unit."""
    pc = bench.pc
    text = pc.must("systemd-analyze", "security", "--no-pager", "serialwatch.service")
    match = re.search(r"exposure level.*: ([\d.]+)", text)
    exposure = float(match[1]) if match else 10.0
    yield Figure("systemd-analyze security", exposure, "", "< 2", exposure < 2)
    bench.wait_until_ready()
    for name, wanted, text in (
        ("[o]pener.py", "-20", "the opener goes before others"),
        ("[s]erialwatch.agent", "19", "the agent after them"),
    ):
        asked = ("sh", "-c", f"ps -o ni= -p $(pgrep -o -f '{name}')")
        wait_for(lambda asked=asked, wanted=wanted: pc.run(*asked).out.strip() == wanted, text)
        yield _yes(f"  {text}", True)
    limits = pc.must("sh", "-c", "cat /proc/$(pgrep -o -f '[s]erialwatch.agent')/limits")
    yield _yes(
        "  and it may not go before them", re.search(r"nice priority +0 +0 ", limits) is not None
    )
    there = pc.run("systemctl", "cat", "ModemManager", "brltty").code == 0
    yield _yes("neither ModemManager nor brltty", not there)


def doctor(bench: LabBench) -> Iterator[Figure]:
    """`serialwatch doctor` on a PC that is set up well."""
    ended = bench.pc.run("serialwatch", "doctor", "--json")
    if ended.code not in (0, 1):
        raise LabError(f"serialwatch doctor: exit {ended.code}: {ended.err}")
    findings = json.loads(ended.out)["findings"]
    wrong = [f"{each['check']}: {each['text']}" for each in findings if each["state"] == "wrong"]
    yield Figure("doctor: looked at", len(findings), "things", ">= 5", len(findings) >= 5)
    yield _none("  found wrong", len(wrong), "things", wrong)


def journal(bench: LabBench) -> Iterator[Figure]:
    """What the daemon has said of itself since the PC was switched on."""
    faults = [entry.text for entry in bench.pc.journal() if FAULTS.search(entry.text)]
    yield _none("journal: faults of our own", len(faults), "lines", faults)


CHECKS: dict[str, Callable[[LabBench], Iterator[Figure]]] = {
    "start": start,
    "plug": plug,
    "hub": hub,
    "unit": unit,
    "doctor": doctor,
    "acm": acm,
    "lines": lines_kept,
    "hang": hang,
    "kill": kill,
    "rights": rights,
    "journal": journal,
    "power": power,
    "twins": twins,
    "journal-2": journal,
}


def _plug_hub(bench: LabBench) -> None:
    """Plug in the hub; while the kernel gets to know it, it looks at no other socket."""
    bench.qemu.plug_hub(HUB)
    found = ("sh", "-c", "grep -qs 'USB Hub' /sys/bus/usb/devices/*/product && udevadm settle")
    wait_for(lambda: bench.pc.run(*found).code == 0, "the hub")


def _first_plug(bench: LabBench) -> Iterator[Figure]:
    """Plug an adapter in for the first time: the kernel has to load its driver."""
    ends_s = time.monotonic() + CYCLE_S
    clocks = bench.pc.clocks()
    before = bench.next_line("dut1") or 1
    at_s = bench.plug(SOCKETS[0], DUT1)
    lines = bench.wait_for_lines("dut1", before, LINES)
    told = bench.pc.kernel_log(clocks.mono_s + at_s)
    known_s = [entry.mono_s for entry in told if "SerialNumber: " in entry.text]
    loaded_s = [entry.mono_s for entry in told if "new interface driver ftdi_sio" in entry.text]
    first_s = lines[0].utc_s - clocks.utc_s - at_s
    yield Figure("first plug -> first byte", first_s, "s", "", True)
    load_s = loaded_s[0] - known_s[0] if loaded_s and known_s else 0.0
    yield Figure("  of it the kernel loads the driver", load_s, "s", "", True)
    bench.pull()
    bench.wait_for_state("dut1", "absent")
    time.sleep(max(0.0, ends_s - time.monotonic()))


def _acm_cycles(bench: LabBench) -> tuple[int, str]:
    """Let the software board come and go.

    Return how often all of its lines were there, and what udev says of it.
    """
    pc = bench.pc
    back, told = 0, ""
    for n in range(1, ACM_CYCLES + 1):
        before = bench.next_line("acm") or 1
        pc.must("modprobe", "g_serial", *GADGET.split())
        board = pc.start("bash", "-c", GADGET_BOARD, str(n), output="/run/acm.log")
        lines = bench.wait_for_lines("acm", before, ACM_LINES)
        back += lines[0].seq == before and missing(lines) == 0
        told = pc.must("udevadm", "info", "-q", "property", "/dev/ttyACM0")
        pc.must("bash", "-c", f"kill {board}")
        wait_for(lambda: pc.run("rmmod", "g_serial").code == 0, "the gadget's end")
        bench.wait_for_state("acm", "absent")
    return back, told


def _echo_rule() -> str:
    """Return the rule that our udev rules leave to the user, for the software board."""
    text = (REPO / "systemd/60-serialwatch.rules").read_text()
    lines = re.findall(r"^#(ACTION.*cdc_acm.*\n)#(.*RUN.*\n)", text, re.MULTILINE)
    if len(lines) != 1:
        raise LabError("systemd/60-serialwatch.rules: no rule against echo")
    return re.sub(r"echo \w+ \w+", f"echo {GADGET_ID}", "".join(lines[0]))


def _plugged(bench: LabBench, socket: str) -> None:
    """See that dut1 is up, plugged in at `socket` if it was not."""
    if bench.port("dut1").get("state") == "up":
        return
    before = bench.next_line("dut1") or 1
    bench.plug(socket, DUT1)
    bench.wait_for_lines("dut1", before)


def _settled(bench: LabBench) -> None:
    """See that the PC has done what it does after its start."""
    bench.pc.run("systemctl", "is-system-running", "--wait", limit_s=120)
    bench.wait_until_watching()

    def is_idle() -> bool:
        before_s = _cpu_s(bench)
        time.sleep(1)
        return _cpu_s(bench) - before_s < IDLE

    wait_for(is_idle, "an idle daemon", 120)


def _shorten_watchdog(bench: LabBench) -> None:
    bench.pc.put(DROP_IN, WATCHDOG_UNIT)
    bench.pc.must("systemctl", "daemon-reload")


def _after_restart(bench: LabBench, first: int) -> list[Printed]:
    """Return the lines from `first` on once the board has printed some to a new daemon."""
    bench.wait_until_ready()
    bench.wait_for_state("dut1", "up")
    now = wait_for(lambda: bench.next_line("dut1"), "line numbers", 120)
    bench.wait_for_lines("dut1", now, LINES)
    return bench.printed("dut1", first)


def _longest_gap_s(lines: Sequence[Printed]) -> float:
    whole = [line.utc_s for line in lines if line.number]
    return max(after - before for before, after in itertools.pairwise(whole))


def _lowered(told: list[ModemLines]) -> int:
    return sum(1 for line in told if line.dtr is False or line.rts is False)


def _cuts(bench: LabBench) -> list[str]:
    """Return why each file of dut1's log ended."""
    code = (
        "from pathlib import Path; from serialwatch.store.log_format import *\n"
        "for p in sorted(Path('/var/lib/serialwatch/log/dut1').glob('*.idx')):\n"
        "    data = p.read_bytes()[HEADER_BYTES:]\n"
        "    for at in range(0, len(data), RECORD_BYTES):\n"
        "        r = unpack_record(data[at:at + RECORD_BYTES])\n"
        "        if r and r.kind is Kind.CUT: print(Cut(r.aux).name)"
    )
    return bench.pc.must("/opt/serialwatch/bin/python", "-c", code).split()


def _unit_time_s(bench: LabBench, name: str) -> float:
    """Return a time of the unit on the PC's monotonic clock."""
    return int(_of_unit(bench, name)) / 1e6


def _of_unit(bench: LabBench, name: str) -> str:
    return bench.pc.must("systemctl", "show", "--value", "-p", name, "serialwatch").strip()


def _cpu_s(bench: LabBench) -> float:
    return int(_of_unit(bench, "CPUUsageNSec")) / 1e9


def _place(bench: LabBench, tty: str) -> str:
    """Return where in the PC an adapter is plugged in."""
    name = tty.rpartition("/")[2]
    return bench.pc.must("readlink", "-f", f"/sys/class/tty/{name}/device").split("/")[-2]


def _as(bench: LabBench, user: str, *argv: str) -> int:
    return bench.pc.run("runuser", "-u", f"lab-{user}", "--", "serialwatch", *argv).code


def _opens(bench: LabBench, user: str, path: str) -> bool:
    """Tell whether a user may open a tty, without doing anything to it."""
    code = f"import os; os.open({path!r}, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)"
    return bench.pc.run("runuser", "-u", f"lab-{user}", "--", "python3", "-c", code).code == 0


def _differences(before_s: Sequence[float], after_s: Sequence[float]) -> list[float]:
    if len(before_s) != len(after_s):
        raise LabError(f"the kernel's log tells of {len(before_s)} events, not {len(after_s)}")
    return [after - before for before, after in zip(before_s, after_s, strict=True)]


def _percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that so many of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _yes(name: str, is_so: bool) -> Figure:
    return Figure(name, float(is_so), "", "1", is_so)


def _none(name: str, count: int, unit: str, which: Sequence[str] = ()) -> Figure:
    for each in which:
        print(f"    {each}", file=sys.stderr)
    return Figure(name, count, unit, "0", count == 0)
