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
from steersman.kube.config.yaml_document import YamlDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"


class Manifests(msgspec.Struct, frozen=True):
    """What the files hold."""

    objects: tuple[tuple[str, dict[str, Any]], ...]  # each with FILE:LINE
    problems: tuple[tuple[str, str], ...] = ()  # FILE:LINE, and what is wrong there


def read_manifests(names: Iterable[str]) -> Manifests:
    """All objects of folders (with what is below them), files, and `-` for standard input."""
    objects: list[tuple[str, dict[str, Any]]] = []
    problems: list[tuple[str, str]] = []
    for path, text in _texts(names):
        for document in YamlDocument.parse_all(text, path):
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
    return Manifests(tuple(objects), tuple(problems))


def _texts(names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name == STDIN:
            yield Path("<stdin>"), sys.stdin.read()
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not files:
                raise ConfigError(f"no {', '.join(SUFFIXES)} file in this folder", where=name)
        else:
            files = [path]
        for file in files:
            yield file, _read(file)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("no such file or folder", where=str(path)) from None
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
    kept = {key: part for key, part in value.items() if key != "stringData"}
    data = value.get("data")
    written = {key: b64encode(str("" if text is None else text).encode()).decode() for key, text in texts.items()}
    return {**kept, "data": {**(data if isinstance(data, dict) else {}), **written}}
