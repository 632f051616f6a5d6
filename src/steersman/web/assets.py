"""The page's files, as the wheel holds them: ES modules, a style sheet and an icon, without a build step."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files
from typing import Final

__all__ = ["static_digest", "static_files"]

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@functools.lru_cache(maxsize=1)
def static_files() -> dict[str, tuple[bytes, str]]:
    """The page's files: name -> content and its type."""
    found = {}
    for one in files("steersman.web").joinpath("static").iterdir():
        suffix = one.name[one.name.rfind(".") :]
        if suffix in _TYPES:
            found[one.name] = (one.read_bytes(), _TYPES[suffix])
    return found


@functools.lru_cache(maxsize=1)
def static_digest() -> str:
    """Changes with the files, so that browsers may keep them for ever."""
    total = hashlib.sha256()
    for name, (body, _) in sorted(static_files().items()):
        total.update(name.encode() + body)
    return total.hexdigest()[:12]
