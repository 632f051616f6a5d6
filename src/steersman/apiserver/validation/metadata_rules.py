"""The rules of `metadata`: names, labels, annotations, owners, finalizers, and what an update may not change.

The real server checks an update several times (as an object, as an update, as an update of its kind) and may report
a violation more than once; this one reports it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.names import NAME_RULES, is_dns1123_label, is_path_segment
from steersman.kube.api.validation import label_key_errors, label_value_errors, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.kube.api.errors import Cause

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
    return list(dict.fromkeys([*general, *changes, *_finalizer_causes(info, new)]))


def finalizer_warnings(info: ResourceInfo, obj: JSON, old: JSON | None = None) -> list[str]:
    """What the server says about new finalizers of custom resources that it takes but does not like."""
    if info.custom is None:
        return []
    before = set((old or {}).get("metadata", {}).get("finalizers") or ())
    added = sorted(set(obj.get("metadata", {}).get("finalizers") or ()) - before)
    found = []
    for name in added:
        head = f"metadata.finalizers: {quoted(name)}: "
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
        found += [field_errors.invalid(f"{path}.generateName", prefix, text) for text in name_rule(_masked(prefix))]
    if not (name := metadata.get("name")):
        found.append(field_errors.required(f"{path}.name", "name or generateName is required"))
    else:
        found += [field_errors.invalid(f"{path}.name", name, text) for text in name_rule(name)]
    namespace = metadata.get("namespace")
    if not namespaced:
        if namespace:
            found.append(field_errors.forbidden(f"{path}.namespace", "not allowed on this type"))
    elif not namespace:
        found.append(field_errors.required(f"{path}.namespace"))
    else:
        found += [field_errors.invalid(f"{path}.namespace", namespace, text) for text in is_dns1123_label(namespace)]
    if (generation := metadata.get("generation") or 0) < 0:
        found.append(field_errors.invalid(f"{path}.generation", generation, "must be greater than or equal to 0"))
    return found + _content_causes(metadata, path, finalizers=True)


def _content_causes(metadata: JSON, path: str, *, finalizers: bool) -> list[Cause]:
    found = label_causes(metadata.get("labels"), f"{path}.labels")
    found += annotation_causes(metadata.get("annotations") or {}, f"{path}.annotations")
    found += _owner_causes(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    if finalizers and (names := metadata.get("finalizers")):
        where = f"{path}.finalizers"
        found += [field_errors.invalid(where, name, text) for name in names for text in label_key_errors(name)]
        if {"orphan", "foregroundDeletion"} <= set(names):
            text = "finalizer orphan and foregroundDeletion cannot be both set"
            found.append(field_errors.invalid(where, names, text))
    return found + _managed_causes(metadata.get("managedFields") or [], f"{path}.managedFields")


def label_causes(labels: JSON | None, path: str) -> list[Cause]:
    """Keys and values of labels, or of a selector's matchLabels."""
    found: list[Cause] = []
    for key, value in (labels or {}).items():
        found += [field_errors.invalid(path, key, text) for text in label_key_errors(key)]
        found += [field_errors.invalid(path, value, text) for text in label_value_errors(value)]
    return found


def annotation_causes(annotations: JSON, path: str) -> list[Cause]:
    """Keys of annotations, and how large they are together."""
    found = [field_errors.invalid(path, key, text) for key in annotations for text in label_key_errors(key.lower())]
    size = sum(len(key.encode()) + len(str(value or "").encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        found.append(field_errors.too_long(path, ANNOTATIONS_LIMIT))
    return found


def _owner_causes(owners: list[JSON], path: str) -> list[Cause]:
    found: list[Cause] = []
    controller = ""
    for owner in owners:
        version = (owner.get("apiVersion") or "").rpartition("/")[2]
        if not version:
            found.append(
                field_errors.invalid(f"{path}.apiVersion", owner.get("apiVersion") or "", "version must not be empty")
            )
        found += [
            field_errors.invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            found.append(field_errors.invalid(path, owner, "an Event cannot be an owner"))
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                text = f"only one owner can be the controller, not both {controller} and {name}"
                found.append(field_errors.invalid(path, owners, text))
            else:
                controller = name
    return found


def _managed_causes(entries: list[JSON], path: str) -> list[Cause]:
    found: list[Cause] = []
    for at, entry in enumerate(entries):
        where = f"{path}[{at}]"
        if entry.get("operation") not in {"Apply", "Update"}:
            text = "must be `Apply` or `Update`"
            found.append(field_errors.invalid(f"{where}.operation", entry.get("operation") or "", text))
        if entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            found.append(field_errors.invalid(f"{where}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        if len((entry.get("manager") or "").encode()) > 128:
            found.append(field_errors.too_long(f"{where}.manager", 128))
        if len((entry.get("subresource") or "").encode()) > 256:
            found.append(field_errors.too_long(f"{where}.subresource", 256))
    return found


def _update_causes(new: JSON, old: JSON) -> list[Cause]:
    """What an update may not change. The server fills in uid and timestamps that were left out before it asks."""
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            text = f"no new finalizers can be added if the object is being deleted: {', '.join(added)}"
            found.append(field_errors.forbidden("metadata.finalizers", text))
    if not new.get("resourceVersion"):
        found.append(field_errors.invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        found.append(field_errors.invalid("metadata.generation", new.get("generation") or 0, "must not be decremented"))
    found += [
        field_errors.invalid(f"metadata.{field}", new.get(field), "field is immutable")
        for field in _IMMUTABLE
        if (new.get(field) or None) != (old.get(field) or None)
    ]
    return found + _content_causes(new, "metadata", finalizers=False)


def _finalizer_causes(info: ResourceInfo, metadata: JSON) -> list[Cause]:
    if info.custom is not None or info.kind.kind in LENIENT_KINDS:
        return []
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        field_errors.invalid(f"metadata.finalizers[{at}]", name, text)
        for at, name in enumerate(metadata.get("finalizers") or ())
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def _masked(prefix: str) -> str:
    """A prefix may end in a dash: something follows it."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def selector_causes(selector: JSON | None, path: str) -> list[Cause]:
    """Why a label selector cannot be used."""
    found = label_causes((selector or {}).get("matchLabels"), f"{path}.matchLabels")
    for at, expression in enumerate((selector or {}).get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{at}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator in {"In", "NotIn"}:
            if not values:
                found.append(
                    field_errors.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                )
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(field_errors.forbidden(f"{where}.values", text))
        else:
            found.append(field_errors.invalid(f"{where}.operator", operator, "not a valid selector operator"))
        key = expression.get("key", "")
        found += [field_errors.invalid(f"{where}.key", key, text) for text in label_key_errors(key)]
        for index, value in enumerate(values):
            found += [
                field_errors.invalid(f"{where}.values[{index}]", value, text) for text in label_value_errors(value)
            ]
    return found
