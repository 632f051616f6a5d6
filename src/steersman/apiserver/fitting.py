"""An object made to fit its type: what the real server's decoder does before anything else looks at it.

Fields that the type does not know are dropped and can be named (fieldValidation), nulls and empty values that mean
nothing go, and defaults are filled in. Built-in kinds are decoded into their recorded types, custom resources into
their structural schemas. Whether values are allowed is not decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import statuses
from steersman.apiserver.strategy import clean_metadata

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo

__all__ = ["fit", "problems_of"]

JSON = dict[str, Any]


def problems_of(info: ResourceInfo, obj: JSON, duplicates: list[str]) -> list[str]:
    """What strict field validation has against `obj`, in the real server's words and order."""
    problems = [f'duplicate field "{path}"' for path in duplicates]
    if info.custom is not None:
        problems += [f'unknown field "{path}"' for path in info.structural.unknown_fields(obj)]
    return problems


def fit(
    info: ResourceInfo, obj: JSON, problems: list[str], validation: str, warnings: list[str], *, patch: bool = False
) -> JSON:
    """`obj` as the server decodes it; raises or warns about `problems` as `validation` says."""
    if problems and validation == "Strict":
        why = f"strict decoding error: {', '.join(problems)}"
        if patch:
            raise statuses.unprocessable()
        raise statuses.bad_request(
            f'{info.kind.kind} in version "{info.kind.version}" cannot be handled as a {info.kind.kind}: {why}'
        )
    if validation == "Warn":
        warnings.extend(problems)
    obj = clean_metadata(obj)
    if info.custom is not None:
        obj = info.structural.admit(obj)
    return obj
