"""CustomResourceDefinitions: defaults, validation, and the warnings that go with accepted ones.

The real server stores a definition in an older shape, where what all versions share is said once at the top, and names
fields of that shape in its causes: the schema of a definition with one version is at `spec.validation`. So do we. What
a schema may say is in `schema_rules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.crd.formats import format_check
from steersman.apiserver.crd.structural_schema_rules import schema_causes, walk
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.names import is_dns1035_label, is_dns1123_subdomain
from steersman.kube.api.validation import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]

APPROVAL = "api-approved.kubernetes.io"
MAX_SELECTABLE = 8
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
# What the root of a schema may say when the status subresource is enabled.
_ROOT_WORDS = (
    "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern "
    "maxItems minItems uniqueItems multipleOf required items properties externalDocs example nullable "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-validations"
)
_ROOT_KEYS = frozenset(_ROOT_WORDS.split())
_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")  # said once when all say the same


def default_definition(definition: JSON) -> JSON:
    """A definition with what its author may leave out: singular and list names, how versions convert."""
    spec = definition.get("spec") or {}
    names = dict(spec.get("names") or {})
    if kind := names.get("kind"):
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    conversion = spec.get("conversion") or {"strategy": "None"}
    client = (conversion.get("webhook") or {}).get("clientConfig") or {}
    if isinstance(service := client.get("service"), dict) and service.get("port") is None:
        webhook = {**conversion["webhook"], "clientConfig": {**client, "service": {**service, "port": 443}}}
        conversion = {**conversion, "webhook": webhook}
    return {**definition, "spec": {**spec, "names": names, "conversion": conversion}}


def store_versions(definition: JSON, status: JSON | None) -> JSON:
    """The status with the storage version among those that were ever stored."""
    stored = list((status or {}).get("storedVersions") or ())
    current = [v["name"] for v in (definition.get("spec") or {}).get("versions") or () if v.get("storage")][:1]
    return {**(status or {}), "storedVersions": [*stored, *(name for name in current if name not in stored)]}


def terminating(status: JSON, *, now: str, reason: str = "InstanceDeletionPending") -> JSON:
    """The status of a definition that is being deleted, together with its objects."""
    words = {
        "InstanceDeletionPending": "CustomResourceDefinition marked for deletion; "
        "CustomResource deletion will begin soon",
        "InstanceDeletionInProgress": "CustomResource deletion is in progress",
    }
    state = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": words[reason],
    }
    kept = []
    for item in status.get("conditions") or ():
        if item["type"] == "Terminating":
            state["lastTransitionTime"] = item["lastTransitionTime"]
        else:
            kept.append(item)
    return {**status, "conditions": [*kept, state]}


def _schemas(definition: JSON) -> Iterator[JSON]:
    for version in (definition.get("spec") or {}).get("versions") or ():
        if schema := (version.get("schema") or {}).get("openAPIV3Schema"):
            yield schema


def warnings(definition: JSON, old: JSON | None = None) -> list[str]:
    """What a client should hear about a definition that was accepted."""
    known = set(_unknown_formats(old)) if old else set()
    return [f"unrecognized format {quoted(name)}" for name in _unknown_formats(definition) if name not in known]


def _unknown_formats(definition: JSON) -> list[str]:
    schemas = []
    for schema in _schemas(definition):
        if schema not in schemas:  # what versions share is said once
            schemas.append(schema)
    numeric = {"integer": {"int32", "int64"}, "number": {"float", "double"}}
    found = []
    for node in (node for schema in schemas for node in walk(schema) if node.get("format")):
        name, kind = node["format"], node.get("type", "")
        known = name in numeric[kind] if kind in numeric else kind in {"", "string"} and format_check(name) is not None
        if not known:
            found.append(name)
    return found


def validate_definition(definition: JSON, old: JSON | None = None) -> list[Cause]:
    """Why a definition cannot be stored, beside its metadata. It has its defaults and its stored versions."""
    spec = definition.get("spec") or {}
    found = [] if old else _name_causes(definition, spec)
    found += _group_causes(spec)
    found += _version_causes(spec)
    found += _names_causes(spec.get("names") or {}, "spec.names")
    found += list(_shared_causes(spec))
    found += _conversion_causes(spec.get("conversion") or {})
    if old is not None:
        found += _immutable_causes(definition, old)
    found += _stored_causes(definition, spec)
    found += _approval_causes(definition, spec, old)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(field_errors.invalid("spec.preserveUnknownFields", True, text))
    return found


def _name_causes(definition: JSON, spec: JSON) -> list[Cause]:
    name = definition["metadata"].get("name", "")
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    if name == wanted:
        return []
    return [field_errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _group_causes(spec: JSON) -> list[Cause]:
    group, scope = spec.get("group", ""), spec.get("scope", "")
    found: list[Cause] = []
    if not group:
        found.append(field_errors.required("spec.group"))
    elif complaints := is_dns1123_subdomain(group):
        found.append(field_errors.invalid("spec.group", group, ",".join(complaints)))
    elif "." not in group:
        found.append(field_errors.invalid("spec.group", group, "should be a domain with at least one dot"))
    if not scope:
        found.append(field_errors.required("spec.scope"))
    elif scope not in {"Cluster", "Namespaced"}:
        found.append(field_errors.not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    return found


def _shared(spec: JSON, field: str) -> Any:
    """What all versions say the same about a field; None when they differ or say nothing."""
    values = [version.get(field) for version in spec.get("versions") or ()]
    return values[0] if values and values[0] and all(value == values[0] for value in values) else None


def _version_causes(spec: JSON) -> list[Cause]:
    versions = spec.get("versions") or []
    found: list[Cause] = []
    for at, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            found.append(field_errors.required(f"spec.versions[{at}].schema.openAPIV3Schema"))
    for at, version in enumerate(versions):
        name = version.get("name", "")
        if complaints := is_dns1035_label(name):
            found.append(field_errors.invalid(f"spec.versions[{at}].name", name, ",".join(complaints)))
        found += _warning_causes(version, f"spec.versions[{at}].deprecationWarning")
        own = {field: version.get(field) for field in _SHARED if _shared(spec, field) is None}
        found += list(_content_causes({**own, "status": "status" in (version.get("subresources") or {})}, at))
    names = [version.get("name", "") for version in versions]
    if len(set(names)) != len(names):
        found.append(field_errors.invalid("spec.versions", names, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(field_errors.invalid("spec.versions", names, text))
    if names and (complaints := is_dns1035_label(names[0])):
        found.append(field_errors.invalid("spec.version", names[0], ",".join(complaints)))
    return found


def _warning_causes(version: JSON, field: str) -> list[Cause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [field_errors.invalid(field, warning, "can only be set for deprecated versions")]
    found = []
    if len(warning.encode()) > 256:
        found.append(field_errors.invalid(field, warning, "must be <= 256 characters long"))
    if not warning:
        found.append(field_errors.invalid(field, warning, "must not be an empty string"))
    hidden = next((at for at, char in enumerate(warning) if not char.isprintable()), None)
    if hidden is not None:
        text = f"must only contain printable UTF-8 characters; non-printable character found at index {hidden}"
        found.append(field_errors.invalid(field, warning, text))
    return found


def _shared_causes(spec: JSON) -> Iterator[Cause]:
    shared = {field: _shared(spec, field) for field in _SHARED}
    status = any("status" in (version.get("subresources") or {}) for version in spec.get("versions") or ())
    yield from _content_causes({**shared, "status": status}, None)


def _names_causes(names: JSON, path: str) -> list[Cause]:
    found = [
        field_errors.required(f"{path}.{key}")
        for key in ("plural", "singular", "kind", "listKind")
        if not names.get(key)
    ]
    for key in ("plural", "singular"):
        found += _label_causes(names.get(key), f"{path}.{key}")
    for key in ("kind", "listKind"):
        if (value := names.get(key)) and (complaints := is_dns1035_label(value.lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(complaints)
            found.append(field_errors.invalid(f"{path}.{key}", value, text))
    found += _label_list_causes(names.get("shortNames"), f"{path}.shortNames")
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(
            field_errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
        )
    return found + _label_list_causes(names.get("categories"), f"{path}.categories")


def _label_causes(value: str | None, path: str) -> list[Cause]:
    complaints = is_dns1035_label(value) if value else []
    return [field_errors.invalid(path, value, ",".join(complaints))] if complaints else []


def _label_list_causes(values: list[str] | None, path: str) -> list[Cause]:
    return [cause for at, value in enumerate(values or ()) for cause in _label_causes(value or " ", f"{path}[{at}]")]


def _conversion_causes(conversion: JSON) -> list[Cause]:
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook") or {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    path = "spec.conversion"
    found: list[Cause] = []
    if not strategy:
        found.append(field_errors.required(f"{path}.strategy"))
    elif strategy not in {"None", "Webhook"}:
        found.append(field_errors.not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        given = {"webhookClientConfig": client, "conversionReviewVersions": reviews}
        return found + [field_errors.forbidden(f"{path}.{key}", text) for key, value in given.items() if value]
    if client is None:
        text = "required when strategy is set to Webhook"
        found.append(field_errors.required(f"{path}.webhookClientConfig", text))
    elif (client.get("url") is None) == (client.get("service") is None):
        found.append(field_errors.required(f"{path}.webhookClientConfig", "exactly one of url or service is required"))
    field = f"{path}.conversionReviewVersions"
    if not reviews:
        found.append(field_errors.required(field))
    elif not {"v1", "v1beta1"} & set(reviews):
        found.append(field_errors.invalid(field, reviews, "must include at least one of v1, v1beta1"))
    return found


def _immutable_causes(definition: JSON, old: JSON) -> list[Cause]:
    new, before = definition["spec"], old["spec"]
    conditions = (old.get("status") or {}).get("conditions") or []
    established = any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
    checked = [("group", new.get("group"), before.get("group"))]
    names = [("names.plural", "plural")]
    if established:
        checked.insert(0, ("scope", new.get("scope"), before.get("scope")))
        names.insert(0, ("names.kind", "kind"))
    checked += [(path, (new.get("names") or {}).get(key), before["names"].get(key)) for path, key in names]
    return [
        field_errors.invalid(f"spec.{path}", value, "field is immutable")
        for path, value, was in checked
        if value != was
    ]


def _stored_causes(definition: JSON, spec: JSON) -> list[Cause]:
    stored = (definition.get("status") or {}).get("storedVersions") or []
    field = "status.storedVersions"
    if not stored:
        return [field_errors.invalid(field, None, "must have at least one stored version")]
    versions = spec.get("versions") or []
    current = [version.get("name") for version in versions if version.get("storage")]
    found = [
        field_errors.invalid(field, stored, f"must have the storage version {name}")
        for name in current
        if name not in stored
    ]
    names = {version.get("name") for version in versions}
    for at, name in ((at, name) for at, name in enumerate(stored) if name not in names):
        text = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions"
        )
        found.append(field_errors.invalid(f"{field}[{at}]", name, text))
    return found


def _approval_causes(definition: JSON, spec: JSON, old: JSON | None) -> list[Cause]:
    group = spec.get("group", "")
    if not (group in {"k8s.io", "kubernetes.io"} or group.endswith((".k8s.io", ".kubernetes.io"))):
        return []
    given = (definition["metadata"].get("annotations") or {}).get(APPROVAL, "")
    before = ((old or {}).get("metadata") or {}).get("annotations") or {}
    if old is not None and before.get(APPROVAL, "") == given:
        return []
    field = f"metadata.annotations[{APPROVAL}]"
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not given:
        return [field_errors.required(field, f'protected groups must have approval annotation "{APPROVAL}", {see}')]
    if given.startswith("unapproved") or "://" in given:
        return []
    either = 'with either a URL or a reason starting with "unapproved"'
    return [
        field_errors.invalid(
            field, given, f'protected groups must have approval annotation "{APPROVAL}" {either}, {see}'
        )
    ]


def _content_causes(content: JSON, at: int | None) -> Iterator[Cause]:
    """Schema, subresources, columns and selectable fields; of one version, or of all when `at` is None."""
    base = "spec" if at is None else f"spec.versions[{at}]"
    schema = (content.get("schema") or {}).get("openAPIV3Schema")
    if schema:
        path = f"{base}.validation" if at is None else f"{base}.schema"
        yield from _root_causes(schema, f"{path}.openAPIV3Schema", status=content["status"])
        yield from schema_causes(schema, f"{path}.openAPIV3Schema")
    if scale := (content.get("subresources") or {}).get("scale"):
        yield from _scale_causes(scale, f"{base}.subresources.scale")
    for index, column in enumerate(content.get("additionalPrinterColumns") or ()):
        yield from _column_causes(column, f"{base}.additionalPrinterColumns[{index}]")
    if fields := content.get("selectableFields"):
        yield from _selectable_causes(fields, schema or {}, f"{base}.selectableFields")


def _root_causes(schema: JSON, path: str, *, status: bool) -> Iterator[Cause]:
    if status and schema.get("type", "object") != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield field_errors.invalid(f"{path}.type", schema["type"], text)
    elif status and any(schema[key] not in (None, [], {}, "", False) for key in schema.keys() - _ROOT_KEYS):
        odd = ", ".join(sorted(key for key in schema.keys() - _ROOT_KEYS if schema[key]))
        text = f"{odd} must not be used at the root of the schema if the status subresource is enabled"
        yield field_errors.invalid(path, "", text)
    if schema.get("nullable"):
        yield field_errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _path_causes(value: str, field: str, prefixes: tuple[str, ...] = (), under: str = "") -> list[Cause]:
    if not value:
        return [field_errors.required(field)]
    if not value.startswith("."):
        return [field_errors.invalid(field, value, "must be a simple json path starting with .")]
    if prefixes and not value.startswith(prefixes):
        return [field_errors.invalid(field, value, f"should be a json path under {under}")]
    return []


def _scale_causes(scale: JSON, path: str) -> list[Cause]:
    found = _path_causes(scale.get("specReplicasPath", ""), f"{path}.specReplicasPath", (".spec.",), ".spec")
    found += _path_causes(scale.get("statusReplicasPath", ""), f"{path}.statusReplicasPath", (".status.",), ".status")
    if selector := scale.get("labelSelectorPath"):
        either = (".spec.", ".status.")
        found += _path_causes(selector, f"{path}.labelSelectorPath", either, "either .spec or .status")
    return found


def _column_causes(column: JSON, path: str) -> list[Cause]:
    found: list[Cause] = [] if column.get("name") else [field_errors.required(f"{path}.name")]
    kind, shape = column.get("type", ""), column.get("format", "")
    allowed = f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        found.append(field_errors.required(f"{path}.type", allowed))
    elif kind not in COLUMN_TYPES:
        found.append(field_errors.invalid(f"{path}.type", kind, allowed))
    if shape and shape not in COLUMN_FORMATS:
        found.append(field_errors.invalid(f"{path}.format", shape, f"must be one of {','.join(COLUMN_FORMATS)}"))
    return found + _path_causes(column.get("jsonPath", ""), f"{path}.JSONPath")


def _selectable_causes(fields: list[JSON], schema: JSON, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, item in enumerate(fields):
        field, wanted = f"{path}[{at}].jsonPath", item.get("jsonPath", "")
        if not wanted:
            yield field_errors.required(field)
            continue
        node: JSON | None = schema
        for part in wanted.removeprefix(".").split("."):
            node = ((node or {}).get("properties") or {}).get(part)
        if node is None:
            yield field_errors.invalid(field, wanted, "is an invalid path: does not refer to a valid field")
            continue
        if wanted.startswith(".metadata."):
            yield field_errors.invalid(field, wanted, "must not point to fields in metadata")
        if node.get("type") not in {"string", "boolean", "integer"}:
            text = "must point to a field of type string, boolean or integer. "
            yield field_errors.invalid(field, wanted, f"{text}Enum string fields and strings with formats are allowed.")
        if wanted in seen:
            yield field_errors.duplicate(field, wanted)
        seen.add(wanted)
    if len(seen) > MAX_SELECTABLE:
        yield field_errors.too_many(path, len(seen), MAX_SELECTABLE)
