"""Other programs' hashes, byte by byte. Pure.

Each takes the data of a source as it is on the wire (text in a ConfigMap's `data`, base64 elsewhere) and gives the
text its program would write. Where versions of a program disagree on bytes, all spellings are given, separated by
spaces: the first is the one to write, any of them is one to accept.

    shipshape   sha256, 64 hex   {"key":"value"} in ASCII, `{}` when there is nothing
    xing        sha256, 16 hex   {"key":"value"} as Go writes it, `null` when there is nothing
    reloader    sha1, 40 hex     key=value;key=value, sorted as whole strings
    wave        sha256, 64 hex   {"configMaps":{name:{key:base64}},"secrets":{…}} over all sources together
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.api.config import SourceKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Data = Mapping[str, Any] | None

_HTML: Final = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
_ESCAPE: Final = re.compile(r"\\.")
_BEFORE_1_22: Final = {"\\b": "\\u0008", "\\f": "\\u000c"}


class ShipshapeHash:
    """Over a ConfigMap's `data`; a Secret has none."""

    name = "shipshape"

    def __call__(self, kind: SourceKind, data: Data, binary: Data) -> str:  # noqa: ARG002  # not hashed
        """See the module."""
        if kind is not SourceKind.CONFIGMAP:
            return ""
        return hashlib.sha256(_ascii_json(_texts(data)).encode()).hexdigest()


class XingHash:
    """Over `data` alone, for ConfigMaps and Secrets."""

    name = "xing"

    def __call__(self, kind: SourceKind, data: Data, binary: Data) -> str:  # noqa: ARG002  # not hashed
        """See the module."""
        if kind is SourceKind.PROVIDER_CLASS:
            return ""
        texts = _texts(data)
        if not texts:
            return f"{_short('null')} {_short('{}')}"
        newer = go_json(texts, since_1_22=True)
        if "\\b" not in newer and "\\f" not in newer:  # nearly always, and data may be large
            return _short(newer)
        return " ".join(dict.fromkeys((_short(go_json(texts)), _short(newer))))


class ReloaderHash:
    """Over `data` and `binaryData`, without anything that keeps a value with a `;` apart from two values."""

    name = "reloader"

    def __call__(self, kind: SourceKind, data: Data, binary: Data) -> str:
        """See the module."""
        secret = kind is SourceKind.SECRET
        parts = [_joined(key, raw_bytes(value) if secret else _utf8(value)) for key, value in _texts(data).items()]
        parts += [_joined(key, _utf8(value)) for key, value in _texts(binary).items()]
        return hashlib.sha1(b";".join(sorted(parts)), usedforsecurity=False).hexdigest()


def go_json(texts: Mapping[str, Any], *, since_1_22: bool = False) -> str:
    """Maps of strings as Go's encoding/json writes it; before 1.22 it knew no short form for two control characters."""
    text = json.dumps(texts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for raw, escaped in _HTML:
        if raw in text:
            text = text.replace(raw, escaped)
    if not since_1_22 and ("\\b" in text or "\\f" in text):
        text = _ESCAPE.sub(lambda found: _BEFORE_1_22.get(found.group(), found.group()), text)
    return text


def wave_data(
    kind: SourceKind, data: Data, binary: Data, keys: Collection[str] | None, *, encoded: bool = True
) -> dict[str, str]:
    """The part of one source that goes into wave's hash, of the keys that are used.

    Values are base64; earlier releases took the text of ConfigMaps as it is, and no binary data.
    """
    plain = kind is SourceKind.CONFIGMAP
    found = _texts(data)
    if plain and encoded:
        found = {key: b64encode(_utf8(value)).decode() for key, value in found.items()} | _texts(binary)
    return {key: value for key, value in found.items() if keys is None or key in keys}


def wave_hash(configmaps: Mapping[str, Mapping[str, str]], secrets: Mapping[str, Mapping[str, str]]) -> str:
    """Wave's hash over everything a workload uses."""
    return hashlib.sha256(_utf8(go_json({"configMaps": configmaps, "secrets": secrets}))).hexdigest()


def raw_bytes(text: str) -> bytes:
    """The bytes behind base64; invalid base64 is taken as it is."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return _utf8(text)


def _texts(data: Data) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in (data or {}).items()}


def _ascii_json(texts: Mapping[str, str]) -> str:
    return json.dumps(texts, sort_keys=True, separators=(",", ":"))


def _short(text: str) -> str:
    return hashlib.sha256(_utf8(text)).hexdigest()[:16]


def _joined(key: str, value: bytes) -> bytes:
    return b"%b=%b" % (_utf8(key), value)


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
