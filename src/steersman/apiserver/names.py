"""What names, labels and keys may look like. Each question returns the complaints, none when the text is fine.

The sentences are part of the server's answers and quoted exactly, down to "bytes" in one and "characters" in another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steersman.apiserver.kinds import NameRule

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "NAME_RULES",
    "is_config_key",
    "is_dns1035_label",
    "is_dns1123_label",
    "is_dns1123_subdomain",
    "is_env_name",
    "is_label_key",
    "is_label_value",
    "is_path_segment",
    "is_port_name",
    "is_port_number",
    "range_text",
    "regex_text",
]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_RE_LABEL = re.compile(_LABEL)
_RE_SUBDOMAIN = re.compile(_SUBDOMAIN)
_RE_DNS1035 = re.compile(_DNS1035)
_RE_KEY = re.compile(_KEY)
_RE_VALUE = re.compile(_VALUE)
_RE_CONFIG_KEY = re.compile(_CONFIG_KEY)

_EDGES = "and must start and end with an alphanumeric character"
_LABEL_TEXT = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_EDGES}"
_SUBDOMAIN_TEXT = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_EDGES}"
)
_DNS1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_KEY_TEXT = f"must consist of alphanumeric characters, '-', '_' or '.', {_EDGES}"
_VALUE_TEXT = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_EDGES}"
_CONFIG_KEY_TEXT = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def regex_text(text: str, pattern: str, *examples: str) -> str:
    """How the server explains that a text does not match."""
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def range_text(low: int, high: int) -> str:
    """How the server explains that a number is out of range."""
    return f"must be between {low} and {high}, inclusive"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def is_dns1123_label(text: str) -> list[str]:
    """RFC 1123 label: one part of a host name."""
    found = ["must be no more than 63 characters"] if _size(text) > 63 else []
    if _RE_LABEL.fullmatch(text) is None:
        dotted = _RE_SUBDOMAIN.fullmatch(text) is not None
        found.append("must not contain dots" if dotted else regex_text(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return found


def is_dns1123_subdomain(text: str) -> list[str]:
    """RFC 1123 subdomain: a host name."""
    found = ["must be no more than 253 characters"] if _size(text) > 253 else []
    if _RE_SUBDOMAIN.fullmatch(text) is None:
        found.append(regex_text(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return found


def is_dns1035_label(text: str) -> list[str]:
    """RFC 1035 label: begins with a letter."""
    found = ["must be no more than 63 characters"] if _size(text) > 63 else []
    if _RE_DNS1035.fullmatch(text) is None:
        found.append(regex_text(_DNS1035_TEXT, _DNS1035, "my-name", "abc-123"))
    return found


def is_path_segment(text: str) -> list[str]:
    """Fits between two slashes of a path."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in text]


def is_label_key(text: str) -> list[str]:
    """`name` or `prefix/name`; also the rule of annotations (in lower case), finalizers and condition types."""
    parts = text.split("/")
    explained = regex_text(_KEY_TEXT, _KEY, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        return [
            f"a valid label key {explained} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found: list[str] = []
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            complaints = is_dns1123_subdomain(parts[0])
            found += [
                f"prefix part {complaint.replace('characters', 'bytes') if 'no more' in complaint else complaint}"
                for complaint in complaints
            ]
    if not name:
        found.append("name part must be non-empty")
    elif _size(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if _RE_KEY.fullmatch(name) is None:
        found.append(f"name part {explained}")
    return found


def is_label_value(text: str) -> list[str]:
    """The value of a label; may be empty."""
    found = ["must be no more than 63 bytes"] if _size(text) > 63 else []
    if _RE_VALUE.fullmatch(text) is None:
        found.append(regex_text(_VALUE_TEXT, _VALUE, "MyValue", "my_value", "12345"))
    return found


def is_config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret: a file name."""
    found = ["must be no more than 253 characters"] if _size(text) > 253 else []
    if _RE_CONFIG_KEY.fullmatch(text) is None:
        found.append(regex_text(_CONFIG_KEY_TEXT, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in {".", ".."}:
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return found


def is_port_name(text: str) -> list[str]:
    """The name of a port (IANA service name)."""
    found = ["must be no more than 15 characters"] if _size(text) > 15 else []
    if re.fullmatch(r"[-a-z0-9]+", text) is None:
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if re.search(r"[a-z]", text) is None:
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def is_port_number(port: int) -> list[str]:
    """1 to 65535."""
    return [] if 1 <= port <= 65535 else [range_text(1, 65535)]


def is_env_name(text: str) -> list[str]:
    """The name of an environment variable."""
    found = [] if text else ["environment variable name must be non-empty"]
    if any(not " " <= char <= "~" or char == "=" for char in text):
        found.append("a valid environment variable name must consist only of printable ASCII characters other than '='")
    return found


NAME_RULES: dict[NameRule, Callable[[str], list[str]]] = {
    NameRule.SUBDOMAIN: is_dns1123_subdomain,
    NameRule.LABEL: is_dns1123_label,
    NameRule.SEGMENT: is_path_segment,
}
