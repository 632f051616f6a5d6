"""The page's files, as the wheel holds them: ES modules, a style sheet, an icon and the runbooks; no build step."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Final

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@functools.lru_cache(maxsize=1)
def static_files() -> dict[str, tuple[bytes, str]]:
    """The page's files: name -> content and its type."""
    found = {}
    for file in files("steersman.web").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _TYPES:
            found[file.name] = (file.read_bytes(), _TYPES[suffix])
    return found


@functools.lru_cache(maxsize=1)
def static_digest() -> str:
    """Changes with the files, so that browsers may keep them for ever."""
    total = hashlib.sha256()
    for name, (body, _) in sorted(static_files().items()):
        total.update(name.encode() + body)
    return total.hexdigest()[:12]


@functools.lru_cache(maxsize=1)
def runbooks() -> dict[str, str]:
    """The runbooks: name -> Markdown. In a wheel they are beside this module, in a checkout in `docs/`."""
    here = Path(__file__)
    for folder in (here.parent / "runbooks", here.parents[3] / "docs" / "runbooks"):
        if folder.is_dir():
            return {file.stem: file.read_text() for file in sorted(folder.glob("*.md")) if file.stem != "index"}
    return {}
