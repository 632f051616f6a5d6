"""CustomResourceDefinitions: their defaults, the rules they keep, and what the server says about accepted ones.

The real server keeps a definition in an older shape, where what all versions share is said once at the top, and words
its errors for that shape: the schema of a definition with one version is at `spec.validation`. So do the errors here.

Rules in CEL are taken as they are and never evaluated; `warnings` and the Established condition say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_json
from steersman.apiserver.crdschemas import internal_json, walk
from steersman.apiserver.crdversions import content_causes
from steersman.apiserver.formats import format_check
from steersman.apiserver.names import is_dns1035_label, is_dns1123_subdomain
from steersman.kube.names import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CLEANUP_FINALIZER",
    "default_definition",
    "has_rules",
    "store_versions",
    "terminating",
    "validate_definition",
    "warnings",
]

JSON = dict[str, Any]

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL = "api-approved.kubernetes.io"
_NOT_EVALUATED = "x-kubernetes-validations are not evaluated by this server"
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


def has_rules(definition: JSON) -> bool:
    """Whether any schema of a definition carries CEL rules, which this server does not evaluate."""
    return any("x-kubernetes-validations" in node for schema in _schemas(definition) for node in walk(schema))


def _schemas(definition: JSON) -> Iterator[JSON]:
    for version in (definition.get("spec") or {}).get("versions") or ():
        if schema := (version.get("schema") or {}).get("openAPIV3Schema"):
            yield schema


def warnings(definition: JSON, old: JSON | None = None) -> list[str]:
    """What a client should hear about a definition that was accepted."""
    known = set(_unknown_formats(old)) if old else set()
    found = [f"unrecognized format {quoted(name)}" for name in _unknown_formats(definition) if name not in known]
    if has_rules(definition) and not (old and has_rules(old)):
        found.append(_NOT_EVALUATED)
    return found


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
        found.append(causes.invalid("spec.preserveUnknownFields", True, text))
    return found


def _name_causes(definition: JSON, spec: JSON) -> list[Cause]:
    name = definition["metadata"].get("name", "")
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    if name == wanted:
        return []
    return [causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _group_causes(spec: JSON) -> list[Cause]:
    group, scope = spec.get("group", ""), spec.get("scope", "")
    found: list[Cause] = []
    if not group:
        found.append(causes.required("spec.group"))
    elif complaints := is_dns1123_subdomain(group):
        found.append(causes.invalid("spec.group", group, ",".join(complaints)))
    elif "." not in group:
        found.append(causes.invalid("spec.group", group, "should be a domain with at least one dot"))
    if not scope:
        found.append(causes.required("spec.scope"))
    elif scope not in {"Cluster", "Namespaced"}:
        found.append(causes.not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
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
            found.append(causes.required(f"spec.versions[{at}].schema.openAPIV3Schema"))
    for at, version in enumerate(versions):
        name = version.get("name", "")
        if complaints := is_dns1035_label(name):
            found.append(causes.invalid(f"spec.versions[{at}].name", name, ",".join(complaints)))
        found += _warning_causes(version, f"spec.versions[{at}].deprecationWarning")
        own = {field: version.get(field) for field in _SHARED if _shared(spec, field) is None}
        found += list(content_causes({**own, "status": "status" in (version.get("subresources") or {})}, at))
    names = [version.get("name", "") for version in versions]
    if len(set(names)) != len(names):
        found.append(_versions_cause(spec, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(_versions_cause(spec, "must have exactly one version marked as storage version"))
    if names and (complaints := is_dns1035_label(names[0])):
        found.append(causes.invalid("spec.version", names[0], ",".join(complaints)))
    return found


def _versions_cause(spec: JSON, text: str) -> Cause:
    """The server shows its own form of the versions, without what they share."""
    shown = []
    for version in spec.get("versions") or ():
        schema = None if _shared(spec, "schema") is not None else (version.get("schema") or {}).get("openAPIV3Schema")
        own = {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
        }
        parts = [f'"{key}":{go_json(value)}' for key, value in own.items()]
        parts.append('"Schema":' + ("null" if schema is None else f'{{"OpenAPIV3Schema":{internal_json(schema)}}}'))
        parts += [f'"{key}":null' for key in ("Subresources", "AdditionalPrinterColumns", "SelectableFields")]
        shown.append("{" + ",".join(parts) + "}")
    return Cause("FieldValueInvalid", f"Invalid value: [{','.join(shown)}]: {text}", "spec.versions")


def _warning_causes(version: JSON, field: str) -> list[Cause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [causes.invalid(field, warning, "can only be set for deprecated versions")]
    found = []
    if len(warning.encode()) > 256:
        found.append(causes.invalid(field, warning, "must be <= 256 characters long"))
    if not warning:
        found.append(causes.invalid(field, warning, "must not be an empty string"))
    hidden = next((at for at, char in enumerate(warning) if not char.isprintable()), None)
    if hidden is not None:
        text = f"must only contain printable UTF-8 characters; non-printable character found at index {hidden}"
        found.append(causes.invalid(field, warning, text))
    return found


def _shared_causes(spec: JSON) -> Iterator[Cause]:
    shared = {field: _shared(spec, field) for field in _SHARED}
    status = any("status" in (version.get("subresources") or {}) for version in spec.get("versions") or ())
    yield from content_causes({**shared, "status": status}, None)


def _names_causes(names: JSON, path: str) -> list[Cause]:
    found = [
        causes.required(f"{path}.{key}") for key in ("plural", "singular", "kind", "listKind") if not names.get(key)
    ]
    for key in ("plural", "singular"):
        found += _label_causes(names.get(key), f"{path}.{key}")
    for key in ("kind", "listKind"):
        if (value := names.get(key)) and (complaints := is_dns1035_label(value.lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(complaints)
            found.append(causes.invalid(f"{path}.{key}", value, text))
    found += _label_list_causes(names.get("shortNames"), f"{path}.shortNames")
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(causes.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same"))
    return found + _label_list_causes(names.get("categories"), f"{path}.categories")


def _label_causes(value: str | None, path: str) -> list[Cause]:
    complaints = is_dns1035_label(value) if value else []
    return [causes.invalid(path, value, ",".join(complaints))] if complaints else []


def _label_list_causes(values: list[str] | None, path: str) -> list[Cause]:
    return [cause for at, value in enumerate(values or ()) for cause in _label_causes(value or " ", f"{path}[{at}]")]


def _conversion_causes(conversion: JSON) -> list[Cause]:
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook") or {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    path = "spec.conversion"
    found: list[Cause] = []
    if not strategy:
        found.append(causes.required(f"{path}.strategy"))
    elif strategy not in {"None", "Webhook"}:
        found.append(causes.not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        given = {"webhookClientConfig": client, "conversionReviewVersions": reviews}
        return found + [causes.forbidden(f"{path}.{key}", text) for key, value in given.items() if value]
    if client is None:
        text = "required when strategy is set to Webhook"
        found.append(causes.required(f"{path}.webhookClientConfig", text))
    elif (client.get("url") is None) == (client.get("service") is None):
        found.append(causes.required(f"{path}.webhookClientConfig", "exactly one of url or service is required"))
    field = f"{path}.conversionReviewVersions"
    if not reviews:
        found.append(causes.required(field))
    elif not {"v1", "v1beta1"} & set(reviews):
        found.append(causes.invalid(field, reviews, "must include at least one of v1, v1beta1"))
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
    return [causes.invalid(f"spec.{path}", value, "field is immutable") for path, value, was in checked if value != was]


def _stored_causes(definition: JSON, spec: JSON) -> list[Cause]:
    stored = (definition.get("status") or {}).get("storedVersions") or []
    field = "status.storedVersions"
    if not stored:
        return [causes.invalid(field, None, "must have at least one stored version")]
    versions = spec.get("versions") or []
    current = [version.get("name") for version in versions if version.get("storage")]
    found = [
        causes.invalid(field, stored, f"must have the storage version {name}") for name in current if name not in stored
    ]
    names = {version.get("name") for version in versions}
    for at, name in ((at, name) for at, name in enumerate(stored) if name not in names):
        text = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions"
        )
        found.append(causes.invalid(f"{field}[{at}]", name, text))
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
        return [causes.required(field, f'protected groups must have approval annotation "{APPROVAL}", {see}')]
    if given.startswith("unapproved") or "://" in given:
        return []
    either = 'with either a URL or a reason starting with "unapproved"'
    return [
        causes.invalid(field, given, f'protected groups must have approval annotation "{APPROVAL}" {either}, {see}')
    ]
