"""Names between text and wire: what is written is read as it was."""

from __future__ import annotations

import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.operators.dns.zone.names import is_absolute, name_of, owner_of, text_of

ORG = name_of("example.org")
LABELS = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4)


def wire(labels):
    return b"".join(bytes([len(label)]) + label.lower() for label in labels)


@given(LABELS)
def test_every_name_that_is_written_is_read_as_it_was(labels):
    name = wire(labels)
    text = text_of(name + b"\0")
    assert name_of(text) == name + b"\0"
    assert dns.name.from_text(text).to_wire() == name + b"\0"  # and as others read it
    assert owner_of(text_of(name + ORG), ORG) == name
    if text_of(name) != "@":
        assert owner_of(text_of(name), ORG) == name


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (r"a\032b.org", [b"a b", b"org"]),
        (r"a\.b.org.", [b"a.b", b"org"]),
        (r"a\\.org.", [b"a\\", b"org"]),
        (r"a\000.org", [b"a\0", b"org"]),
        (r"\065\255.org", [b"a\xff", b"org"]),
        ("a.b\\.", [b"a", b"b."]),
        (r"a.b\046", [b"a", b"b."]),
        (r"a.b\\.", [b"a", b"b\\"]),
    ],
)
def test_a_backslash_escapes_a_sign_or_three_digits_of_a_byte(text, labels):
    assert name_of(text) == wire(labels) + b"\0"


@pytest.mark.parametrize("text", [r"a\256.org", r"a\1.org", r"a\12", "a\\", r"a\25x.org", r"\..b.."])
def test_any_other_escape_is_an_error_that_shows_the_name(text):
    with pytest.raises(FormatError):
        name_of(text)


def test_a_name_that_ends_with_an_escaped_dot_lies_in_its_zone():
    assert [is_absolute(text) for text in ("a.", "a", "a\\.", r"a\\.", r"a\\\.")] == [True, False, False, True, False]
    assert owner_of("a\\.", ORG) == wire([b"a."])
