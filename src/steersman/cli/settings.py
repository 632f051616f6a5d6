"""What `steersman run` is told, from four places: flags > environment (`STEERSMAN_…`) > `--config` file > defaults.

One typed schema: it validates with the line of the file, and prints its own reference. Sections of operators bear the
operator's name and are typed by the operator, so a section of one that does not run is still checked.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import ConfigError
from steersman.operators import OPERATORS, load_operator

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Settings", "load_settings"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration file, without the operators' sections."""

    operators: list[str] = []  # which to run
    listen: str | None = None  # ADDRESS:PORT of health, metrics and the page; None: by where we run
    leader_elect: bool = False
    lease: str | None = None  # NAMESPACE/NAME
    workers: int | None = None  # keys a controller works on at once; None: the controller's own number
    namespaces: list[str] | None = None  # only these; None: all
    dry_run: bool = False
    sections: dict[str, Any] = {}  # operator -> its configuration, typed


def load_settings(path: Path | None) -> Settings:
    """What the file says; defaults without one. Raises ConfigError with line and field."""
    if path is None:
        return Settings(sections={name: _default(name) for name in OPERATORS})
    from steersman.kube.document import Document

    try:
        document = Document.read(path)
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=str(path)) from None
    if not isinstance(document.value or {}, dict):
        raise document.error("must be a mapping of settings", [])
    own = {field.encode_name for field in msgspec.structs.fields(Settings)} - {"sections"}
    for key in document.value or {}:
        if key not in own and key not in OPERATORS:
            raise document.error(f"is not a setting{_hint(key, {*own, *OPERATORS})}", [key])
    sections = {}
    for name in OPERATORS:
        shape = load_operator(name).config
        if shape is None:
            continue
        whole = msgspec.defstruct("_File", [(name, shape, msgspec.field(default_factory=shape))])
        sections[name] = getattr(document.convert(whole), name)
    return msgspec.structs.replace(document.convert(Settings), sections=sections)


def _default(name: str) -> Any:
    shape = load_operator(name).config
    return None if shape is None else shape()


def _hint(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f' (did you mean "{near[0]}"?)' if near else f" (known: {', '.join(sorted(known))})"
