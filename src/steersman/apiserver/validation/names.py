"""What names, labels and keys may look like. Each question returns the complaints, none when the text is fine.

Labels and annotations are in `kube.api.validation`, because clients check them too; here are the names of objects and
the keys that only a server checks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steersman.apiserver.resources.kinds import NameRule
from steersman.kube.api.validation import dns1035_label_errors, dns_label_errors, dns_subdomain_errors

if TYPE_CHECKING:
    from collections.abc import Callable

_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_RE_CONFIG_KEY = re.compile(_CONFIG_KEY)
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


is_dns1123_label = dns_label_errors  # RFC 1123 label: one part of a host name
is_dns1123_subdomain = dns_subdomain_errors  # RFC 1123 subdomain: a host name
is_dns1035_label = dns1035_label_errors  # RFC 1035 label: begins with a letter


def is_path_segment(text: str) -> list[str]:
    """Fits between two slashes of a path."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in text]


def is_config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret: a file name."""
    if len(text) <= 253 and not text.startswith(".") and _RE_CONFIG_KEY.fullmatch(text):
        return []
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
