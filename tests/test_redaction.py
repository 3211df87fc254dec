from __future__ import annotations

import random
import string
import time

import pytest

from own_streams import STREAMS
from serialwatch.agent.models.redaction import Redactor

PEM = """\
a1b2:dut1:L7| -----BEGIN RSA PRIVATE KEY-----
a1b2:dut1:L8| Proc-Type: 4,ENCRYPTED
a1b2:dut1:L9| MIIEowIBAAKCAQEAxk3L9dQz7pVnTtq2wYbJ1sR8uXhZ5oKfCeGmNaPvDiSlWrB0
a1b2:dut1:L10| [   12.100000] mmc0: new high speed card
a1b2:dut1:L11| Qw8ErTyUiOpAsDfGhJkLzXcVbNm1234567890QwErTyUi==
a1b2:dut1:L12| -----END RSA PRIVATE KEY-----
a1b2:dut1:L13| Unable to handle kernel paging request at virtual address
"""


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("I (842) wifi: connecting to SSID:lab password:hunter2000", "hunter2000"),
        ('    psk="correct horse battery"', "correct horse battery"),
        ("wpa_psk=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
        ('{"wifi_password": "s3cr3t-x", "retries": 3}', "s3cr3t-x"),
        (r'{\"mqtt_pass\": \"s3cr3t-x\"}', "s3cr3t-x"),
        ("mqtt.client_secret = abc123def", "abc123def"),
        ("mqtt://gateway:tr0ub4dor@10.0.0.7:1883/up", "tr0ub4dor"),
        ("GET /v1?api_key=9f8e7d6c5b4a3210ffee HTTP/1.1", "9f8e7d6c5b4a3210ffee"),
        ("Authorization: Basic Z2F0ZXdheTp0cm91Yg==", "Z2F0ZXdheTp0cm91Yg=="),
        ("> Authorization: Bearer abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl ok", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"),
        ("push: sk-abcdefghijklmnopqrstuvwx refused", "sk-abcdefghijklmnopqrstuvwx"),
        ("using AKIAIOSFODNN7EXAMPLE for s3", "AKIAIOSFODNN7EXAMPLE"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("token ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("root:$6$saltsalt$abcdefghijklmnopqrstuvwxyz0123456789:19000:0:99999:7:::", "$6$saltsalt$abcdefghijklmnopqrstuvwxyz0123456789"),
        ("root:ab01FAX.bQRSU:19000:0:99999:7:::", "ab01FAX.bQRSU"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3kqH0gqHxk6m7Q me@bench", "AAAAC3NzaC1lZDI1NTE5AAAAIJ3kqH0gqHxk6m7Q"),
        ("lorawan: AppKey: 2B7E151628AED2A6ABF7158809CF4F3C", "2B7E151628AED2A6ABF7158809CF4F3C"),
        ('AT+CWJAP="lab-net","open sesame"', "open sesame"),
        ('AT+CPIN="4711"', "4711"),
        ('AT+CGAUTH=1,1,"user","apn-pass"', "apn-pass"),
        ("# nmcli dev wifi connect lab password hunter2000", "hunter2000"),
        ("uart:~$ wifi connect -s lab -k 1 -p hunter2000", "hunter2000"),
        ("eth0: MAC 24:6f:28:a1:b2:c3 up", "a1:b2:c3"),
        ("wlan0: bssid 24-6F-28-A1-B2-C3", "A1-B2-C3"),
        ("+CGSN: 490154203237518", "490154203237518"),
        ("a1b2:dut1:L3| 490154203237518", "490154203237518"),
        ("IMSI: 262011234567890", "262011234567890"),
        ("+QCCID: 8949020000012345678F", "8949020000012345678F"),
        ("usb 1-1: SerialNumber: A50285BI", "A50285BI"),
        ("serial#=SN-2026-00017", "SN-2026-00017"),
        ("mail from jane.doe@lab.example.com queued", "jane.doe@lab.example.com"),
    ],
)  # fmt: skip
def test_a_secret_does_not_leave_and_comes_back(text: str, secret: str) -> None:
    redactor = Redactor()
    hidden = redactor.hide(text)

    assert secret not in hidden
    assert redactor.restore(hidden) == text
    assert hidden.split("<", maxsplit=1)[0] == text.split(secret, maxsplit=1)[0]


@pytest.mark.parametrize(
    "text",
    [
        "[   12.345678] Unable to handle kernel paging request at virtual address ffff800012345678",
        "PC is at foo_irq+0x1c/0x40  LR is at 0x40081054, pstate 60000005",
        "x22: ffffffffff000000 x23: 0000000047fa830e",
        "Build ID: 3f2a9c1d4e5b6a7980112233445566778899aabb  git 1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b",
        "ELF file SHA256:  0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Backtrace: 0x400d1234:0x3ffb5f80",
        "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)",
        "2026-06-22T03:58:12.104000Z 03:58:12 pci 0000:00:14.0: [8086:a36d] type 00",
        "Password: ",
        "Login incorrect, password: ********",
        "auth: password: required",
        "tests pass: 12 fail: 0, pass=12",
        "PWD=/root HOME=/root",
        "unexpected token: '}' at line 3",
        "key: 0x1f pressed, KEY=0x12345678",
        "dt key=0x40000000 session key 12 of 20 in flash",
        "New USB device strings: Mfr=1, Product=2, SerialNumber=3",
        "xhci-hcd xhci-hcd.11.auto: SerialNumber: xhci-hcd.11.auto",
        "usb@2184000.of: USB EHCI 1.00, serial-getty@ttymxc1.service: started",
        "fe:dc: not an address, 00:00:00:00:00:00 and ff:ff:ff:ff:ff:ff belong to nobody",
        "SHA1 fingerprint 01:23:45:67:89:ab:cd:ef:01:23:45:67:89:ab:cd:ef:01:23:45:67",
        "cnt=123456789012345 ticks",
        "/sys/devices/platform/soc/7e201000serial/tty/ttyAMA0/device/driver/module/parameters",
    ],
)
def test_what_is_evidence_stays(text: str) -> None:
    assert Redactor().hide(text) == text


def test_nothing_but_addresses_of_interfaces_is_hidden_in_our_streams() -> None:
    found: list[str] = []
    for stream in STREAMS:
        redactor = Redactor()
        text = stream.data.decode(errors="backslashreplace")
        hidden = redactor.hide(text)
        assert redactor.restore(hidden) == text
        found += [name for name in redactor._texts if not name.startswith("<mac-")]

    assert len(found) <= len(STREAMS) // 20, found


def test_a_private_key_is_hidden_line_by_line() -> None:
    redactor = Redactor()
    hidden = redactor.hide(PEM)

    assert "MIIEow" not in hidden
    assert "Qw8ErTy" not in hidden
    assert "a1b2:dut1:L10| [   12.100000] mmc0: new high speed card" in hidden
    assert "a1b2:dut1:L13| Unable to handle kernel paging request at virtual address" in hidden
    assert redactor.restore(hidden) == PEM


def test_a_part_of_a_private_key_is_hidden_without_its_beginning() -> None:
    (line,) = [line for line in PEM.splitlines() if "MIIE" in line]

    assert "MIIE" not in Redactor().hide(line)


def test_a_secret_that_was_named_once_is_hidden_where_it_has_no_name() -> None:
    redactor = Redactor()
    messages = [
        {"role": "user", "content": "heard hunter2000 on the console"},
        {"role": "user", "content": "password=hunter2000"},
    ]

    assert [m["content"] for m in redactor.hide_all(messages)] == [
        "heard <secret-1> on the console",
        "password=<secret-1>",
    ]


def test_one_value_has_one_placeholder_in_a_run() -> None:
    redactor = Redactor()
    first = redactor.hide("psk=aaaaaaaa1 and psk=bbbbbbbb2")

    assert first == "psk=<secret-1> and psk=<secret-2>"
    assert redactor.hide("psk=bbbbbbbb2") == "psk=<secret-2>"
    assert redactor.count == 2


def test_a_placeholder_that_a_device_prints_becomes_no_secret() -> None:
    redactor = Redactor()
    text = "password=hunter2000 then <secret-1>"

    assert redactor.restore(redactor.hide(text)) == text
    assert redactor.restore("<secret-99>") == "<secret-99>"


def test_a_secret_stays_json_when_it_is_put_back_into_json() -> None:
    redactor = Redactor(["key=(?P<secret>.+)"])
    redactor.hide('key=a"b\\c')

    assert redactor.restore_json('{"quote": "<secret-1>"}') == '{"quote": "a\\"b\\\\c"}'


def test_own_patterns_hide_their_group_or_the_whole_match() -> None:
    redactor = Redactor([r"LAB-\d{4}", r"badge (?P<secret>\w+)"])

    assert redactor.hide("LAB-0042 with badge x77") == "<secret-1> with badge <secret-2>"


def test_no_line_takes_long_however_it_is_made() -> None:
    chance = random.Random(4)
    pieces = ["a", "-", "_", ".", "@", ":", "//", "eyJ", "password", "=", '"', "\\", "AT+CGAUTH=",
              "key", " ", "0", "00:", "$6$", "|", "<", "ssh-rsa AAAA", "wifi connect", "curl",
              "-----BEGIN PRIVATE KEY-----\n", "serial", "A1b"]  # fmt: skip
    lines = [piece * (16_384 // len(piece)) for piece in pieces]
    lines += ["".join(chance.choices(pieces, k=4000))[:16_384] for _ in range(12)]
    lines += ["".join(chance.choices(string.printable, k=16_384)) for _ in range(4)]
    slowest = 0.0
    for line in lines:
        began = time.process_time()
        Redactor().hide(line)
        slowest = max(slowest, time.process_time() - began)

    assert slowest < 0.5, "a line of 16 KiB"
