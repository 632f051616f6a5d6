"""Dialects of other programs, and the table that says which of them the configuration asks for.

    shipshape   on by default   selector scopes; hashes and a time on the pod template
    xing        on by default   opt-in by annotation; checksums on the workload, a time on its template
    reloader    when named      auto, named and searched sources; a variable or an annotation on the template
    wave        when named      opt-in by annotation; one hash over everything on the template

The native annotations (`steersman.dev/…`) are always understood; `native` in the list says so and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.errors import ConfigError
from steersman.operators.reload.dialects.reloader import Reloader
from steersman.operators.reload.dialects.shipshape import Shipshape
from steersman.operators.reload.dialects.wave import Wave
from steersman.operators.reload.dialects.xing import Xing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.types import Options

__all__ = ["DIALECTS", "dialects_for"]

NATIVE: Final = "native"
DIALECTS: Final[Mapping[str, Callable[[Options], Dialect]]] = {
    "shipshape": lambda options: Shipshape(options.scopes),
    "xing": lambda _: Xing(),
    "reloader": lambda _: Reloader(),
    "wave": lambda _: Wave(),
}


def dialects_for(options: Options) -> tuple[Dialect, ...]:
    """The dialects that the configuration names, each once; ConfigError when there is no such dialect."""
    made = []
    for name in dict.fromkeys(options.dialects):
        if name == NATIVE:
            continue
        if name not in DIALECTS:
            known = ", ".join((NATIVE, *DIALECTS))
            raise ConfigError(f'"{name}" is not a dialect (try {known})', field="reload.dialects")
        made.append(DIALECTS[name](options))
    return tuple(made)
