"""The string formats of schemas: one check per format.

Each format accepts what kube-apiserver accepts (an IPv4 address may have leading zeros). The formats that the real
server knows and no API uses (ISBN, credit cards, colors) are accepted in a definition and not checked: `UNCHECKED`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_GO_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_SCALA_DURATION = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_DURATION_UNITS = ("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_DURATION_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-\u0080-\U0010ffff]+"
_ADDRESS = rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\\r\n]|\\.)*")@(?:{_ATOM}(?:\.{_ATOM})*|\[[^\[\]\\]*\])'
_EMAIL = re.compile(rf"\s*(?:{_ADDRESS}|[^<>@]*<{_ADDRESS}>)\s*")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _matcher(pattern: str, limit: int | None = None) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)

    def matches(text: str) -> bool:
        return (limit is None or len(text.encode()) <= limit) and compiled.fullmatch(text) is not None

    return matches


def _date(text: str) -> bool:
    if _DATE.fullmatch(text) is None:
        return False
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _date_time(text: str) -> bool:
    date, separator, rest = text.lower().partition("t")
    time = rest.partition("t")[0]
    match = _TIME.fullmatch(time)
    if not separator or match is None or not _date(date):
        return False
    hours, minutes, seconds = match.group(1, 2, 3)
    return hours <= "23" and minutes <= "59" and seconds <= "59"


def _duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    units = [unit.lower() for _, unit in _SCALA_DURATION.findall(text)]
    return any(unit in _DURATION_UNITS or unit.startswith(_DURATION_PREFIXES) for unit in units)


def _sloppy(text: str) -> str:
    """Without the leading zeros that IPv4 octets may have."""
    head, colon, tail = text.rpartition(":")
    octets = [octet.lstrip("0") or "0" if octet.isdigit() else octet for octet in tail.split(".")]
    return head + colon + ".".join(octets) if "." in tail else text


def _ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _ipv4(text: str) -> bool:
    return "." in text and _ip(_sloppy(text))


def _ipv6(text: str) -> bool:
    return ":" in text and _ip(text)


def _cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not length.isascii() or not length.isdigit() or not _ip(_sloppy(address)):
        return False
    return int(length) <= (128 if ":" in address else 32)


def _mac(text: str) -> bool:
    for separator, size in ((":", 2), ("-", 2), (".", 4)):
        groups = text.split(separator)
        if all(re.fullmatch(rf"[0-9a-fA-F]{{{size}}}", group) for group in groups):
            return len("".join(groups)) in {12, 16, 40}
    return False


def _uri(text: str) -> bool:
    """What Go's `url.ParseRequestURI` takes: an absolute URI or an absolute path."""
    if not text or any(char < " " or char == "\x7f" for char in text):
        return False
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if text == "*" or (scheme and not rest.startswith("/")):
        return True
    if not rest.startswith("/") or _BAD_ESCAPE.search(rest.partition("?")[0]):
        return False
    if not scheme or not rest.startswith("//"):
        return True
    try:
        host = urlsplit(text)
        _ = host.port
    except ValueError:
        return False
    return _HOST.fullmatch(host.netloc.rpartition("@")[2]) is not None


_HOSTNAME = re.compile(
    r"([^\W_](-?[^\W_]{0,62})?|([^\W_](([^\W_]|-){0,61}[^\W_])?\.)+[^\W\d_]{2,63})",
)


def _hostname(text: str) -> bool:
    if _HOSTNAME.fullmatch(text) is None or len(text.encode()) > 255:
        return False
    return all(len(part.encode()) <= 63 for part in text.split("."))


_HEX = "[0-9a-fA-F]"

# Names without dashes, as `format_check` reads them.
FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _matcher(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _cidr,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hexcolor": _matcher(rf"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "k8slongname": _matcher(rf"{_NAME}(\.{_NAME})*", 253),
    "k8sshortname": _matcher(_NAME, 63),
    "mac": _mac,
    "uri": _uri,
    "uuid": _matcher(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid3": _matcher(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid4": _matcher(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
    "uuid5": _matcher(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
}
# Known to the API server and not checked here: a definition that uses one gets no warning.
UNCHECKED = ("bsonobjectid", "creditcard", "isbn", "isbn10", "isbn13", "password", "rgbcolor", "ssn")
FORMATS |= dict.fromkeys(UNCHECKED, lambda _: True)


def format_check(name: str) -> Callable[[str], bool] | None:
    """The check of a format; None when the format is unknown.

    >>> format_check("date-time")("2026-01-02T03:04:05Z")
    True
    """
    return FORMATS.get(name.replace("-", ""))
