"""Writes `docs/where-things-are.md`: every package, its docstring, and the first sentence of each of its modules.

The page is committed, so that it can be read in a repository browser; `tests/unit/docs/test_where_things_are.py` fails
when it is out of date. To change a text on it, change the docstring and run this again.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "steersman"
PAGE = ROOT / "docs" / "where-things-are.md"
DOCSTRING = re.compile(r'r?""".+?"""', re.DOTALL)
LAYERS = ("kube", "cache", "crd", "runtime", "operators", "apiserver", "simulate", "testing", "web", "cli")

INTRODUCTION = """# Where things are

<!-- Generated from the docstrings by tools/where_things_are.py. -->

Each folder is a concept, and each file name says what the file decides. Packages import only what is below them;
import contracts in `pyproject.toml` hold this drawing:

```text
  cli           one folder per group of commands
   │
  web           the status page and its JSON API
   │
  operators     reload   dns   toolset   hourglass       simulate   controllers that make workloads
   │            (none imports another)                    │         behave on the embedded server
   ├──────────────────────────────────────────────────────┘
  runtime       workqueue, controller, reconcile, leader election, sharding, manager, webhook, HTTP
   │
  cache         list and watch, kept as a consistent store        crd   kinds from Python types
   │                                                               │
  kube          client ► transport ► config ► api  ◄───────────────┘
                                               ▲
  apiserver     the embedded API server: uses kube/api only
  testing       fixtures for authors of operators: nothing imports it
```

Inside an operator: `api` (what people write) < the folders of its decisions < `controllers` < `inspect` (read-only
questions of the command line and the page).
"""


def page() -> str:
    """The page as it should be."""
    return INTRODUCTION + "".join(_package(SOURCE / layer) for layer in LAYERS)


def _package(folder: Path) -> str:
    name = folder.relative_to(SOURCE).as_posix()
    depth = name.count("/")
    modules = [path for path in sorted(folder.glob("*.py")) if path.name not in ("__init__.py", "__main__.py")]
    parts = [f"\n{'#' * (2 + depth)} `{name}`\n\n{_markdown(_docstring(folder / '__init__.py'))}\n"]
    if modules:
        rows = [f"| `{path.name}` | {_first_sentence(_docstring(path))} |\n" for path in modules]
        parts += ["\n| file | what it is |\n|---|---|\n", *rows]
    packages = (path for path in sorted(folder.iterdir()) if (path / "__init__.py").exists())
    return "".join([*parts, *map(_package, packages)])


def _docstring(path: Path) -> str:
    begins = DOCSTRING.match(path.read_text())  # quicker than to parse the whole module
    if not begins:
        raise SystemExit(f"error: {path.relative_to(ROOT)}: has no docstring")
    return inspect.cleandoc(ast.literal_eval(begins[0]))


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0].replace("|", "\\|")


def _markdown(text: str) -> str:
    """Indented blocks of a docstring are drawings or code: fence them."""
    return "\n".join(_fenced(text.splitlines())).rstrip()


def _fenced(lines: list[str]) -> Iterator[str]:
    block: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line)
            continue
        if block:
            yield from _block(block)
            block = []
        yield line
    if block:
        yield from _block(block)


def _block(lines: list[str]) -> Iterator[str]:
    body = "\n".join(lines).rstrip("\n").split("\n")
    yield "```text"
    yield from (line.removeprefix("    ") for line in body)
    yield from ("```", "")


if __name__ == "__main__":
    PAGE.write_text(page())
