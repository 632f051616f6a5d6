"""Dialects of other programs, and the table that says which of them the configuration asks for.

    shipshape   on by default   selector scopes; hashes and a time on the pod template
    xing        on by default   opt-in by annotation; checksums on the workload, a time on its template
    reloader    when named      auto, named and searched sources; a variable or an annotation on the template
    wave        when named      opt-in by annotation; one hash over everything on the template

The native annotations (`steersman.dev/…`) are always read; `native` in the list has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.errors import ConfigError
from steersman.operators.reload.compat.dialects.reloader import Reloader
from steersman.operators.reload.compat.dialects.shipshape import Shipshape
from steersman.operators.reload.compat.dialects.wave import Wave
from steersman.operators.reload.compat.dialects.xing import Xing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.compat.dialect import Dialect

__all__ = ["DIALECTS", "dialects_for", "dialects_off"]

NATIVE: Final = "native"
DIALECTS: Final[Mapping[str, Callable[[ReloadOptions], Dialect]]] = {
    "shipshape": lambda options: Shipshape(options.scopes),
    "xing": lambda _: Xing(),
    "reloader": lambda options: Reloader(
        strategy=options.reloader.reload_strategy, auto_all=options.reloader.auto_reload_all
    ),
    "wave": lambda _: Wave(),
}


# what names the annotations of dialects that are off by default
_MARKS: Final[Mapping[str, str]] = {"reloader": "reloader.stakater.com/", "wave": "wave.pusher.com/"}


def dialects_off(options: ReloadOptions, annotations: Iterable[str]) -> list[str]:
    """The dialects that these annotations are written in and that the configuration does not name.

    >>> from steersman.operators.reload.api.config import ReloadOptions
    >>> dialects_off(ReloadOptions(), ["secret.reloader.stakater.com/auto"])
    ['reloader']
    """
    written = list(annotations)
    return [
        name
        for name, mark in _MARKS.items()
        if name not in options.dialects and any(key.startswith(mark) or f".{mark}" in key for key in written)
    ]


def dialects_for(options: ReloadOptions) -> tuple[Dialect, ...]:
    """The dialects that the configuration names, each once; ConfigError when a dialect is unknown."""
    made = []
    for name in dict.fromkeys(options.dialects):
        if name == NATIVE:
            continue
        if name not in DIALECTS:
            known = ", ".join((NATIVE, *DIALECTS))
            raise ConfigError(f'"{name}" is not a dialect (try {known})', field="reload.dialects")
        made.append(DIALECTS[name](options))
    return tuple(made)
