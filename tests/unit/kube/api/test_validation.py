from __future__ import annotations

import pytest

from steersman.kube.api.validation import (
    dns1035_label_errors,
    dns_label_errors,
    dns_subdomain_errors,
    label_key_errors,
    label_value_errors,
    quoted,
)


@pytest.mark.parametrize("name", ["a", "a1", "1a", "a-b", "a" * 63])
def test_a_lowercase_rfc_1123_label_is_accepted(name: str) -> None:
    assert dns_label_errors(name) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "a lowercase RFC 1123 label must consist of"),
        ("A", "a lowercase RFC 1123 label must consist of"),
        ("-a", "a lowercase RFC 1123 label must consist of"),
        ("a_b", "a lowercase RFC 1123 label must consist of"),
        ("a\n", "a lowercase RFC 1123 label must consist of"),
        ("a.b", "must not contain dots"),
        ("a" * 64, "must be no more than 63 bytes"),
    ],
)
def test_anything_else_is_not_a_dns_label(name: str, complaint: str) -> None:
    (error,) = dns_label_errors(name)
    assert error.startswith(complaint)


def test_a_subdomain_is_labels_joined_by_dots_up_to_253_bytes() -> None:
    assert dns_subdomain_errors("a.b-c.d1") == []
    assert dns_subdomain_errors("a" * 253) == []
    assert dns_subdomain_errors("a" * 254) == ["must be no more than 253 bytes"]
    assert dns_subdomain_errors("a..b") == [
        (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    ]


def test_an_rfc_1035_label_starts_with_a_letter() -> None:
    assert dns1035_label_errors("a-1") == []
    (error,) = dns1035_label_errors("1-a")
    assert "start with an alphabetic character" in error
    assert "(e.g. 'my-name',  or 'abc-123', regex used" in error


@pytest.mark.parametrize(
    "key", ["simple", "now-with-dashes", "1.2", "Up_per", "example.com/x", "1.2.3/1_x.y", "a" * 63]
)
def test_a_label_key_is_a_name_with_an_optional_dns_prefix(key: str) -> None:
    assert label_key_errors(key) == []


@pytest.mark.parametrize(
    ("key", "starts"),
    [
        ("", ["name part must be non-empty", "name part must consist of"]),
        ("-a", ["name part must consist of"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("/a", ["prefix part must be non-empty"]),
        ("A.b/a", ["prefix part a lowercase RFC 1123 subdomain"]),
        ("a/", ["name part must be non-empty", "name part must consist of"]),
        ("a/b/c", ["a valid label key must consist of"]),
        (f"{'a' * 254}/b", ["prefix part must be no more than 253 bytes"]),
        ("ü", ["name part must consist of"]),
    ],
)
def test_every_fault_of_a_label_key_is_named(key: str, starts: list[str]) -> None:
    errors = label_key_errors(key)
    assert [error[: len(start)] for error, start in zip(errors, starts, strict=True)] == starts


def test_the_empty_string_is_a_label_value_and_a_value_ends_like_it_starts() -> None:
    assert label_value_errors("") == []
    assert label_value_errors("a_B.c-1") == []
    assert len(label_value_errors("a-")) == 1
    assert len(label_value_errors("-" * 64)) == 2


def test_length_is_counted_in_bytes() -> None:
    assert label_value_errors("ü" * 32)[0] == "must be no more than 63 bytes"


def test_a_quoted_value_shows_what_cannot_be_seen() -> None:
    assert quoted('a"b\\c') == r'"a\"b\\c"'
    assert quoted("\n\t\x01\x7f\u200b\U000e0001ü") == r'"\n\t\x01\x7f\u200b\U000e0001ü"'
