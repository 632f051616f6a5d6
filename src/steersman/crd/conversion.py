"""Versions of a kind, converted by way of its hub. Pure.

    class Rope(Resource, group="example.org", version="v2"): ...                       the hub

    class RopeV1(Resource, group="example.org", version="v1", kind="Rope", hub=Rope):  a spoke
        def convert_to(self) -> Rope: ...
        @classmethod
        def convert_from(cls, hub: Rope) -> RopeV1: ...

Invariant: an object keeps its metadata. A conversion may change labels and annotations only, as the API server demands;
what it does not mention of them stays. Between two spokes, the way leads over the hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.crd.partial_objects import decode_partial
from steersman.errors import SteersmanError
from steersman.kube.api.objects import Resource, to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.objects import ObjectMeta

__all__ = ["ConversionError", "conversion_path", "convert", "hub_of", "via_hub"]


class ConversionError(SteersmanError):
    """An object cannot be had in another version: which object, and why."""


def hub_of(versions: Sequence[type[Resource]]) -> type[Resource] | None:
    """The hub of these versions; None when they differ in name only. All others must be its spokes."""
    hubs = {cls.HUB for cls in versions if cls.HUB is not None}
    if not hubs:
        return None
    hub = next(iter(hubs))
    strangers = [cls.__name__ for cls in versions if cls is not hub and cls.HUB is not hub]
    if hub not in versions or strangers:
        problem = f"{', '.join(strangers)} must name hub={hub.__name__}" if strangers else f"{hub.__name__} is missing"
        raise SteersmanError(f"all versions of {hub.KIND} are converted by way of their hub: {problem}")
    return hub


def conversion_path(cls: type[Resource]) -> str:
    """Where the API server finds the conversion webhook of a kind."""
    return f"/convert/{cls.KIND.group}/{cls.KIND.plural}"


def convert(versions: Sequence[type[Resource]], obj: dict[str, Any], api_version: str) -> dict[str, Any]:
    """`obj`, as plain JSON data, in the version `api_version`; ConversionError says why it cannot be had."""
    known = {cls.KIND.api_version: cls for cls in versions}
    source = obj.get("apiVersion", "")
    if source == api_version:
        return obj
    meta = obj.get("metadata") or {}
    name = "/".join(filter(None, (meta.get("namespace"), meta.get("name") or meta.get("generateName"))))
    try:
        for version in (source, api_version):
            if version not in known:
                raise ConversionError(f"unknown version (known: {', '.join(sorted(known))})")  # noqa: TRY301
        before = decode_partial(obj, known[source])
        after = via_hub(before, known[api_version])
        body = {**to_wire(after), "metadata": _metadata(meta, after.metadata)}
        # A section that the version has and the object has not (of an apply, or not yet reported) stays away.
        missing = set(known[source].__struct_encode_fields__) - obj.keys()
        return {key: value for key, value in body.items() if key not in missing}
    except Exception as error:
        expected = isinstance(error, ValueError | SteersmanError)
        why = str(error) if expected else f"{type(error).__name__}: {error}"
        raise ConversionError(f"{obj.get('kind')} {name} from {source} to {api_version}: {why}") from error


def via_hub(obj: Resource, target: type[Resource]) -> Any:
    """`obj` as an object of `target`, another version of its kind."""
    source: Any = type(obj)
    if source is target:
        return obj
    if source.HUB is not None:
        obj = _returned(f"{source.__name__}.convert_to", obj.convert_to(), source.HUB)  # type: ignore[attr-defined]
    if target.HUB is not None:
        spoke: Any = target
        obj = _returned(f"{target.__name__}.convert_from", spoke.convert_from(obj), target)
    return obj


def _returned(function: str, value: Any, wanted: type[Resource]) -> Any:
    if not isinstance(value, wanted):
        raise ConversionError(f"{function} returned {type(value).__name__}, not {wanted.__name__}")
    return value


def _metadata(before: dict[str, Any], after: ObjectMeta) -> dict[str, Any]:
    """The metadata of an object after a conversion, which passed it on, or made new metadata."""
    kept = dict(before)
    for field in ("labels", "annotations"):
        value = getattr(after, field)
        if value is not None:
            kept[field] = value
        elif after.name or after.generate_name:
            kept.pop(field, None)
    return kept
