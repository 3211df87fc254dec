"""What secrets look like in the text of a console: passwords, tokens, keys, identities.

Every pattern takes time linear in the text: its repeats are bounded, or end where their run ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_KEY_LINES = 200  # of one private key; a block that never ends does not hide the rest


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that is to be hidden."""

    start: int
    end: int
    kind: str
    is_known: bool  # hidden elsewhere, too


def find_secrets(text: str) -> Iterator[Span]:
    """Find what is to be hidden, in no order; parts may overlap."""
    lower = text.lower()
    for rule in _RULES:
        if not any(word in lower for word in rule.needs):
            continue
        for found in rule.pattern.finditer(text):
            start, end = found.span("v")
            value = found["v"]
            while value and value[-1] in rule.strip:
                value, end = value[:-1], end - 1
            if value and rule.fits(value):
                yield Span(start, end, rule.kind, rule.is_known)
    if "key-----" in lower or "key block-----" in lower:
        yield from _private_keys(text)


def _private_keys(text: str) -> Iterator[Span]:
    """Find the lines of private keys, whatever mark stands before each of them."""
    left = 0  # lines that may still belong to a key
    at = 0
    for line in text.splitlines(keepends=True):
        if _KEY_BEGINS.search(line):
            left = MAX_KEY_LINES
        if left:
            left -= 1
            for found in _KEY_TEXT.finditer(line):
                if found.end() - found.start() >= 16:
                    yield Span(at + found.start(), at + found.end(), "key", is_known=False)
        if _KEY_ENDS.search(line):
            left = 0
        at += len(line)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one kind of secret looks like; the group `v` is what is hidden."""

    kind: str
    needs: tuple[str, ...]  # one of these, in lower case, stands in every text that has one
    pattern: re.Pattern[str]
    fits: Callable[[str], bool] = bool
    is_known: bool = False
    strip: str = ""  # characters at the end that belong to the sentence


def _is_secret(value: str) -> bool:
    """Tell whether what stands behind `password:` may be one."""
    word = value.strip("\\\"'").lower()
    is_masked = not word.strip("*x.-_?#•") or word.startswith(("%", "$", "<", "/", "{", "(", "["))
    return not is_masked and word not in _WORDS


def _is_token(value: str) -> bool:
    """Tell whether a value is random enough for a token, and no word of a sentence."""
    return len(value) >= 12 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _is_key(value: str) -> bool:
    digits = value.removeprefix("0x").replace(":", "").replace("-", "").replace(" ", "")
    is_hex = all(c in "0123456789abcdefABCDEF" for c in digits)
    # 8 bytes are an address or a register, 16 and more are a key.
    return len(digits) >= 32 if is_hex else _is_token(value)


def _is_base64(value: str) -> bool:
    return (
        any("A" <= c <= "Z" for c in value)
        and any("a" <= c <= "z" for c in value)
        and any("0" <= c <= "9" for c in value)
        and value.count("/") * 12 <= len(value)
    )


def _is_serial(value: str) -> bool:
    """Tell the number of a board from the name of a driver's instance such as xhci-hcd.11.auto."""
    return len(set(value)) > 1 and any(c.isdigit() for c in value) and not value.endswith(".auto")


def _is_mail(value: str) -> bool:
    """Tell an address from a unit of systemd and from a node of a device tree: mmc@fe310000.of."""
    domain = value.partition("@")[2]
    is_node = all(c in "0123456789abcdefABCDEF" for c in domain.partition(".")[0])
    return not is_node and domain.rpartition(".")[2] not in _UNITS


def _is_mac(value: str) -> bool:
    """Leave the addresses alone that belong to nobody."""
    return any(c not in "0fF:-" for c in value)


def _is_imei(value: str) -> bool:
    """Check the digit by Luhn, so that no other number of 15 digits is taken for one."""
    total = 0
    for place, char in enumerate(reversed(value)):
        digit = int(char) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0 and len(set(value)) > 2


_WORDS = frozenset({  # that a log prints behind `password:` and the like
    "required", "incorrect", "invalid", "failed", "wrong", "error", "none", "null", "nil",
    "unset", "set", "ok", "yes", "no", "true", "false", "enabled", "disabled", "empty", "missing",
    "expired", "accepted", "rejected", "changed", "unchanged", "default", "prompt", "login",
    "for", "is", "not", "and", "the", "was", "with", "hash", "file", "must", "cannot", "mismatch",
    "attempt", "attempts", "unknown", "undefined", "wpa", "wpa2", "wpa3", "open", "psk", "sae",
})  # fmt: skip

_UNITS = frozenset({"service", "socket", "target", "timer", "mount", "part", "slice", "device"})

_SEP = r"(?:\\?[\"'])?[ \t]{0,8}(?::|=|:=|=>)[ \t]{0,8}"


def _named(names: str) -> re.Pattern[str]:
    """Return a pattern for a value behind a name, quoted or not."""
    # One group for both forms: the quote, if there is one, stands before it.
    return re.compile(
        rf"(?<![A-Za-z0-9])(?:{names}){_SEP}(?:\\?[\"'])?"
        r"(?P<v>(?<=[\"'])[^\"'\\\n]{1,128}|(?<![\"'])[^\s\"',;&<>|\\]{1,128})",
        re.IGNORECASE,
    )


PLACEHOLDER = re.compile(r"<(?:secret|mac|key|id|mail|text)-\d{1,6}>")
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_TEXT = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{4,}={0,2}(?![A-Za-z0-9+/=])")

_RULES = (
    # A placeholder that a device printed itself must not become a secret on the way back.
    _Rule("text", ("<",), re.compile(rf"(?P<v>{PLACEHOLDER.pattern})")),
    _Rule(
        "secret",
        ("pass", "pwd", "psk", "secret", "passcode"),
        _named(
            r"(?:[A-Za-z0-9]{1,24}[_.-]){0,3}(?:password|passwd|passphrase|passcode|pwd|psk)\d?"
            r"|(?:wifi|wlan|ap|sta|mqtt|http|ftp|smtp|user|root|admin)[_-]?pass|"
            r"(?:[A-Za-z0-9]{1,24}[_.-]){0,3}secret"
        ),
        _is_secret,
        is_known=True,
        strip=".)",
    ),
    _Rule(
        "secret",
        ("token", "api", "access", "auth", "sig", "account", "sas"),
        _named(
            r"(?:[A-Za-z0-9]{1,24}[_.-]){0,3}(?:token|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth|"
            r"authorization|account[_-]?key|signature|sig|sas|session[_-]?id|cookie)"
        ),
        _is_token,
        is_known=True,
        strip=".)",
    ),
    _Rule(
        "key",
        ("key", "ltk", "irk", "csrk", "pmk", "ptk"),
        _named(
            r"(?:[A-Za-z0-9]{1,24}[_. -]){0,3}(?:app|nwk|net|dev|link|session|encryption|aes|wep|"
            r"master|network|private|shared|secret|storage|signing|device|"
            r"flash|hmac|root|pairing)[_ -]?s?key\d?"
            r"|wep[_ -]?key\d|ltk|irk|csrk|pmk|ptk"
        ),
        _is_key,
        is_known=True,
        strip=".)",
    ),
    # Modems and Wi-Fi modules: AT+CWJAP="ssid","password", AT+CPIN="1234", AT+CGAUTH=1,1,"u","p"
    _Rule(
        "secret",
        ("at+",),
        re.compile(
            r"AT\+(?:CWJAP|CWSAP)(?:_CUR|_DEF)?=\"[^\"\n]{0,64}\",\"(?P<v>[^\"\n]{1,64})",
            re.IGNORECASE,
        ),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("at+",),
        re.compile(r"AT\+CPIN=\"?(?P<v>\d{4,8})", re.IGNORECASE),
    ),
    _Rule(
        "secret",
        ("at+",),
        re.compile(
            r"AT\+(?:CGAUTH|UAUTHREQ|QICSGP|MQTTUSERCFG)=[^\"\n]{0,16}"
            r"(?:\"[^\"\n]{0,64}\",[^\"\n]{0,8}){1,4}"
            r"\"(?P<v>[^\"\n]{1,64})\"",
            re.IGNORECASE,
        ),
        is_known=True,
    ),
    # Commands that take a password as a word.
    _Rule(
        "secret",
        ("wifi connect", "wpa_passphrase", "nmcli", "sshpass", "wifi cred"),
        re.compile(
            r"(?:nmcli [^\n]{0,120}\bpassword|sshpass -p"
            r"|wpa_passphrase +(?:\"[^\"\n]{1,64}\"|\S{1,64})"
            r"|wifi (?:connect|cred)[^\n]{0,120} (?:-p|--passphrase))[ =]{1,4}"
            r"[\"']?(?P<v>[^\s\"']{4,128})"
        ),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("curl", "wget"),
        re.compile(
            r"\b(?:curl|wget)\b[^\n]{0,200} (?:-u|--user)[ =][\"']?[^\s:\"']{1,64}:"
            r"(?P<v>[^\s\"']{1,128})"
        ),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("://",),
        re.compile(r"://[^\s/@:\"]{0,64}:(?P<v>[^\s/@\"]{1,128})@"),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("bearer", "authorization"),
        re.compile(
            r"(?:\bbearer|authorization\\?[\"']?: ?\\?[\"']?(?:basic|digest|token|apikey))"
            r"[ \t]{1,4}"
            r"(?P<v>[A-Za-z0-9._~+/=-]{6,4096})",
            re.IGNORECASE,
        ),
        lambda value: len(value) >= 16 or any(c.isdigit() or c == "=" for c in value),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("eyj",),
        re.compile(
            r"(?<![A-Za-z0-9_-])(?P<v>eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{4,4096}"
            r"(?:\.[A-Za-z0-9_-]{0,4096})?)"
        ),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("sk-", "sk_", "rk_", "gh", "glpat-", "xox", "aiza", "akia", "asia", "hf_", "npm_", "pypi-",
         "sg.", "dop_v1_", "whsec_", "github_pat_", "shpat_", "ya29."),
        re.compile(
            r"(?<![A-Za-z0-9_-])(?P<v>"
            r"sk-[A-Za-z0-9_-]{20,200}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,200}"
            r"|gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{30,255}"
            r"|glpat-[A-Za-z0-9_-]{18,100}"
            r"|xox[abeprs]-[A-Za-z0-9-]{10,200}|AIza[A-Za-z0-9_-]{35}"
            r"|(?:AKIA|ASIA|AGPA|AROA)[A-Z0-9]{16}(?![A-Z0-9])|hf_[A-Za-z0-9]{30,100}"
            r"|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,300}"
            r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"
            r"|dop_v1_[a-f0-9]{40,80}|whsec_[A-Za-z0-9+/=]{20,100}|shpat_[a-fA-F0-9]{32}"
            r"|ya29\.[A-Za-z0-9_-]{20,300})"
        ),
        is_known=True,
    ),
    _Rule(
        "secret",
        ("$",),
        re.compile(
            r"(?P<v>\$(?:1|2[abxy]|5|6|7|y|gy|md5|sha1|argon2(?:id|i|d)|scrypt)\$"
            r"[./A-Za-z0-9$=,+-]{12,300})"
        ),
        is_known=True,
    ),
    # /etc/shadow with the old hash: name:hash:days:...
    _Rule(
        "secret",
        (":0:",),
        re.compile(r"[a-z_][a-z0-9_-]{0,31}:(?P<v>[./A-Za-z0-9]{13}):\d{1,6}:0:\d{1,6}:"),
    ),
    _Rule(
        "key",
        ("ssh-", "ecdsa-sha2-"),
        re.compile(
            r"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}"
            r"|sk-ssh-ed25519@openssh\.com)[ \t]{1,4}"
            r"(?P<v>AAAA[A-Za-z0-9+/]{30,8192}={0,2})"
        ),
    ),
    # A part of a key without its first line, and other dumps in base64.
    _Rule(
        "key",
        ("",),
        re.compile(r"(?<![A-Za-z0-9+/=_.-])(?P<v>[A-Za-z0-9+/]{60,}={0,2})(?![A-Za-z0-9+/=_.-])"),
        _is_base64,
    ),
    # The maker's half of an address stays: it tells which chip it is.
    _Rule(
        "mac",
        (":", "-"),
        re.compile(
            r"(?<![0-9A-Fa-f:-])(?:[0-9A-Fa-f]{2}:){3}(?P<v>(?:[0-9A-Fa-f]{2}:){2}[0-9A-Fa-f]{2}"
            r"(?:(?::[0-9A-Fa-f]{2}){2})?)(?![0-9A-Fa-f]|[:-][0-9A-Fa-f])"
        ),
        _is_mac,
    ),
    _Rule(
        "mac",
        ("-",),
        re.compile(
            r"(?<![0-9A-Fa-f:-])(?:[0-9A-Fa-f]{2}-){3}(?P<v>(?:[0-9A-Fa-f]{2}-){2}[0-9A-Fa-f]{2})"
            r"(?![0-9A-Fa-f]|[:-][0-9A-Fa-f])"
        ),
        _is_mac,
    ),
    _Rule(
        "id",
        ("imei", "+cgsn", "+gsn", "+egmr"),
        re.compile(r"(?:IMEI|CGSN|GSN|EGMR)[^0-9\n]{1,16}(?P<v>\d{14,16})(?!\d)", re.IGNORECASE),
    ),
    _Rule(
        "id",
        ("imsi", "cimi"),
        re.compile(r"(?:IMSI|CIMI)[^0-9\n]{1,16}(?P<v>\d{13,15})(?!\d)", re.IGNORECASE),
    ),
    _Rule(
        "id",
        ("ccid", "iccid"),
        re.compile(r"I?CCID[^0-9\n]{1,16}(?P<v>89\d{16,18}[0-9Ff]?)(?![0-9A-Fa-f])", re.IGNORECASE),
    ),
    _Rule("id", ("\n", ""), re.compile(r"(?:^|\| )(?P<v>\d{15})$", re.MULTILINE), _is_imei),
    _Rule(
        "id",
        ("serial", "s/n"),
        re.compile(
            r"\b(?:serial[ _-]?(?:number|num|no\.?|#)|serial#|S/N)\\?[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
            r"\\?[\"']?(?P<v>[A-Za-z0-9][A-Za-z0-9._-]{3,40})",
            re.IGNORECASE,
        ),
        _is_serial,
    ),
    _Rule("id", ("serial",), re.compile(r"\bSerial[ \t]{1,12}: (?P<v>[0-9a-fA-F]{16})\b")),
    _Rule(
        "mail",
        ("@",),
        re.compile(
            r"(?<![A-Za-z0-9._%+-])(?P<v>[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}"
            r"(?:\.[A-Za-z0-9-]{1,63}){0,4}\.[A-Za-z]{2,10})(?![A-Za-z0-9])"
        ),
        _is_mail,
    ),
)  # fmt: skip
