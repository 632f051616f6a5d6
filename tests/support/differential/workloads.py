"""Strategies for the parts that pods, workloads and services are made of, and for strategic merge directives."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.support.manifests import container

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "PATHS",
    "completed",
    "cronjob_spec",
    "daemonset_spec",
    "deployment_spec",
    "job_spec",
    "pod_spec",
    "service_spec",
    "statefulset_spec",
    "with_directives",
]

PATHS: dict[str, list[str]] = {
    "deployment": ["/spec/replicas", "/spec/template/spec/containers/0/image", "/spec/template/spec/containers/0/args"],
    "service": ["/spec/selector/app", "/spec/ports/0/name"],
}

_images = st.sampled_from(["registry.example/app:1", "registry.example/app:2", "registry.example/app"])
_values = st.sampled_from(["1", "2"])
_quantities = st.sampled_from(["500m", "0.5", "1", "1Gi", "1024Mi", "100M"])


def optional(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """A dict with any subset of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _unique(strategy: SearchStrategy[Any], key: str, most: int = 2) -> SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most, unique_by=lambda item: item[key])


def _env() -> SearchStrategy[dict[str, Any]]:
    plain = st.fixed_dictionaries({"name": st.sampled_from(["A", "B", "C"]), "value": _values})
    source = st.just({"configMapKeyRef": {"name": "settings", "key": "k"}})
    return st.one_of(plain, st.fixed_dictionaries({"name": st.sampled_from(["A", "B"]), "valueFrom": source}))


def _container(names: tuple[str, ...]) -> SearchStrategy[dict[str, Any]]:
    port = st.fixed_dictionaries(
        {"containerPort": st.sampled_from([80, 81])},
        optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": st.sampled_from(["http", "web"])},
    )
    probe = st.one_of(
        st.just({"httpGet": {"path": "/", "port": 80}}), st.just({"tcpSocket": {"port": "http"}, "periodSeconds": 5})
    )
    amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), _quantities, max_size=2)
    return st.fixed_dictionaries(
        {"name": st.sampled_from(names), "image": _images},
        optional={
            "env": _unique(_env(), "name", 3),
            "ports": _unique(port, "containerPort"),
            "args": st.lists(_values, max_size=2),
            "resources": optional(limits=amounts),
            "volumeMounts": _unique(
                st.fixed_dictionaries({"name": st.just("v1"), "mountPath": st.sampled_from(["/a", "/b"])}), "mountPath"
            ),
            "envFrom": st.lists(st.just({"secretRef": {"name": "token"}}), max_size=1),
            "readinessProbe": probe,
            "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent"]),
        },
    )


def _volume() -> SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"name": st.sampled_from(["v1", "v2"]), "emptyDir": st.just({})}),
        st.fixed_dictionaries({"name": st.sampled_from(["v1", "v2"]), "configMap": st.just({"name": "settings"})}),
        st.fixed_dictionaries({"name": st.just("v2"), "secret": st.just({"secretName": "token"})}),
    )


def pod_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a pod's spec."""
    toleration = st.just({"key": "a", "operator": "Exists"})
    return optional(
        containers=_unique(_container(("main", "side", "third")), "name", 3),
        initContainers=_unique(_container(("init",)), "name", 1),
        volumes=_unique(_volume(), "name"),
        nodeSelector=st.dictionaries(st.sampled_from(["disk", "zone"]), _values, max_size=2),
        tolerations=st.lists(toleration, max_size=1),
        imagePullSecrets=st.lists(st.just({"name": "pull"}), max_size=1),
        serviceAccountName=st.just("runner"),
        terminationGracePeriodSeconds=st.sampled_from([0, 10]),
        securityContext=optional(runAsUser=st.just(1000), fsGroup=st.just(1)),
        hostNetwork=st.booleans(),
    )


def _template() -> SearchStrategy[dict[str, Any]]:
    meta = optional(annotations=st.dictionaries(st.just("restarted"), _values, max_size=1))
    return optional(metadata=meta, spec=pod_spec())


def deployment_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a Deployment's spec; selector and template labels are added when the object must be whole."""
    rolling = optional(maxSurge=st.sampled_from([1, "50%"]), maxUnavailable=st.sampled_from([0, 1, "10%"]))
    strategy = st.one_of(
        st.just({"type": "Recreate"}),
        st.fixed_dictionaries({"type": st.just("RollingUpdate"), "rollingUpdate": rolling}),
    )
    return optional(
        replicas=st.integers(0, 3),
        strategy=strategy,
        minReadySeconds=st.sampled_from([0, 5]),
        paused=st.booleans(),
        template=_template(),
        revisionHistoryLimit=st.sampled_from([3, 10]),
    )


def statefulset_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a StatefulSet's spec."""
    return optional(
        replicas=st.integers(0, 3),
        template=_template(),
        serviceName=st.just("web"),
        podManagementPolicy=st.sampled_from(["OrderedReady", "Parallel"]),
    )


def cronjob_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a CronJob's spec."""
    return optional(
        schedule=st.sampled_from(["* * * * *", "@daily", "never"]),
        suspend=st.booleans(),
        concurrencyPolicy=st.sampled_from(["Allow", "Forbid"]),
        jobTemplate=optional(spec=optional(backoffLimit=st.integers(0, 2), template=_template())),
    )


def daemonset_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a DaemonSet's spec."""
    strategy = st.sampled_from([{"type": "OnDelete"}, {"rollingUpdate": {"maxUnavailable": 2}}])
    return optional(template=_template(), minReadySeconds=st.sampled_from([0, 5]), updateStrategy=strategy)


def job_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a Job's spec."""
    return optional(
        template=_template(),
        parallelism=st.integers(0, 2),
        completions=st.integers(1, 2),
        backoffLimit=st.integers(0, 2),
        suspend=st.just(False),
        ttlSecondsAfterFinished=st.just(60),
    )


def service_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a Service's spec."""
    port = st.fixed_dictionaries(
        {"port": st.sampled_from([80, 81]), "name": st.sampled_from(["a", "b"])},
        optional={
            "protocol": st.sampled_from(["TCP", "UDP"]),
            "targetPort": st.sampled_from([8080, "http"]),
            "appProtocol": st.just("http"),
        },
    )
    return optional(
        ports=_unique(port, "name"),
        selector=st.dictionaries(st.sampled_from(["app", "tier"]), _values, max_size=2),
        type=st.sampled_from(["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer"]),
        sessionAffinity=st.sampled_from(["None", "ClientIP"]),
        publishNotReadyAddresses=st.booleans(),
    )


def completed(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """The content with everything the server requires, without touching what is there."""
    content = copy.deepcopy(content)
    match kind:
        case "deployment" | "statefulset" | "daemonset":
            spec = content.setdefault("spec", {})
            spec.setdefault("selector", {"matchLabels": {"app": "web"}})
            template = spec.setdefault("template", {})
            template.setdefault("metadata", {}).setdefault("labels", {})["app"] = "web"
            _complete_pod(template.setdefault("spec", {}))
        case "pod":
            _complete_pod(content.setdefault("spec", {}))
        case "job":
            pod = content.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {})
            _complete_pod(pod)
            pod.setdefault("restartPolicy", "Never")
        case "cronjob":
            spec = content.setdefault("spec", {})
            spec.setdefault("schedule", "* * * * *")
            job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
            pod = job.setdefault("template", {}).setdefault("spec", {})
            _complete_pod(pod)
            pod.setdefault("restartPolicy", "Never")
        case "service":
            spec = content.setdefault("spec", {})
            if not spec.get("ports"):
                spec["ports"] = [{"port": 80}]
        case _:
            pass
    return content


def _complete_pod(spec: dict[str, Any]) -> None:
    if not spec.get("containers"):
        spec["containers"] = [container("main")]
    mounted = {mount["name"] for part in _parts(spec) for mount in part.get("volumeMounts", [])}
    volumes = spec.setdefault("volumes", [])
    volumes.extend({"name": name, "emptyDir": {}} for name in sorted(mounted - {item["name"] for item in volumes}))
    if not volumes:
        del spec["volumes"]
    for part in _parts(spec):
        probe = part.get("readinessProbe", {})
        if "tcpSocket" in probe or part["name"] == "init":
            part.pop("readinessProbe", None)


def _parts(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("containers", []), *spec.get("initContainers", [])]


_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}


def with_directives(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """A strategic merge patch with, now and then, one of its directives."""
    result: dict[str, Any] = _directed(draw, copy.deepcopy(body))
    finalizers = result.get("metadata", {}) or {}
    if finalizers.get("finalizers") and draw(st.integers(0, 3)) == 0:
        finalizers["$deleteFromPrimitiveList/finalizers"] = finalizers.pop("finalizers")
    return result


def _directed(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, list) and item and (merge_key := _KEYS.get(key)):
            result |= _directed_list(draw, key, merge_key, item)
        elif isinstance(item, dict) and key in {"data", "labels", "nodeSelector", "selector"}:
            result[key] = item | ({"$patch": "replace"} if draw(st.integers(0, 7)) == 0 else {})
        else:
            result[key] = _directed(draw, item)
    return result


def _directed_list(draw: st.DrawFn, name: str, key: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    match draw(st.sampled_from(["", "", "", "delete", "replace", "order"])):
        case "delete":
            return {name: [{key: items[0][key], "$patch": "delete"}, *items[1:]]}
        case "replace":
            return {name: [*items, {"$patch": "replace"}]}
        case "order":
            return {name: items, f"$setElementOrder/{name}": [{key: item[key]} for item in reversed(items)]}
        case _:
            return {name: items}
