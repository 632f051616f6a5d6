"""The rules of webhook configurations: names, rules, selectors, match conditions, and where a webhook listens.

Match conditions are CEL. One that this server cannot evaluate is rejected: the webhook would be asked about requests
that its author excluded.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from steersman.apiserver.admission.configurations import REVIEW_VERSIONS
from steersman.apiserver.admission.match_conditions import compile_condition
from steersman.apiserver.cel.expressions import INSTALL, ExpressionError, is_installed
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.metadata_rules import selector_causes
from steersman.apiserver.validation.names import is_dns1123_subdomain, is_port_number
from steersman.kube.api.validation import label_key_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
MAX_CONDITIONS = 64
_DNS1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
_ONE_OF: dict[str, tuple[str, ...]] = {
    "failurePolicy": FAILURE_POLICIES,
    "matchPolicy": MATCH_POLICIES,
    "reinvocationPolicy": ("IfNeeded", "Never"),
    "sideEffects": ("None", "NoneOnDryRun"),
}
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")


def webhook_configuration_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a mutating or validating webhook configuration cannot be stored."""
    found: list[Cause] = []
    names: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        found += _webhook_causes(webhook, path)
        name = webhook.get("name", "")
        if name and name in names:
            found.append(field_errors.duplicate(f"{path}.name", name))
        names.add(name)
    return found


def _webhook_causes(webhook: JSON, path: str) -> Iterator[Cause]:
    yield from _name_causes(webhook.get("name", ""), f"{path}.name")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from rule_causes(rule, f"{path}.rules[{index}]")
    if not webhook.get("sideEffects"):
        yield field_errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    for field, values in _ONE_OF.items():
        if webhook.get(field) and webhook[field] not in values:
            yield field_errors.not_supported(f"{path}.{field}", webhook[field], values)
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        yield field_errors.invalid(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], why)
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(webhook.get(field), f"{path}.{field}")
    yield from client_config_causes(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from match_condition_causes(webhook.get("matchConditions") or [], f"{path}.matchConditions")
    yield from _review_version_causes(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")


def match_condition_causes(conditions: list[JSON], path: str, *, params: bool = False) -> Iterator[Cause]:
    """What is wrong with match conditions of a webhook or policy; `params` says whether they may use parameters."""
    if len(conditions) > MAX_CONDITIONS:
        yield field_errors.too_many(path, len(conditions), MAX_CONDITIONS)
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        where, name, source = f"{path}[{index}]", condition.get("name", ""), condition.get("expression", "").strip()
        if not source:
            yield field_errors.required(f"{where}.expression")
        else:
            compiled = partial(compile_condition, source, params=params)
            yield from expression_causes(compiled, source, f"{where}.expression")
        if not name:
            yield field_errors.required(f"{where}.name")
        elif name in names:
            yield field_errors.duplicate(f"{where}.name", name)
        else:
            yield from (field_errors.invalid(f"{where}.name", name, text) for text in label_key_errors(name))
        names.add(name)


def expression_causes(compiled: Callable[[], Any], source: str, path: str) -> Iterator[Cause]:
    """What is wrong with an expression that is not empty."""
    if not is_installed():
        yield field_errors.invalid(path, source, INSTALL)
        return
    try:
        compiled()
    except ExpressionError as error:
        yield field_errors.invalid(path, source, f"compilation failed: {error}")


def _name_causes(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield field_errors.required(path)
        return
    for problem in is_dns1123_subdomain(name):
        yield field_errors.invalid(path, name, problem)
        return
    if name.count(".") < 2:
        yield field_errors.invalid(path, name, "should be a domain with at least three segments separated by dots")


def rule_causes(rule: JSON, path: str) -> Iterator[Cause]:
    """What is wrong with a rule that names requests."""
    operations = rule.get("operations") or []
    if not operations:
        yield field_errors.required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        why = "if '*' is present, must not specify other operations"
        yield field_errors.invalid(f"{path}.operations", operations, why)
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield field_errors.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for field, noun in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            yield field_errors.required(f"{path}.{field}")
        if len(values) > 1 and "*" in values:
            yield field_errors.invalid(f"{path}.{field}", values, f"if '*' is present, must not specify other {noun}")
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield field_errors.required(f"{path}.apiVersions[{index}]")
    yield from _resource_causes(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope", "*") not in _SCOPES:
        yield field_errors.not_supported(f"{path}.scope", rule["scope"], _SCOPES)


def _resource_causes(resources: list[str], path: str) -> Iterator[Cause]:
    if not resources:
        yield field_errors.required(path)
    all_below: set[str] = set()  # resources named as x/*
    everywhere: set[str] = set()  # subresources named as */x
    for index, name in enumerate(resources):
        if not name:
            yield field_errors.required(f"{path}[{index}]")
            continue
        resource, slash, subresource = name.partition("/")
        if not slash:
            continue
        if resource in all_below:
            why = f"if '{resource}/*' is present, must not specify {name}"
            yield field_errors.invalid(f"{path}[{index}]", name, why)
        if subresource in everywhere:
            why = f"if '*/{subresource}' is present, must not specify {name}"
            yield field_errors.invalid(f"{path}[{index}]", name, why)
        if subresource == "*":
            all_below.add(resource)
        if resource == "*":
            everywhere.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield field_errors.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    whole = [name for name in resources if name and "/" not in name]
    if "*" in whole and whole[-1] != "*":  # the real server looks at the last one only
        why = "if '*' is present, must not specify other resources without subresources"
        yield field_errors.invalid(path, resources, why)


def _review_version_causes(versions: list[str], path: str) -> Iterator[Cause]:
    if not versions:
        yield field_errors.required(path, "must specify one of v1, v1beta1")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield field_errors.invalid(f"{path}[{index}]", version, "duplicate version")
        elif not _DNS1035_LABEL.fullmatch(version):
            yield field_errors.invalid(f"{path}[{index}]", version, "must be a lower case DNS label")
        seen.add(version)
    if seen.isdisjoint(REVIEW_VERSIONS):
        yield field_errors.invalid(path, versions, "must include at least one of v1, v1beta1")


def client_config_causes(client: JSON, path: str) -> Iterator[Cause]:
    """What is wrong with where a webhook listens."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield field_errors.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_causes(url, f"{path}.url")
    else:
        yield from _service_causes(service or {}, f"{path}.service")


def _url_causes(url: str, path: str) -> Iterator[Cause]:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield field_errors.required(path, f"url must be a valid URL: {error}{form}")
        return
    if parts.scheme != "https":
        yield field_errors.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        yield field_errors.invalid(path, "", f"host must be specified{form}")
    for value, noun in (
        (user, "user information is"),
        (parts.fragment, "fragments are"),
        (parts.query, "query parameters are"),
    ):
        if value:
            yield field_errors.invalid(path, value, f"{noun} not permitted in the URL")


def _service_causes(service: JSON, path: str) -> Iterator[Cause]:
    for field, other in (("name", "namespace"), ("namespace", "name")):  # the real server names the other one
        if not service.get(field):
            yield field_errors.required(f"{path}.{other}")
    port = service.get("port", 443)
    if problems := is_port_number(port):
        yield field_errors.invalid(f"{path}.port", port, f"port is not valid: {', '.join(problems)}")
    where = service.get("path") or "/"
    if where == "/":
        return
    if not where.startswith("/"):
        yield field_errors.invalid(f"{path}.path", where, "must start with a '/'")
    for index, segment in enumerate(where[1:].removesuffix("/").split("/")):
        for problem in is_dns1123_subdomain(segment) if segment else ["may not be empty"]:
            yield field_errors.invalid(f"{path}.path", where, f"segment[{index}]: {problem}")
