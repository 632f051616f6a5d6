"""Which names, label keys and label values are valid, and how an API server reports one that is not.

Each function returns the complaints about one value, in the server's words; an empty list means that it is fine.
Lengths are counted in bytes, as the server does.
"""

from __future__ import annotations

import re

__all__ = [
    "dns1035_label_errors",
    "dns_label_errors",
    "dns_subdomain_errors",
    "label_key_errors",
    "label_value_errors",
    "quoted",
]


class _Rule:
    """One regular expression with the sentence that explains it."""

    def __init__(self, sentence: str, regex: str, *examples: str) -> None:
        shown = " or ".join(f"'{example}', " for example in examples)
        self.complaint = f"{sentence} (e.g. {shown}regex used for validation is '{regex}')"
        self.accepts = re.compile(regex).fullmatch


_DNS_LABEL_REGEX = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_NAME_REGEX = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_DNS_LABEL = _Rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _DNS_LABEL_REGEX,
    "my-name",
    "123-abc",
)
_DNS_SUBDOMAIN = _Rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    rf"{_DNS_LABEL_REGEX}(\.{_DNS_LABEL_REGEX})*",
    "example.com",
)
_DNS_1035_LABEL = _Rule(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "my-name",
    "abc-123",
)
_LABEL_NAME = _Rule(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _LABEL_NAME_REGEX,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE = _Rule(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    f"({_LABEL_NAME_REGEX})?",
    "MyValue",
    "my_value",
    "12345",
)


def dns_label_errors(value: str) -> list[str]:
    """Complaints about an RFC 1123 label, such as the name of a namespace."""
    errors = _too_long(value, 63)
    if not _DNS_LABEL.accepts(value):
        errors.append("must not contain dots" if _DNS_SUBDOMAIN.accepts(value) else _DNS_LABEL.complaint)
    return errors


def dns_subdomain_errors(value: str) -> list[str]:
    """Complaints about an RFC 1123 subdomain, such as the name of most objects."""
    errors = _too_long(value, 253)
    if not _DNS_SUBDOMAIN.accepts(value):
        errors.append(_DNS_SUBDOMAIN.complaint)
    return errors


def dns1035_label_errors(value: str) -> list[str]:
    """Complaints about an RFC 1035 label: like an RFC 1123 label, but it starts with a letter."""
    errors = _too_long(value, 63)
    if not _DNS_1035_LABEL.accepts(value):
        errors.append(_DNS_1035_LABEL.complaint)
    return errors


def label_key_errors(key: str) -> list[str]:
    """Complaints about the key of a label or annotation: `name` or `prefix/name`."""
    *prefixes, name = key.split("/")
    if len(prefixes) > 1:
        prefix_rule = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_LABEL_NAME.complaint} {prefix_rule}"]
    errors = [
        f"prefix part {error}"
        for prefix in prefixes
        for error in (dns_subdomain_errors(prefix) if prefix else ["must be non-empty"])
    ]
    errors += [f"name part {error}" for error in (_too_long(name, 63) if name else ["must be non-empty"])]
    if not _LABEL_NAME.accepts(name):
        errors.append(f"name part {_LABEL_NAME.complaint}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """Complaints about the value of a label; the empty string is a value."""
    errors = _too_long(value, 63)
    if not _LABEL_VALUE.accepts(value):
        errors.append(_LABEL_VALUE.complaint)
    return errors


def quoted(text: str) -> str:
    r"""`text` in double quotes, with what cannot be seen escaped: how servers show a bad value.

    >>> print(quoted('a "b"\t\x00ü'))
    "a \"b\"\t\x00ü"
    """
    return f'"{"".join(map(_visible, text))}"'


_ESCAPES = {
    '"': r"\"",
    "\\": r"\\",
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


def _visible(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _too_long(value: str, limit: int) -> list[str]:
    too_long = len(value) > limit or len(value.encode(errors="surrogatepass")) > limit
    return [f"must be no more than {limit} bytes"] if too_long else []
