"""Python files named on the command line: what they define, and errors that say where."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["controllers_in", "hooks_in", "kinds_in", "load_python"]


def load_python(name: str) -> ModuleType:
    """The module in a file, or of a dotted name."""
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"cannot be imported: {error}", where=name) from None
    path = Path(name)
    if not path.is_file():
        raise ConfigError("there is no such file", where=name)
    stem = path.stem.replace("-", "_")
    # never in the place of another module: a file may well be called types.py
    spec = importlib.util.spec_from_file_location(f"file_{stem}" if stem in sys.modules else stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"is not Python: {error.msg}", where=f"{name}:{error.lineno}") from None
    except ImportError as error:
        hint = " (part of a package: name it as a module, package.name)" if "relative import" in str(error) else ""
        raise ConfigError(f"cannot be imported: {error}{hint}", where=name) from None
    return module


def controllers_in(module: ModuleType) -> list[Any]:
    """The controllers a module defines, in the order it names them; `controllers()` wins when there is one."""
    from steersman.runtime.controller import Controller

    declared = vars(module).get("controllers")
    if callable(declared):
        return list(declared())
    if declared is not None:
        return list(declared)
    return [value for value in vars(module).values() if isinstance(value, Controller)]


def hooks_in(module: ModuleType) -> list[Any]:
    """The webhooks a module defines."""
    from steersman.runtime.admission import Hook

    return [value for value in vars(module).values() if isinstance(value, Hook)]


def kinds_in(module: ModuleType) -> list[Any]:
    """The custom kinds a module defines itself."""
    from steersman.kube.objects import Resource

    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Resource)
        and value.__module__ == module.__name__
        and "KIND" in vars(value)
        and "." in value.KIND.group
    ]
