"""Python files named on the command line: what they define, and errors that say where."""

from __future__ import annotations

import importlib
import importlib.util
import reprlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import ConfigError, SteersmanError

if TYPE_CHECKING:
    from types import ModuleType

_DECLARED: Final = "controllers()"


class _SourceLoader(SourceFileLoader):
    """Reads the source each time: cached bytecode stays in use after a second save within the same second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"no bytecode for {path}")


def load_python(name: str) -> ModuleType:
    """The module in a file, or of a dotted name; ConfigError says which line of it went wrong."""
    if not name.endswith(".py"):
        with _located(name, name):
            return importlib.import_module(name)
    path = Path(name)
    if not path.is_file():
        raise ConfigError("no such file", where=name)
    stem = path.stem.replace("-", "_")
    # never in the place of another module: a file may well be called types.py
    called = f"file_{stem}" if stem in sys.modules else stem
    spec = importlib.util.spec_from_file_location(called, path, loader=_SourceLoader(called, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _located(name, spec.name):
        spec.loader.exec_module(module)
    return module


def controllers_in(module: ModuleType) -> list[Any]:
    """The controllers a module defines, in the order it names them; `controllers()` wins when there is one."""
    from steersman.runtime.controller.builder import Controller

    declared = vars(module).get("controllers")
    if declared is None:
        return [value for value in vars(module).values() if isinstance(value, Controller)]
    where = str(module.__file__)
    if callable(declared):
        with _located(where, module.__name__):
            declared = declared()
            declared = list(declared) if isinstance(declared, Iterator) else declared
    if not isinstance(declared, Iterable):
        raise ConfigError(f"is {_shown(declared)}, and should be a list of controllers", where=where, field=_DECLARED)
    found = list(declared)
    for place, value in enumerate(found):
        if not isinstance(value, Controller):
            raise ConfigError(f"{_shown(value)} is not a controller", where=where, field=f"{_DECLARED}[{place}]")
    return found


def bundle_in(module: ModuleType) -> Any:
    """The controllers of a module as an operator with tables, where it defines `tables(cluster)`; else None."""
    from steersman.runtime.manager.operator_bundle import OperatorBundle

    tables, headline = vars(module).get("tables"), vars(module).get("headline")
    if not callable(tables):
        return None
    return OperatorBundle(
        controllers=controllers_in(module), tables=tables, headline=headline if callable(headline) else None
    )


def _shown(value: object) -> str:
    """A short name of a value: functions have an address in their repr."""
    return getattr(value, "__qualname__", None) or reprlib.repr(value)


@contextmanager
def _located(name: str, module: str) -> Iterator[None]:
    """Whatever the Python code of a person raises, as one line that names the innermost line of theirs.

    The error itself stays its cause, for --debug. `module` is what the code calls itself.
    """
    try:
        yield
    except SyntaxError as error:
        raise ConfigError(f"is not Python: {error.msg}", where=f"{error.filename or name}:{error.lineno}") from error
    except Exception as error:
        where = _innermost(error, name, module)
        said = " ".join(str(error).split())
        if isinstance(error, ImportError):
            hint = " (part of a package: name it as a module, package.name)" if "relative import" in said else ""
            raise ConfigError(f"cannot be imported: {said}{hint}", where=where) from error
        known = isinstance(error, SteersmanError)
        text = said if known and said else ": ".join(filter(None, (type(error).__name__, said)))
        raise ConfigError(text, where=where) from error


def _innermost(error: Exception, name: str, module: str) -> str:
    """FILE:LINE of the last frame that runs the module, or the package that it is part of."""
    package = module.partition(".")[0]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        running = frame.f_globals.get("__name__", "")
        if running == module:
            return f"{name if name.endswith('.py') else frame.f_code.co_filename}:{line}"
        if running == package or running.startswith(f"{package}."):
            return f"{frame.f_code.co_filename}:{line}"
    return name


def hooks_in(modules: Iterable[ModuleType]) -> list[Any]:
    """The webhooks of modules, each once, and the conversion of kinds that have a hub and spokes in them."""
    from steersman.kube.api.objects import Resource
    from steersman.runtime.webhook.admission import Webhook
    from steersman.runtime.webhook.conversion import ConversionWebhook

    values = list({id(value): value for module in modules for value in vars(module).values()}.values())
    found: list[Any] = [value for value in values if isinstance(value, Webhook | ConversionWebhook)]
    spokes: dict[Any, list[Any]] = {}
    for value in values:
        if isinstance(value, type) and issubclass(value, Resource) and value.HUB is not None:
            spokes.setdefault(value.HUB, []).append(value)
    declared = {hook.name for hook in found if isinstance(hook, ConversionWebhook)}
    conversions = (ConversionWebhook(versions=[*versions, hub]) for hub, versions in spokes.items())
    return [*found, *(hook for hook in conversions if hook.name not in declared)]


def kinds_in(module: ModuleType) -> list[Any]:
    """The custom kinds a module defines itself."""
    from steersman.kube.api.objects import Resource

    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Resource)
        and value.__module__ == module.__name__
        and "KIND" in vars(value)
        and "." in value.KIND.group
    ]
