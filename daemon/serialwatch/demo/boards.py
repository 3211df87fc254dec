"""What the emulated boards print: streams written for the demo, as such boards print them.

A stream is a list of steps: text to print at wire speed, or a pause in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Step = str | float

_LINUX_BOOT = """\
U-Boot SPL 2023.10 (Mar 04 2026 - 09:12:44 +0000)
Trying to boot from MMC1


U-Boot 2023.10 (Mar 04 2026 - 09:12:44 +0000)

CPU:   Allwinner H5 (SUN50I)
Model: Bench Gateway rev C
DRAM:  1 GiB
MMC:   mmc@1c0f000: 0
Hit any key to stop autoboot:  0
Starting kernel ...

[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x410fd034]
[    0.000000] Linux version 6.6.21-gateway (build@ci) #1 SMP PREEMPT
[    0.000000] Machine model: Bench Gateway rev C
[    0.000000] Kernel command line: console=ttyS0,115200 root=/dev/mmcblk0p2 rootwait panic=10
[    0.151202] printk: console [ttyS0] enabled
[    0.482911] sun8i-emac 1c30000.ethernet eth0: PHY [mdio-mux:01] driver [Generic PHY]
[    0.913377] mmc0: new high speed SDHC card at address aaaa
[    0.921840] mmcblk0: mmc0:aaaa SC16G 14.8 GiB
[    1.204518] EXT4-fs (mmcblk0p2): mounted filesystem with ordered data mode. Quota mode: none.
[    1.377005] Run /sbin/init as init process
[    1.902114] systemd[1]: Reached target Multi-User System.

Bench Gateway rev C ttyS0

gateway login: """

_LINUX_OVERRUN = """\

[   24.118407] ttyS1: 14 input overrun(s)
[   25.120951] ttyS1: 203 input overrun(s)
[   26.133318] ttyS1: 188 input overrun(s)
"""

_LINUX_STORM = """\
[   41.507712] serial8250: too much work for irq45
[   41.532030] serial8250: too much work for irq45
[   41.561187] serial8250: too much work for irq45
[   41.590224] irq 45: nobody cared (try booting with the "irqpoll" option)
[   41.590251] CPU: 0 PID: 0 Comm: swapper/0 Not tainted 6.6.21-gateway #1
[   41.590266] Hardware name: Bench Gateway rev C (DT)
[   41.590275] Call trace:
[   41.590281]  dump_backtrace+0x94/0x114
[   41.590302]  show_stack+0x18/0x24
[   41.590313]  dump_stack_lvl+0x48/0x60
[   41.590327]  __report_bad_irq+0x38/0xe0
[   41.590344]  note_interrupt+0x318/0x350
[   41.590355]  handle_irq_event+0x9c/0xbc
[   41.590366]  handle_fasteoi_irq+0xa4/0x230
[   41.590381]  generic_handle_domain_irq+0x2c/0x44
[   41.590394] handlers:
[   41.590401] [<00000000b1d2c3e4>] serial8250_interrupt
[   41.590419] Disabling IRQ #45
"""

_ESP_BOOT = """\
ets Jul 29 2019 12:21:46

rst:{code} ({name}),boot:0x13 (SPI_FAST_FLASH_BOOT)
configsip: 0, SPIWP:0xee
clk_drv:0x00,q_drv:0x00,d_drv:0x00,cs0_drv:0x00,hd_drv:0x00,wp_drv:0x00
mode:DIO, clock div:2
load:0x3fff0030,len:7088
load:0x40078000,len:15584
entry 0x4008068c
I (29) boot: ESP-IDF v5.1.2 2nd stage bootloader
I (29) boot: compile time Mar  3 2026 17:41:09
I (30) boot: Multicore bootloader
I (58) boot: Loaded app from partition at offset 0x10000
I (312) cpu_start: Starting scheduler.
I (331) main_task: Calling app_main()
I (341) climate: sensor bus on GPIO 21/22 at 100000 Hz
E (352) climate: no sensor answered, using the cached calibration
"""

_ESP_PANIC = """\
Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Exception was unhandled.

Core  0 register dump:
PC      : 0x400d5c1e  PS      : 0x00060330  A0      : 0x800d5d02  A1      : 0x3ffb5e10
A2      : 0x00000000  A3      : 0x3ffb5e58  A4      : 0x00000014  A5      : 0x3ffb2a70
A6      : 0x00000003  A7      : 0x00060023  A8      : 0x800d5c0f  A9      : 0x3ffb5de0
A10     : 0x00000000  A11     : 0x3f40312c  A12     : 0x3ffb5e6c  A13     : 0x0000ff00
A14     : 0x00ff0000  A15     : 0xff000000  SAR     : 0x0000000a  EXCCAUSE: 0x0000001c
EXCVADDR: 0x00000014  LBEG    : 0x4000c2e0  LEND    : 0x4000c2f6  LCOUNT  : 0x00000000


Backtrace: 0x400d5c1b:0x3ffb5e10 0x400d5cff:0x3ffb5e30 0x400d5a41:0x3ffb5e60 0x400e3f7c:0x3ffb5e90


ELF file SHA256: 5c0f1b7e9a24d3c8

Rebooting...
"""

_ZEPHYR_BOOT = """\
*** Booting Zephyr OS build v3.6.0 ***
[00:00:00.412,000] <inf> main: motor controller 2.3.1 on nucleo_f767zi
[00:00:00.413,000] <inf> can0: 500 kbit/s, sample point 87.5 %
[00:00:01.020,000] <inf> loop: 1 kHz control loop started
"""

_ZEPHYR_FAULT = """\
[00:00:09.531,000] <wrn> dma: channel 4 was disabled while a transfer ran
[00:00:09.544,000] <err> os: ***** BUS FAULT *****
[00:00:09.544,000] <err> os:   Precise data bus error
[00:00:09.544,000] <err> os:   BFAR Address: 0x50060c00
[00:00:09.544,000] <err> os: r0/a1:  0x50060c00  r1/a2:  0x00000004  r2/a3:  0x200021f8
[00:00:09.544,000] <err> os: r3/a4:  0x00000000 r12/ip:  0xaaaaaaaa r14/lr:  0x080046d5
[00:00:09.544,000] <err> os:  xpsr:  0x61000000
[00:00:09.544,000] <err> os: Faulting instruction address (r15/pc): 0x080046f2
[00:00:09.544,000] <err> os: >>> ZEPHYR FATAL ERROR 0: CPU exception on CPU 0
[00:00:09.544,000] <err> os: Current thread: 0x20000a98 (control)
[00:00:09.612,000] <err> os: Halting system
"""


@dataclass(frozen=True, slots=True)
class Board:
    """A board of the demo and the faults that its report must name."""

    name: str
    text: str
    faults: tuple[frozenset[str], ...]  # one set an incident: any of these triggers will do

    def steps(self) -> Iterator[Step]:
        """Return what it prints until its last fault is over."""
        return {"linux-gw": _linux, "esp-climate": _esp, "motor": _zephyr}[self.name]()


def _linux() -> Iterator[Step]:
    yield from (_LINUX_BOOT, 2.0, _LINUX_OVERRUN, 9.0, _LINUX_STORM)


def _esp() -> Iterator[Step]:
    yield 9.0  # not in the same second as another board: that would look like a common cause
    yield from (_ESP_BOOT.format(code="0x1", name="POWERON_RESET"), 0.4, _ESP_PANIC)
    for _ in range(3):
        yield from (0.3, _ESP_BOOT.format(code="0xc", name="SW_CPU_RESET"), 0.4, _ESP_PANIC)
    yield from (0.3, _ESP_BOOT.format(code="0xc", name="SW_CPU_RESET"))


def _zephyr() -> Iterator[Step]:
    yield from (5.0, _ZEPHYR_BOOT)
    for second in range(2, 9):
        yield from (
            0.5,
            f"[00:00:0{second}.020,000] <dbg> loop: set 1200 rpm, is {1187 + second} rpm\n",
        )
    yield _ZEPHYR_FAULT


BOARDS = (
    Board(
        "linux-gw",
        "a Linux gateway with a shaky UART",
        (frozenset({"linux.tty_input_overrun"}), frozenset({"linux.irq_nobody_cared"})),
    ),
    Board(
        "esp-climate",
        "an ESP32 that crashes at each start",
        (frozenset({"esp.guru", "boot.loop"}),),
    ),
    Board("motor", "a Zephyr motor controller", (frozenset({"zephyr.cpu_fault", "zephyr.fatal"}),)),
)
