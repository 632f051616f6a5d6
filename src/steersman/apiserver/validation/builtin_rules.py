"""Validation of an object that is about to be stored, and the rules of built-in kinds beyond their types.

`invalid_causes` is the whole of it: metadata, then the rules of the kind or the schema of the custom resource. Rules
are what people get wrong and what may not change, one row per kind in `RULES`; a kind without a row has none. The real
server knows more rules than these; an object that passes here may still be rejected there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.crd.custom_resource_validation import validate, validate_rules, validate_status
from steersman.apiserver.crd.definition_rules import validate_definition
from steersman.apiserver.validation import field_errors, namespace_limit_rules, workload_rules
from steersman.apiserver.validation.certificate_rules import certificate_request_causes
from steersman.apiserver.validation.metadata_rules import (
    label_causes,
    selector_causes,
    validate_meta,
    validate_meta_update,
)
from steersman.apiserver.validation.names import (
    is_config_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_port_name,
    is_port_number,
)
from steersman.apiserver.validation.pod_rules import POD_PARTS, pod_causes, pod_template_causes
from steersman.apiserver.validation.policy_rules import policy_binding_causes, policy_causes
from steersman.apiserver.validation.volume_rules import claim_causes, persistent_volume_causes, storage_class_causes
from steersman.apiserver.validation.webhook_rules import webhook_configuration_causes
from steersman.kube.api.validation import label_key_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]

MAX_SECRET_SIZE = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_IMMUTABLE = "field is immutable"


def kind_causes(info: ResourceInfo, obj: JSON, old: JSON | None, *, subresource: str = "") -> list[Cause]:
    """Why an object of a built-in kind cannot be stored, beside its metadata. Defaults are filled in."""
    if info.kind.qualified == "certificatesigningrequests.certificates.k8s.io":
        return certificate_request_causes(obj, old, subresource)
    if subresource == "status":
        return _status(info, obj)
    if subresource in POD_PARTS and old is not None:
        return POD_PARTS[subresource](obj, old)
    if info.custom is not None or subresource:
        return []
    rule = RULES.get(info.storage.qualified)
    return rule(obj, old) if rule is not None else []


# The counts in the status of a workload: none of them is greater than `replicas`.
_COUNTS = {
    "deployments.apps": ("updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
    "replicasets.apps": ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    "statefulsets.apps": ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
}


def _status(info: ResourceInfo, obj: JSON) -> list[Cause]:
    if info.kind.qualified not in _COUNTS:
        return []
    return workload_rules.status_causes(obj.get("status") or {}, _COUNTS[info.kind.qualified])


def _frozen_causes(obj: JSON, old: JSON | None, *fields: str) -> list[Cause]:
    """What an immutable ConfigMap or Secret may not change."""
    if old is None or not old.get("immutable"):
        return []
    found = [] if obj.get("immutable") else [field_errors.forbidden("immutable", _FROZEN)]
    return found + [
        field_errors.forbidden(key, _FROZEN) for key in fields if (obj.get(key) or {}) != (old.get(key) or {})
    ]


def _decoded_size(value: str) -> int:
    return len(value) * 3 // 4 - value[-2:].count("=") if value else 0


def _config_map(obj: JSON, old: JSON | None) -> list[Cause]:
    found = _frozen_causes(obj, old, "data", "binaryData")
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in data:
        found += [field_errors.invalid(f"data[{key}]", key, text) for text in is_config_key(key)]
        if key in binary:
            found.append(field_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        found += [field_errors.invalid(f"binaryData[{key}]", key, text) for text in is_config_key(key)]
    size = sum(len((value or "").encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    if size > MAX_SECRET_SIZE:
        found.append(field_errors.too_long("[]", MAX_SECRET_SIZE))
    return found


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"


def _secret(obj: JSON, old: JSON | None) -> list[Cause]:
    """Values of secrets never appear in a cause."""
    kind, data = obj.get("type", ""), obj.get("data") or {}
    found: list[Cause] = []
    if old is not None and kind != old.get("type", ""):
        found.append(field_errors.invalid("type", kind, _IMMUTABLE))
    found += _frozen_causes(obj, old, "data")
    for key in data:
        found += [field_errors.invalid(f"data[{key}]", key, text) for text in is_config_key(key)]
    if sum(_decoded_size(value or "") for value in data.values()) > MAX_SECRET_SIZE:
        found.append(field_errors.too_long("data", MAX_SECRET_SIZE))
    found += [field_errors.required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if not _has(data, key, kind)]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        found += [field_errors.required("data[username]"), field_errors.required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        annotations = obj["metadata"].get("annotations") or {}
        if not annotations.get(_SERVICE_ACCOUNT_NAME):
            found.append(field_errors.required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]"))
    return found


def _has(data: JSON, key: str, kind: str) -> bool:
    return bool(data.get(key)) if kind == "kubernetes.io/ssh-auth" else key in data


def _pod_template(obj: JSON, _old: JSON | None) -> list[Cause]:
    return pod_template_causes(obj.get("template") or {}, "template")


def _lease(obj: JSON, _old: JSON | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(field_errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(field_errors.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


def _budget(obj: JSON, _old: JSON | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        found.append(field_errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            found += workload_rules.percent_causes(value, f"spec.{field}")
            found += workload_rules.at_most_all(value, f"spec.{field}")
    found += selector_causes(spec.get("selector"), "spec.selector")
    type_name = "policy.v1.PodDisruptionBudgetSpec"
    return found + field_errors.enum_causes(spec, type_name, "spec", "unhealthyPodEvictionPolicy")


def _binding(obj: JSON, old: JSON | None) -> list[Cause]:
    """A binding always binds the same role."""
    role = obj.get("roleRef") or {}
    found: list[Cause] = []
    if role.get("apiGroup", "rbac.authorization.k8s.io") != "rbac.authorization.k8s.io":
        allowed = ("rbac.authorization.k8s.io",)
        found.append(field_errors.not_supported("roleRef.apiGroup", role["apiGroup"], allowed))
    kinds = ("ClusterRole",) if obj.get("kind") == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if role.get("kind") not in kinds:
        found.append(field_errors.not_supported("roleRef.kind", role.get("kind", ""), kinds))
    if not role.get("name"):
        found.append(field_errors.required("roleRef.name"))
    if old is not None and role != old.get("roleRef"):
        found.append(field_errors.invalid("roleRef", role, "cannot change roleRef"))
    clusterwide = obj.get("kind") == "ClusterRoleBinding"
    for at, subject in enumerate(obj.get("subjects") or ()):
        found += _subject(subject, f"subjects[{at}]", clusterwide=clusterwide)
    return found


def _subject(subject: JSON, path: str, *, clusterwide: bool) -> Iterator[Cause]:
    kinds = {"ServiceAccount": "", "User": "rbac.authorization.k8s.io", "Group": "rbac.authorization.k8s.io"}
    kind, group = subject.get("kind", ""), subject.get("apiGroup", "")
    if not subject.get("name"):
        yield field_errors.required(f"{path}.name")
    if kind not in kinds:
        yield field_errors.not_supported(f"{path}.kind", kind, tuple(kinds))
    elif group != kinds[kind]:
        yield field_errors.not_supported(f"{path}.apiGroup", group, (kinds[kind],))
    if kind == "ServiceAccount" and clusterwide and not subject.get("namespace"):
        yield field_errors.required(f"{path}.namespace")


def _priority_class(obj: JSON, old: JSON | None) -> list[Cause]:
    if old is None or obj.get("value", 0) == old.get("value", 0):
        return []
    return [field_errors.forbidden("value", "may not be changed in an update.")]


def _controller_revision(obj: JSON, old: JSON | None) -> list[Cause]:
    found: list[Cause] = []
    if obj.get("revision", 0) < 0:
        found.append(field_errors.invalid("revision", obj["revision"], "must be greater than or equal to 0"))
    if old is not None and obj.get("data") != old.get("data"):
        found.append(field_errors.invalid("data", obj.get("data"), _IMMUTABLE))
    return found


def _role(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a Role or ClusterRole cannot be stored; one without a namespace may speak of paths."""
    namespaced = bool(obj["metadata"].get("namespace"))
    rules = enumerate(obj.get("rules") or ())
    found = [cause for at, rule in rules for cause in _rule(rule, f"rules[{at}]", namespaced=namespaced)]
    return found + _aggregation(obj["aggregationRule"]) if obj.get("aggregationRule") is not None else found


def _aggregation(rule: JSON) -> list[Cause]:
    path = "aggregationRule.clusterRoleSelectors"
    selectors = rule.get("clusterRoleSelectors") or []
    if not selectors:
        return [field_errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    found: list[Cause] = []
    for at, selector in enumerate(selectors):
        if causes := selector_causes(selector, f"{path}[{at}]"):
            found += [*causes, field_errors.invalid(f"{path}[{at}]", None, "invalid label selector")]
    return found


def _rule(rule: JSON, path: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield field_errors.required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield field_errors.invalid(f"{path}.nonResourceURLs", urls, text)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield field_errors.invalid(f"{path}.nonResourceURLs", urls, text)
        return
    if not rule.get("apiGroups"):
        yield field_errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield field_errors.required(f"{path}.resources", "resource rules must supply at least one resource")


def _autoscaler(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a HorizontalPodAutoscaler cannot be stored."""
    spec = obj.get("spec") or {}
    return [*_bounds(spec), *_target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")]


def _bounds(spec: JSON) -> Iterator[Cause]:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        yield field_errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    for direction, rules in (spec.get("behavior") or {}).items():
        path, window = f"spec.behavior.{direction}", (rules or {}).get("stabilizationWindowSeconds")
        if window is not None and not 0 <= window <= 3600:
            yield field_errors.invalid(f"{path}.stabilizationWindowSeconds", window, "must be between 0 and 3600")
        for at, policy in enumerate((rules or {}).get("policies") or ()):
            for field in ("value", "periodSeconds"):
                if (number := policy.get(field, 0)) <= 0:
                    yield field_errors.invalid(f"{path}.policies[{at}].{field}", number, "must be greater than zero")
    if most == 0:
        yield field_errors.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield field_errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield field_errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _target(reference: JSON, path: str) -> Iterator[Cause]:
    if not reference.get("kind"):
        yield field_errors.required(f"{path}.kind")
    if not reference.get("name"):
        yield field_errors.required(f"{path}.name")
    version = reference.get("apiVersion", "")
    if "/" not in version and (version != "v1" or reference.get("kind") != "ReplicationController"):
        yield field_errors.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _network_policy(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a NetworkPolicy cannot be stored."""
    spec = obj.get("spec") or {}
    found = selector_causes(spec.get("podSelector"), "spec.podSelector")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for at, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{at}]"
            for index, port in enumerate(rule.get("ports") or ()):
                found += _policy_port(port, f"{path}.ports[{index}]")
            for index, peer in enumerate(rule.get(side) or ()):
                if not any(peer.get(kind) is not None for kind in ("podSelector", "namespaceSelector", "ipBlock")):
                    found.append(field_errors.required(f"{path}.{side}[{index}]", "must specify a peer"))
    return found


def _policy_port(port: JSON, path: str) -> Iterator[Cause]:
    number, end = port.get("port"), port.get("endPort")
    yield from _target_causes(number, f"{path}.port")
    if end is not None and isinstance(number, int) and end < number:
        yield field_errors.invalid(f"{path}.endPort", end, "must be greater than or equal to `port`")


def _runtime_class(obj: JSON, _old: JSON | None) -> list[Cause]:
    return [] if obj.get("handler") else [field_errors.required("handler")]


def _endpoint_slice(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why an EndpointSlice cannot be stored."""
    kinds, kind = ("IPv4", "IPv6", "FQDN"), obj.get("addressType")
    if not kind:
        return [field_errors.required("addressType")]
    return [] if kind in kinds else [field_errors.not_supported("addressType", kind, kinds)]


def _ingress(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why an Ingress cannot be stored."""
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    if not spec.get("rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        found.append(field_errors.invalid("spec", spec.get("rules"), text))
    if backend := spec.get("defaultBackend"):
        found += _backend(backend, "spec.defaultBackend")
    for at, rule in enumerate(spec.get("rules") or ()):
        http = rule.get("http")
        if http is None:
            continue
        where = f"spec.rules[{at}].http.paths"
        if not http.get("paths"):
            found.append(field_errors.required(where))
        for index, path in enumerate(http.get("paths") or ()):
            found += _path(path, f"{where}[{index}]")
    return found


def _path(path: JSON, where: str) -> Iterator[Cause]:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        yield field_errors.required(f"{where}.pathType", "pathType must be specified")
    elif unknown := field_errors.enum_causes(path, "networking.v1.HTTPIngressPath", where, "pathType"):
        yield from unknown
    elif (kind != "ImplementationSpecific" or text) and not text.startswith("/"):
        yield field_errors.invalid(f"{where}.path", text, "must be an absolute path")
    yield from _backend(path.get("backend") or {}, f"{where}.backend")


def _backend(backend: JSON, where: str) -> Iterator[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield field_errors.invalid(where, "", "cannot set both resource and service backends")
    elif service is not None:
        if not service.get("name"):
            yield field_errors.required(f"{where}.service.name")
        port = service.get("port") or {}
        if port.get("name") and port.get("number"):
            yield field_errors.invalid(where, "", "cannot set both port name & port number")
        elif not port.get("name") and not port.get("number"):
            yield field_errors.required(where, "port name or number is required")
    elif resource is None:
        yield field_errors.required(where, "resource or service backend is required")


def _service(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a service cannot be stored."""
    spec = obj.get("spec") or {}
    found = list(_update_causes(spec, old["spec"])) if old is not None else []
    headless = spec.get("clusterIP") == "None" or (spec.get("clusterIPs") or [""])[0] == "None"
    kind = spec.get("type", "ClusterIP")
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        found.append(field_errors.required("spec.ports"))
    if headless and kind in {"LoadBalancer", "NodePort"}:
        found.append(
            field_errors.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
        )
    if kind == "ExternalName":
        found += _external_name_causes(spec)
    found += _port_list_causes(ports)
    found += label_causes(spec.get("selector"), "spec.selector")
    found += _affinity_causes(spec)
    found += field_errors.enum_causes(spec, "core.v1.ServiceSpec", "spec", "type")
    if kind == "ClusterIP":
        text = "may not be used when `type` is 'ClusterIP'"
        found += [
            field_errors.forbidden(f"spec.ports[{at}].nodePort", text)
            for at, port in enumerate(ports)
            if port.get("nodePort")
        ]
    return found + list(_repeated_ports(ports))


def _external_name_causes(spec: JSON) -> list[Cause]:
    found = [
        field_errors.forbidden(f"spec.{field}", "may not be set for ExternalName services")
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(field)
    ]
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*found, field_errors.required("spec.externalName")]
    return found + [field_errors.invalid("spec.externalName", name, text) for text in is_dns1123_subdomain(name)]


def _affinity_causes(spec: JSON) -> list[Cause]:
    affinity = spec.get("sessionAffinity", "None")
    if found := field_errors.enum_causes(spec, "core.v1.ServiceSpec", "spec", "sessionAffinity"):
        return found
    if affinity == "None" and spec.get("sessionAffinityConfig") is not None:
        text = "must not be set when session affinity is None"
        return [field_errors.forbidden("spec.sessionAffinityConfig", text)]
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= 86400:
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        return [field_errors.invalid(field, seconds, "must be greater than 0 and at most 86400")]
    return []


def _port_list_causes(ports: list[JSON]) -> list[Cause]:
    names: set[str] = set()
    found: list[Cause] = []
    for at, port in enumerate(ports):
        path = f"spec.ports[{at}]"
        name = port.get("name", "")
        if not name:
            found += [field_errors.required(f"{path}.name")] if len(ports) > 1 else []
        else:
            found += [field_errors.invalid(f"{path}.name", name, text) for text in is_dns1123_label(name)]
            found += [field_errors.duplicate(f"{path}.name", name)] if name in names else []
            names.add(name)
        number = port.get("port", 0)
        found += [field_errors.invalid(f"{path}.port", number, text) for text in is_port_number(number)]
        found += field_errors.enum_causes(port, "core.v1.ServicePort", path, "protocol")
        found += _target_causes(port.get("targetPort"), f"{path}.targetPort")
        if (protocol := port.get("appProtocol")) is not None:
            found += [
                field_errors.invalid(f"{path}.appProtocol", protocol, text) for text in label_key_errors(protocol)
            ]
    return found


def _target_causes(target: Any, field: str) -> list[Cause]:
    if target is None:
        return []
    complaints = is_port_name(target) if isinstance(target, str) else is_port_number(target)
    return [field_errors.invalid(field, target, text) for text in complaints]


def _repeated_ports(ports: list[JSON]) -> Iterator[Cause]:
    """Two ports are the same when protocol and number are."""
    seen: set[tuple[str, int]] = set()
    for at, port in enumerate(ports):
        if node := port.get("nodePort"):
            key = (port.get("protocol", "TCP"), node)
            if key in seen:
                yield field_errors.duplicate(f"spec.ports[{at}].nodePort", node)
            seen.add(key)
    seen.clear()
    for at, port in enumerate(ports):
        key = (port.get("protocol", "TCP"), port.get("port", 0))
        if key in seen:
            yield field_errors.duplicate(f"spec.ports[{at}]", {"protocol": key[0], "port": key[1]})
        seen.add(key)


def _update_causes(spec: JSON, old: JSON) -> Iterator[Cause]:
    """The cluster IP stays once it is there, unless the service stops having one."""
    external = "ExternalName"
    if old.get("type") == external or spec.get("type") == external or not (before := old.get("clusterIPs")):
        return
    now = spec.get("clusterIPs") or []
    if before[0] != (now[0] if now else ""):
        yield field_errors.invalid("spec.clusterIPs[0]", now or None, "may not change once set")


def invalid_causes(
    info: ResourceInfo, obj: dict[str, Any], old: dict[str, Any] | None, *, subresource: str = ""
) -> list[Cause]:
    """The rules that `obj` breaks, in the real server's order."""
    causes = validate_meta(info, obj) if old is None else validate_meta_update(info, obj, old)
    if info.custom is None:
        return causes + kind_causes(info, obj, old, subresource=subresource)
    if subresource == "status" and old is not None:
        causes += validate_status(info, obj, old)
    else:
        causes += validate(info, obj, old)
    return causes + validate_rules(info, obj, old, causes)


RULES: dict[str, Callable[[JSON, JSON | None], list[Cause]]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _binding,
    "clusterroles.rbac.authorization.k8s.io": _role,
    "configmaps": _config_map,
    "controllerrevisions.apps": _controller_revision,
    "cronjobs.batch": workload_rules.cron_job_causes,
    "customresourcedefinitions.apiextensions.k8s.io": validate_definition,
    "daemonsets.apps": workload_rules.daemon_set_causes,
    "deployments.apps": workload_rules.deployment_causes,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "ingresses.networking.k8s.io": _ingress,
    "jobs.batch": workload_rules.job_causes,
    "leases.coordination.k8s.io": _lease,
    "limitranges": namespace_limit_rules.limit_range_causes,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": webhook_configuration_causes,
    "networkpolicies.networking.k8s.io": _network_policy,
    "persistentvolumeclaims": claim_causes,
    "persistentvolumes": persistent_volume_causes,
    "poddisruptionbudgets.policy": _budget,
    "pods": pod_causes,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": workload_rules.replica_set_causes,
    "replicationcontrollers": workload_rules.replication_controller_causes,
    "resourcequotas": namespace_limit_rules.resource_quota_causes,
    "rolebindings.rbac.authorization.k8s.io": _binding,
    "roles.rbac.authorization.k8s.io": _role,
    "runtimeclasses.node.k8s.io": _runtime_class,
    "secrets": _secret,
    "services": _service,
    "storageclasses.storage.k8s.io": storage_class_causes,
    "statefulsets.apps": workload_rules.stateful_set_causes,
    "validatingadmissionpolicies.admissionregistration.k8s.io": policy_causes,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": policy_binding_causes,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": webhook_configuration_causes,
}
