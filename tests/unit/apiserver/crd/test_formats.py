from __future__ import annotations

import pytest

from steersman.apiserver.crd.formats import FORMATS, format_check

# Each line was put to the real server: (format, texts it takes, texts it refuses).
ASKED = [
    (
        "date-time",
        ["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5z", "2020-01-01T00:00:00+02:00"],
        ["x", "2020-01-01T25:00:00Z", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00", "2020-02-30T00:00:00Z"],
    ),
    ("date", ["2020-02-29"], ["2020-1-1", "20200101", "2021-02-29"]),
    ("byte", ["YQ==", "YWJj"], ["YQ", "", "a b"]),
    ("ipv4", ["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], ["1.2.3", "::1"]),
    ("ipv6", ["::1", "::ffff:1.2.3.4"], ["1.2.3.4", "::1%eth0"]),
    ("cidr", ["10.0.0.0/8", "010.0.0.0/8", "::/0"], ["10.0.0.0/33", "10.0.0.0"]),
    ("mac", ["01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-ab-cd-ef"], ["x"]),
    (
        "uri",
        ["http://a", "/a/b", "mailto:x", "*", "http://[::1]:80/", "//host/path"],
        ["a/b", "http://a b", "http://a:x/", "", "http://a/%zz", ":x"],
    ),
    ("email", ["a@b", "A <a@b.c>", "<a@b>", '"x y"@b'], ["a", "a@b@c"]),
    ("hostname", ["a", "ä.com", "1a.com"], ["-a", "a_b", "a.b.c1", "a.c"]),
    ("uuid", ["550e8400-e29b-41d4-a716-446655440000", "550E8400E29B41D4A716446655440000"], ["x"]),
    ("duration", ["1s", "1d", "5 minutes", "1h30m", "-1s", "1.5h", "0", "3 weeks"], ["x", "", "10"]),
    ("k8s-short-name", ["a", "a-b"], ["A", "a.b"]),
    ("k8s-long-name", ["a.b"], ["a..b"]),
    ("password", ["anything"], []),
    ("isbn", ["anything"], []),  # known, not checked
]


@pytest.mark.parametrize(
    ("name", "text", "fits"),
    [(name, text, True) for name, good, _ in ASKED for text in good]
    + [(name, text, False) for name, _, bad in ASKED for text in bad],
)
def test_a_format_takes_what_the_real_server_takes(name: str, text: str, fits: bool) -> None:
    check = format_check(name)
    assert check is not None
    assert check(text) is fits


def test_an_unknown_format_says_nothing() -> None:
    assert format_check("zipcode") is None


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_format_fails_on_odd_text(name: str) -> None:
    for text in ("", "\n", "\0", "ä" * 300, "http://[", "1.2.3.4.5", "%", "١٢"):
        assert FORMATS[name](text) in (True, False)
