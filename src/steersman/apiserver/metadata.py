"""The rules of `metadata`: names, labels, annotations, owners, finalizers, and what an update may not change.

An update is checked three times over by the real server (as an object, as an update, and as an update of its kind),
and every check reports; so does this one, since the list of causes is part of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_json, go_quote
from steersman.apiserver.names import NAME_RULES, is_dns1123_label, is_path_segment
from steersman.kube.names import label_key_errors, label_value_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.kinds import ResourceInfo

__all__ = [
    "annotation_causes",
    "finalizer_warnings",
    "label_causes",
    "metadata_causes",
    "validate_meta",
    "validate_meta_update",
]

JSON = dict[str, Any]

ANNOTATIONS_LIMIT = 256 * 1024
STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
# Kinds whose own rules do not ask that finalizers be standard or qualified; nor do custom resources.
LENIENT_KINDS = frozenset(
    (
        "CustomResourceDefinition",
        "Lease",
        "MutatingWebhookConfiguration",
        "PodDisruptionBudget",
        "RuntimeClass",
        "ValidatingWebhookConfiguration",
    )
)
_OWNER_ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_meta(info: ResourceInfo, obj: JSON) -> list[Cause]:
    """Why the metadata of a new object cannot stay. The name is already there, generated or given."""
    metadata = obj.get("metadata") or {}
    rule = NAME_RULES[info.name_rule]
    found = metadata_causes(metadata, namespaced=info.kind.namespaced, name_rule=rule)
    return found + _finalizer_causes(info, metadata)


def validate_meta_update(info: ResourceInfo, obj: JSON, old: JSON) -> list[Cause]:
    """Why the metadata of an updated object cannot stay."""
    new, before = obj.get("metadata") or {}, old.get("metadata") or {}
    changes = _update_causes(new, before)
    general = metadata_causes(new, namespaced=info.kind.namespaced, name_rule=is_path_segment)
    return general + changes + changes + _finalizer_causes(info, new)


def finalizer_warnings(info: ResourceInfo, obj: JSON, old: JSON | None = None) -> list[str]:
    """What the server says about new finalizers of custom resources that it takes but does not like."""
    if info.custom is None:
        return []
    before = set((old or {}).get("metadata", {}).get("finalizers") or ())
    added = sorted(set(obj.get("metadata", {}).get("finalizers") or ()) - before)
    found = []
    for name in added:
        head = f"metadata.finalizers: {go_quote(name)}: "
        found += [head + complaint for complaint in label_key_errors(name)]
        if "/" not in name and name not in STANDARD_FINALIZERS:
            what = " including a path (/)" if "." in name else ""
            found.append(
                f"{head}prefer a domain-qualified finalizer name{what} to avoid accidental conflicts with other "
                "finalizer writers"
            )
    return found


def metadata_causes(
    metadata: JSON, *, namespaced: bool, name_rule: Callable[[str], list[str]], path: str = "metadata"
) -> list[Cause]:
    """The rules every object's metadata keeps, new or not."""
    found: list[Cause] = []
    if prefix := metadata.get("generateName"):
        found += [causes.invalid(f"{path}.generateName", prefix, text) for text in name_rule(_masked(prefix))]
    if not (name := metadata.get("name")):
        found.append(causes.required(f"{path}.name", "name or generateName is required"))
    else:
        found += [causes.invalid(f"{path}.name", name, text) for text in name_rule(name)]
    namespace = metadata.get("namespace")
    if not namespaced:
        if namespace:
            found.append(causes.forbidden(f"{path}.namespace", "not allowed on this type"))
    elif not namespace:
        found.append(causes.required(f"{path}.namespace"))
    else:
        found += [causes.invalid(f"{path}.namespace", namespace, text) for text in is_dns1123_label(namespace)]
    if (generation := metadata.get("generation") or 0) < 0:
        found.append(causes.invalid(f"{path}.generation", generation, "must be greater than or equal to 0"))
    return found + _content_causes(metadata, path, finalizers=True)


def _content_causes(metadata: JSON, path: str, *, finalizers: bool) -> list[Cause]:
    found = label_causes(metadata.get("labels"), f"{path}.labels")
    found += annotation_causes(metadata.get("annotations") or {}, f"{path}.annotations")
    found += _owner_causes(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    if finalizers and (names := metadata.get("finalizers")):
        where = f"{path}.finalizers"
        found += [causes.invalid(where, name, text) for name in names for text in label_key_errors(name)]
        if {"orphan", "foregroundDeletion"} <= set(names):
            text = "finalizer orphan and foregroundDeletion cannot be both set"
            found.append(causes.invalid(where, names, text))
    return found + _managed_causes(metadata.get("managedFields") or [], f"{path}.managedFields")


def label_causes(labels: JSON | None, path: str) -> list[Cause]:
    """Keys and values of labels, or of a selector's matchLabels."""
    found: list[Cause] = []
    for key, value in (labels or {}).items():
        found += [causes.invalid(path, key, text) for text in label_key_errors(key)]
        found += [causes.invalid(path, value, text) for text in label_value_errors(value)]
    return found


def annotation_causes(annotations: JSON, path: str) -> list[Cause]:
    """Keys of annotations, and how large they are together."""
    found = [causes.invalid(path, key, text) for key in annotations for text in label_key_errors(key.lower())]
    size = sum(len(key.encode()) + len(str(value or "").encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        found.append(causes.too_long(path, ANNOTATIONS_LIMIT))
    return found


def _owner_causes(owners: list[JSON], path: str) -> list[Cause]:
    found: list[Cause] = []
    controller = ""
    for owner in owners:
        version = (owner.get("apiVersion") or "").rpartition("/")[2]
        if not version:
            found.append(
                causes.invalid(f"{path}.apiVersion", owner.get("apiVersion") or "", "version must not be empty")
            )
        found += [
            causes.invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            value = f"Invalid value: {_owner_json(owner)}: /v1, Kind=Event is disallowed from being an owner"
            found.append(Cause("FieldValueInvalid", value, path))
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                shown = "[" + ",".join(_owner_json(item) for item in owners) + "]"
                text = (
                    f"Invalid value: {shown}: Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {name}'
                )
                found.append(Cause("FieldValueInvalid", text, path))
            else:
                controller = name
    return found


def _owner_json(owner: JSON) -> str:
    known = {"apiVersion": "", "kind": "", "name": "", "uid": "", **owner}
    return "{" + ",".join(f'"{key}":{go_json(known[key])}' for key in _OWNER_ORDER if key in known) + "}"


def _managed_causes(entries: list[JSON], path: str) -> list[Cause]:
    found: list[Cause] = []
    for at, entry in enumerate(entries):
        where = f"{path}[{at}]"
        if entry.get("operation") not in {"Apply", "Update"}:
            text = "must be `Apply` or `Update`"
            found.append(causes.invalid(f"{where}.operation", entry.get("operation") or "", text))
        if entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            found.append(causes.invalid(f"{where}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        if len((entry.get("manager") or "").encode()) > 128:
            found.append(causes.too_long(f"{where}.manager", 128))
        if len((entry.get("subresource") or "").encode()) > 256:
            found.append(causes.too_long(f"{where}.subresource", 256))
    return found


def _update_causes(new: JSON, old: JSON) -> list[Cause]:
    """What an update may not change. The server fills in uid and timestamps that were left out before it asks."""
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            listed = "[]string{" + ", ".join(go_quote(name) for name in added) + "}"
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            found.append(causes.forbidden("metadata.finalizers", text))
    if not new.get("resourceVersion"):
        found.append(causes.invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        found.append(causes.invalid("metadata.generation", new.get("generation") or 0, "must not be decremented"))
    for field in _IMMUTABLE:
        if (new.get(field) or None) != (old.get(field) or None):
            value = new.get(field)
            empty = "" if field in {"name", "namespace", "uid"} else None
            found.append(causes.invalid(f"metadata.{field}", empty if value is None else value, "field is immutable"))
    return found + _content_causes(new, "metadata", finalizers=False)


def _finalizer_causes(info: ResourceInfo, metadata: JSON) -> list[Cause]:
    if info.custom is not None or info.kind.kind in LENIENT_KINDS:
        return []
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        causes.invalid(f"metadata.finalizers[{at}]", name, text)
        for at, name in enumerate(metadata.get("finalizers") or ())
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def _masked(prefix: str) -> str:
    """A prefix may end in a dash: something follows it."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
