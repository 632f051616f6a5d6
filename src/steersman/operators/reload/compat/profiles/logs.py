"""The log of shipshape: one JSON object per line with `ts`, `level`, `logger`, `msg` and, after an error, `error`.

What looks like a credential is replaced, wherever it stands in a message or a traceback.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_HIDDEN: Final = "[REDACTED]"
_SECRETS: Final = (
    (re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]+"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?i)([?&](?:token|access_token|api_key|password)=)[^&\s\"']+"), rf"\1{_HIDDEN}"),
    (
        re.compile(
            r"(?i)\b((?:authorization|token|password|passwd|secret|api_key|api-key)[\"']?\s*[:=]\s*[\"']?)"
            r"(?!\[REDACTED\]|(?i:bearer)\s)[^\s\"',;&}]+"
        ),
        rf"\1{_HIDDEN}",
    ),
)


def redacted(text: str) -> str:
    """The text without credentials.

    >>> redacted("Authorization: Bearer abc.def password=hunter2")
    'Authorization: Bearer [REDACTED] password=[REDACTED]'
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def shipshape_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """One line; what a message carries beside its text follows it as `key=value`."""
    fields = dict(event)
    message = str(fields.pop("event", ""))
    line = {
        "ts": fields.pop("timestamp", ""),
        "level": str(fields.pop("level", "info")).upper(),
        "logger": fields.pop("logger", "steersman"),
    }
    error = fields.pop("traceback", None) or fields.pop("exception", None)
    extra = " ".join(f"{name}={value}" for name, value in fields.items())
    line["msg"] = redacted(f"{message} {extra}".strip())
    if error:
        line["error"] = redacted(str(error))
    return msgspec.json.encode(line).decode()
