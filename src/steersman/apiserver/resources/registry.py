"""What is served right now: the built-in resources plus the custom ones whose definitions are established.

The registry is the single answer to "what is this group, version and plural?". Installing a definition does what the
naming and establishing controllers of the real server do, at once: names are claimed per group, first come first
served; a definition is *established* once all its names are accepted, and only established definitions are served.
Invariant: within a group no two definitions hold the same name or kind, and `revision` rises with every change of
what is served, so whatever is derived from the registry (discovery, OpenAPI) may be cached by it.

Nothing here stores objects: the caller writes the returned statuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.resources.conversion_webhook import WebhookConversion
from steersman.apiserver.resources.kinds import BUILTINS, Column, CustomType, ResourceInfo, ScalePaths
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON = dict[str, Any]

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
_NAMES = ("plural", "singular", "shortNames", "kind", "listKind")

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {"alpha": 0, "beta": 1, None: 2}


def version_order(version: str) -> tuple[int, ...]:
    """Sort key that puts the preferred version first: v2, v1, v1beta2, v1beta1, v1alpha1, then the rest by name.

    >>> sorted(["v1alpha1", "foo", "v1", "v2beta1", "v10", "bar"], key=version_order)
    ['v10', 'v1', 'v2beta1', 'v1alpha1', 'bar', 'foo']
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, *version.encode())
    major, stability, minor = match.groups()
    return (0, -_STABILITY[stability], -int(major), -int(minor or 0))


def condition(definition: JSON, kind: str) -> JSON | None:
    """The condition of type `kind` of a definition."""
    conditions: list[JSON] = (definition.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind), None)


class Installation(msgspec.Struct, frozen=True):
    """What installing a definition came to."""

    name: str
    definition: JSON  # with its final status
    statuses: tuple[JSON, ...]  # the statuses to write, in order; empty when nothing changed
    resources: tuple[ResourceInfo, ...]  # what is served because of it, one per served version


class Registry:
    """The resources an API server serves."""

    def __init__(self, builtins: Iterable[ResourceInfo] = BUILTINS) -> None:
        self._builtins = tuple(builtins)
        self._definitions: dict[str, JSON] = {}
        self._custom: dict[str, tuple[ResourceInfo, ...]] = {}
        self._paths: dict[tuple[str, str, str], ResourceInfo] = {}
        self._kinds: dict[tuple[str, str, str], ResourceInfo] = {}
        self._resources: tuple[ResourceInfo, ...] = ()
        self._revision = 0
        self._rebuild()

    @property
    def revision(self) -> int:
        """Rises whenever what is served changes."""
        return self._revision

    def lookup(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        """The resource at `/apis/GROUP/VERSION/PLURAL`."""
        return self._paths.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ResourceInfo | None:
        """The resource that objects of this kind belong to."""
        return self._kinds.get((group, version, kind))

    def resources(self) -> tuple[ResourceInfo, ...]:
        """Everything served, in the order of discovery: built-in groups, then custom groups by name."""
        return self._resources

    def definition(self, name: str) -> JSON | None:
        """The installed definition of that name, with its current status."""
        return self._definitions.get(name)

    def versions(self, info: ResourceInfo) -> tuple[ResourceInfo, ...]:
        """All served versions of the resource that `info` is a version of."""
        return tuple(other for other in self._resources if other.storage == info.storage)

    def install(self, definition: JSON, *, now: str) -> Installation:
        """Take a new or changed definition. `now` stamps conditions that change."""
        name = definition["metadata"]["name"]
        statuses = tuple(self._accept(definition, now))
        if statuses:
            definition = {**definition, "status": statuses[-1]}
        self._definitions[name] = definition
        served = custom_resources(definition)
        self._custom[name] = served
        self._rebuild()
        return Installation(name, definition, statuses, served)

    def uninstall(self, name: str, *, now: str) -> tuple[Installation, ...]:
        """Forget a definition. Returns what became of the definitions that waited for its names."""
        gone = self._definitions.pop(name, None)
        self._custom.pop(name, None)
        self._rebuild()
        if gone is None:
            return ()
        group = gone["spec"]["group"]
        waiting = [
            other
            for other in self._definitions.values()
            if other["spec"]["group"] == group and (condition(other, "NamesAccepted") or {}).get("status") != "True"
        ]
        outcomes = (self.install(other, now=now) for other in waiting)
        return tuple(outcome for outcome in outcomes if outcome.statuses)

    def _accept(self, definition: JSON, now: str) -> Iterable[JSON]:
        status: JSON = definition.get("status") or {}
        wanted: JSON = definition["spec"]["names"]
        held: JSON = status.get("acceptedNames") or {}
        established = (condition(definition, "Established") or {}).get("status") == "True"
        accepted = (condition(definition, "NamesAccepted") or {}).get("status") == "True"
        if wanted == held and accepted and established:
            return
        names, conflict = self._claim(definition["spec"]["group"], definition["metadata"]["name"], wanted, held)
        naming = ("False", *conflict) if conflict else ("True", "NoConflicts", "no conflicts found")
        conditions = _with_condition(status.get("conditions"), "NamesAccepted", naming, now)
        if not established:
            established_as = (
                ("False", "Installing", "the initial names have been accepted")
                if conflict is None
                else ("False", "NotAccepted", "not all names are accepted")
            )
            conditions = _with_condition(conditions, "Established", established_as, now)
        first = {**status, "conditions": conditions, "acceptedNames": names}
        if first != status:
            yield first
        if conflict is None and not established:
            ready = ("True", "InitialNamesAccepted", "the initial names have been accepted")
            yield {**first, "conditions": _with_condition(conditions, "Established", ready, now)}

    def _claim(self, group: str, name: str, wanted: JSON, held: JSON) -> tuple[JSON, tuple[str, str] | None]:
        """The names a definition gets of those it wants, and (reason, message) of the last conflict."""
        others = [
            (other.get("status") or {}).get("acceptedNames") or {}
            for key, other in self._definitions.items()
            if key != name and other["spec"]["group"] == group
        ]
        resources = {value for o in others for value in (o.get("plural"), o.get("singular"), *o.get("shortNames", ()))}
        kinds = {value for o in others for value in (o.get("kind"), o.get("listKind"))}
        names: JSON = {}
        conflict: tuple[str, str] | None = None
        for field in _NAMES:
            value = wanted.get(field)
            taken = kinds if field in {"kind", "listKind"} else resources
            asked = value if isinstance(value, list) else [value] if value else []
            kept = held.get(field)
            own = kept if isinstance(kept, list) else [kept]
            clashes = [item for item in asked if item in taken and item not in own]
            if clashes:
                messages = [f'"{item}" is already in use' for item in clashes]
                text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
                conflict = (f"{field[0].upper()}{field[1:]}Conflict", text)
                value = kept
            if value or field in {"plural", "kind"}:
                names[field] = value or ""
        if wanted.get("categories"):
            names["categories"] = wanted["categories"]
        return names, conflict

    def _rebuild(self) -> None:
        custom = [info for infos in self._custom.values() for info in infos]
        custom.sort(key=lambda i: (i.kind.group, version_order(i.kind.version), i.kind.plural))
        self._resources = (*self._builtins, *custom)
        self._paths = {(i.kind.group, i.kind.version, i.kind.plural): i for i in self._resources}
        self._kinds = {(i.kind.group, i.kind.version, i.kind.kind): i for i in self._resources}
        self._revision += 1


def custom_resources(definition: JSON) -> tuple[ResourceInfo, ...]:
    """What a definition makes the server serve: one resource per served version; nothing before it is established."""
    if (condition(definition, "Established") or {}).get("status") != "True":
        return ()
    spec = definition["spec"]
    names = definition["status"]["acceptedNames"]
    namespaced = spec["scope"] == "Namespaced"
    terminating = (condition(definition, "Terminating") or {}).get("status") == "True"
    stored = next(version["name"] for version in spec["versions"] if version["storage"])

    def kind(version: str) -> Kind:
        return Kind(
            group=spec["group"], version=version, kind=names["kind"], plural=names["plural"], namespaced=namespaced
        )

    return tuple(
        ResourceInfo(
            kind=kind(version["name"]),
            list_kind=names.get("listKind") or f"{names['kind']}List",
            singular=names.get("singular", ""),
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            verbs=TERMINATING_VERBS if terminating else CUSTOM_VERBS,
            subresources=tuple(sub for sub in ("status", "scale") if sub in version.get("subresources", {})),
            storage=kind(stored),
            generation=("*",),
            selectable=tuple(field["jsonPath"].removeprefix(".") for field in version.get("selectableFields", ())),
            unconditional_update=False,
            deprecation=_deprecation(version, spec),
            columns=_columns(version),
            scale=_scale(version),
            custom=CustomType(
                definition=definition["metadata"]["name"],
                openapi=_openapi(version),
                storage_openapi=next(_openapi(item) for item in spec["versions"] if item["storage"]),
                preserve_unknown=bool(spec.get("preserveUnknownFields")),
                conversion=WebhookConversion.from_wire(spec.get("conversion") or {}),
            ),
        )
        for version in spec["versions"]
        if version["served"]
    )


def _openapi(version: JSON) -> JSON:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _with_condition(conditions: list[JSON] | None, kind: str, value: tuple[str, str, str], now: str) -> list[JSON]:
    """`conditions` with one set; its transition time moves only when its status does."""
    state, reason, message = value
    fresh = {"type": kind, "status": state, "lastTransitionTime": now, "reason": reason, "message": message}
    out = list(conditions or ())
    for index, item in enumerate(out):
        if item["type"] == kind:
            if item["status"] == state:
                fresh["lastTransitionTime"] = item["lastTransitionTime"]
            out[index] = fresh
            return out
    return [*out, fresh]


def _columns(version: JSON) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )
        for column in version.get("additionalPrinterColumns", ())
    )


def _scale(version: JSON) -> ScalePaths | None:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=scale["specReplicasPath"],
        status_replicas=scale["statusReplicasPath"],
        selector=scale.get("labelSelectorPath", ""),
    )


def _deprecation(version: JSON, spec: JSON) -> str | None:
    if not version.get("deprecated"):
        return None
    if "deprecationWarning" in version:
        return str(version["deprecationWarning"])
    kind = spec["names"]["kind"]
    mine = version_order(version["name"])
    better = [
        other["name"]
        for other in spec["versions"]
        if other["served"] and not other.get("deprecated") and version_order(other["name"]) < mine
    ]
    message = f"{spec['group']}/{version['name']} {kind} is deprecated"
    return f"{message}; use {spec['group']}/{min(better, key=version_order)} {kind}" if better else message
