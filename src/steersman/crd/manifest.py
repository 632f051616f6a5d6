"""Resource classes -> CustomResourceDefinition manifests, ready for `kubectl apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.crd.conversion import conversion_path, hub_of
from steersman.crd.markers import PrinterColumn
from steersman.crd.schema import columns_of, schema_of, selectable_of
from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.kube.api.objects import Resource

__all__ = ["crd_manifest", "crd_name"]

AGE = PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date")


def crd_name(cls: type[Resource]) -> str:
    """`plural.group`, the name of the definition."""
    return cls.KIND.qualified


def crd_manifest(
    *versions: type[Resource], conversion: Callable[[str], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The definition of one kind. Give its versions oldest first: the last one is stored, unless there is a hub.

    `conversion(path)` says how the API server reaches the conversion webhook, which versions with a hub need, such as
    `{"service": {"name": …, "namespace": …, "path": path}}`.
    """
    _same_kind(versions)
    stored = _stored(versions)
    kind, options = stored.KIND, stored.DEFINITION
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if options.short_names:
        names["shortNames"] = list(options.short_names)
    if options.categories:
        names["categories"] = list(options.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd_name(stored)},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(cls, storage=cls is stored) for cls in versions],
            **_conversion(versions, conversion),
        },
    }


def _same_kind(versions: Sequence[type[Resource]]) -> None:
    identities = {(cls.KIND.qualified, cls.KIND.kind, cls.KIND.namespaced) for cls in versions}
    if len(identities) != 1:
        raise SteersmanError(f"one definition holds one kind, not {sorted(identities)}")


def _stored(versions: Sequence[type[Resource]]) -> type[Resource]:
    asked = [cls for cls in versions if cls.DEFINITION.storage]
    if len(asked) > 1:
        names = ", ".join(cls.__name__ for cls in asked)
        raise SteersmanError(f"objects are stored in one version: storage=True is on {names}")
    return asked[0] if asked else hub_of(versions) or versions[-1]


def _conversion(
    versions: Sequence[type[Resource]], client_config: Callable[[str], dict[str, Any]] | None
) -> dict[str, Any]:
    hub = hub_of(versions)
    if hub is None:
        return {}
    if client_config is None:
        raise SteersmanError(
            f"{hub.KIND} is converted by a webhook: crd_manifest(…, conversion=…) says how the API server reaches it"
        )
    webhook = {"clientConfig": client_config(conversion_path(hub)), "conversionReviewVersions": ["v1"]}
    return {"conversion": {"strategy": "Webhook", "webhook": webhook}}


def _version(cls: type[Resource], *, storage: bool) -> dict[str, Any]:
    schema = schema_of(cls, skip=frozenset({"metadata"}))
    properties = schema.setdefault("properties", {})
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **properties,
    }
    subresources: dict[str, Any] = {}
    if "status" in properties:
        properties["status"].pop("default", None)  # a status is written by its controller, never by defaulting
        subresources["status"] = {}
    if (scale := cls.DEFINITION.scale) is not None:
        subresources["scale"] = {
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
            **({"labelSelectorPath": scale.selector} if scale.selector else {}),
        }
    version: dict[str, Any] = {"name": cls.KIND.version, "served": cls.DEFINITION.served, "storage": storage}
    if cls.DEFINITION.deprecated:
        version["deprecated"] = True
        if isinstance(cls.DEFINITION.deprecated, str):
            version["deprecationWarning"] = cls.DEFINITION.deprecated
    version["schema"] = {"openAPIV3Schema": schema}
    if subresources:
        version["subresources"] = subresources
    columns = [*columns_of(cls), *cls.DEFINITION.columns]
    if columns:
        version["additionalPrinterColumns"] = [_column(column) for column in [*columns, AGE]]
    if selectable := selectable_of(cls):
        version["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return version


def _column(column: PrinterColumn) -> dict[str, Any]:
    printed: dict[str, Any] = {"name": column.name, "type": column.type or "string", "jsonPath": column.json_path}
    if column.description:
        printed["description"] = column.description
    if column.priority:
        printed["priority"] = column.priority
    return printed
