"""Manifests from a folder, a file or standard input: every object with the place it came from.

A document that cannot be read is named with file and line, and all others still count. Secrets are as the API server
keeps them: what `stringData` says is in `data`.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError
from steersman.kube.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Found", "read_manifests"]

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"


class Found(msgspec.Struct, frozen=True):
    """What the files hold."""

    objects: tuple[tuple[str, dict[str, Any]], ...]  # each with FILE:LINE
    problems: tuple[tuple[str, str], ...] = ()  # FILE:LINE, and what is wrong there


def read_manifests(names: Iterable[str]) -> Found:
    """All objects of folders (with what is below them), files, and `-` for standard input."""
    objects: list[tuple[str, dict[str, Any]]] = []
    problems: list[tuple[str, str]] = []
    for path, text in _texts(names):
        for document in Document.parse_all(text, path):
            if isinstance(document, ConfigError):
                problems.append((document.where or str(path), document.message))
                continue
            where = f"{path}:{document.first_line}"
            for value in _items(document.value):
                complaint = _complaint(value)
                if complaint:
                    problems.append((where, complaint))
                else:
                    objects.append((where, _stored(value)))
    return Found(tuple(objects), tuple(problems))


def _texts(names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name == STDIN:
            yield Path("<stdin>"), sys.stdin.read()
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
            if not files:
                raise ConfigError(f"there is no {', '.join(SUFFIXES)} file in it", where=name)
        else:
            files = [path]
        for file in files:
            yield file, _read(file)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such file or folder", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("is not a text file in UTF-8", where=str(path)) from None


def _items(value: Any) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _items(item)
    else:
        yield value


def _complaint(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "is not a Kubernetes object (apiVersion, kind, metadata)"
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            return f"{field}: is missing"
    meta = value.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        return "metadata.name: is missing"
    return None


def _stored(value: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server keeps it: `stringData` of a Secret is only a way to write `data`, and wins."""
    texts = value.get("stringData")
    if value["kind"] != "Secret" or value["apiVersion"] != "v1" or not isinstance(texts, dict):
        return value
    kept = {key: one for key, one in value.items() if key != "stringData"}
    data = value.get("data")
    written = {key: b64encode(str("" if one is None else one).encode()).decode() for key, one in texts.items()}
    return {**kept, "data": {**(data if isinstance(data, dict) else {}), **written}}
