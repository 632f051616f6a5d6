"""Which representation the client wants, from its `Accept` header.

The server speaks JSON and, for single answers, YAML. Protobuf is not spoken: a list of types that names it falls back
to JSON, as every client of the Kubernetes API offers. `as=` asks for a Table or for metadata only.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from steersman.apiserver import statuses

__all__ = ["Media", "negotiate"]

_TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_VIEWS = {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}
_JSON = {"application/json", "application/*", "*/*"}


class Media(msgspec.Struct, frozen=True):
    """The negotiated answer: the encoding, and the transformation asked for by `as=` (empty: none)."""

    yaml: bool = False
    view: str = ""

    @property
    def content_type(self) -> str:
        """For the response header."""
        return "application/yaml" if self.yaml else "application/json"


DEFAULT = Media()


@lru_cache(maxsize=256)
def negotiate(accept: str, *, custom: bool = False) -> Media:
    """The first acceptable type in order of preference. Custom resources refuse in other words."""
    if not accept:
        return DEFAULT
    known = False
    for kind, params in _clauses(accept):
        if kind not in _JSON and kind != "application/yaml":
            continue
        known = True
        view = params.get("as", "")
        if view and (view not in _VIEWS or (params.get("g"), params.get("v")) != ("meta.k8s.io", "v1")):
            continue
        return Media(yaml=kind == "application/yaml", view=view)
    if known or custom:
        raise statuses.not_acceptable(f"only the following media types are accepted: {_TYPES}")
    raise statuses.not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {_TYPES}", listed=True)


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Media types with their parameters, most preferred first."""
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        kind, *parts = (part.strip() for part in clause.split(";"))
        params = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
        try:
            weight = float(params.get("q", "1"))
        except ValueError:
            weight = 1.0
        found.append((weight, kind.lower(), params))
    return [(kind, params) for _, kind, params in sorted(found, key=lambda entry: -entry[0])]
