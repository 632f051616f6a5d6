"""Packages whose names are loaded on first use, from one list: the stub file that type checkers read.

    steersman/__init__.pyi    from steersman.clock import Clock as Clock
    steersman/__init__.py     __getattr__, __dir__ = attach(__name__, __file__)

Importing such a package therefore loads none of its modules, and no name is written twice. `X as X` is how a stub
re-exports a name, and `import *` all names in the `__all__` of a module (PEP 484). Scientific Python packages do the
same (SPEC 1).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["attach", "imported_names"]


def attach(package: str, path: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The package's `__getattr__` and `__dir__`; `__all__` is what its stub imports."""
    modules: dict[str, str] = {}  # name -> module; read on first use

    def __getattr__(name: str) -> Any:  # noqa: N807  # Python's name for it
        import importlib

        if not modules:
            modules.update(imported_names(f"{path}i"))
        if name == "__all__":
            value: Any = sorted(modules, key=lambda name: (not name.isupper(), name[0].islower(), name))
        elif name in modules:
            value = getattr(importlib.import_module(modules[name]), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807  # Python's name for it
        return sorted(__getattr__("__all__"))

    return __getattr__, __dir__


def imported_names(stub: str) -> dict[str, str]:
    """Name -> module, of every `from … import` of a stub file; `*` is what the module lists in its `__all__`."""
    import ast
    import importlib
    from pathlib import Path

    statements = [node for node in ast.parse(Path(stub).read_bytes()).body if isinstance(node, ast.ImportFrom)]
    imported = [(alias.name, node.module or "") for node in statements for alias in node.names]
    return {
        each: module
        for name, module in imported
        for each in (importlib.import_module(module).__all__ if name == "*" else [name])
    }
