"""The defaults of the built-in kinds.

Defaults belong to types: wherever a container appears, in a Pod or three templates deep in a CronJob, it gets the same
ones. `RULES` has one row per type, applied while the object passes through its types (`conform.py`), innermost first.
A row is a table of values for fields that are absent, or a function when one field's default depends on another.

Invariant: applying the defaults twice is applying them once. What comes from elsewhere than the object itself (an
allocated address, a generated selector, an admission plugin) is not a default and not here.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.resources.conform import conform
from steersman.apiserver.resources.schema import builtin_schema
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.api.gvk import Kind

Struct = dict[str, Any]
ONE_HOUR: Final = 3600
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
LATEST: Final = re.compile(
    r"(?!.*@)(?:.*:latest|[^:]*|.*:[^/]*/[^:]*)\Z", re.DOTALL
)  # no tag and no digest, or :latest


def apply_defaults(kind: Kind, obj: Struct) -> Struct:
    """The object as the server decodes it: conformed to its type, with every default set."""
    return conform(builtin_schema(kind), obj, RULES)


def _fill(struct: Struct, **values: Any) -> None:
    for name, value in values.items():
        if struct.get(name) is None:
            struct[name] = value


def _values(**values: Any) -> Callable[[Struct], None]:
    """A rule that sets fields which are absent."""
    return lambda struct: _fill(struct, **values)


def _pull_policy(image: str) -> str:
    return "Always" if LATEST.match(image) else "IfNotPresent"


def _container(container: Struct) -> None:
    _fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=_pull_policy(container.get("image", "")),
    )
    _resources(container.get("resources", {}))


def _resources(resources: Struct) -> None:
    """Amounts are whole thousandths, rounded up."""
    for part in ("limits", "requests", "hard", "used", "capacity", "allocatable", "max", "min"):
        if part in resources:
            resources[part] = {name: _rounded(amount) for name, amount in resources[part].items()}


def _rounded(amount: str) -> str:
    if not amount.endswith(("n", "u")) and "." not in amount and "e-" not in amount.lower():
        return amount
    quantity = Quantity.parse(amount)
    milli = -(-quantity.nanos // 10**6)
    return str(Quantity(milli * 10**6, quantity.notation)) if milli * 10**6 != quantity.nanos else amount


def _volume(volume: Struct) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    if (image := volume.get("image")) is not None:
        _fill(image, pullPolicy=_pull_policy(image.get("reference", "")))


def _pod_spec(spec: Struct) -> None:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    _fill(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )


def _pod(pod: Struct) -> None:
    """A pod requests what it limits, unless it says otherwise; its templates do not."""
    spec = pod["spec"]
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                _fill(port, hostPort=port["containerPort"])
    if (limits := spec.get("resources", {}).get("limits")) and not _containers_request(spec):
        spec["resources"]["requests"] = {**limits, **spec["resources"].get("requests", {})}
    _fill(spec, enableServiceLinks=True)


def _containers_request(spec: Struct) -> bool:
    containers = (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
    return any(container["resources"].get("requests") for container in containers)


def _pod_status(status: Struct) -> None:
    """`podIP` is the first of `podIPs`, and wins when they differ."""
    address, addresses = status.get("podIP"), status.get("podIPs", [])
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


def _service(service: Struct) -> None:
    spec = service["spec"]
    _fill(spec, sessionAffinity="None", type="ClusterIP")
    kind = spec["type"]
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        known = spec.get("sessionAffinityConfig", {}).get("clientIP", {})
        if "timeoutSeconds" not in known:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 3 * ONE_HOUR}}
    if kind in {"LoadBalancer", "NodePort"} or (kind == "ClusterIP" and spec.get("externalIPs")):
        _fill(spec, externalTrafficPolicy="Cluster")
    if kind in {"ClusterIP", "LoadBalancer", "NodePort"}:
        _fill(spec, internalTrafficPolicy="Cluster")
    if kind == "LoadBalancer":
        _fill(spec, allocateLoadBalancerNodePorts=True)
        for ingress in service["status"]["loadBalancer"].get("ingress", ()):
            if ingress.get("ip"):
                _fill(ingress, ipMode="VIP")


def _service_port(port: Struct) -> None:
    _fill(port, protocol="TCP")
    if port.get("targetPort") in {None, 0, ""}:
        port["targetPort"] = port["port"]


def _rolling_deployment(spec: Struct) -> None:
    strategy = spec["strategy"]
    _fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy, rollingUpdate={})
        strategy["rollingUpdate"] = {"maxUnavailable": "25%", "maxSurge": "25%", **strategy["rollingUpdate"]}
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)


def _daemon_set(daemon_set: Struct) -> None:
    spec, metadata = daemon_set["spec"], daemon_set["metadata"]
    strategy = spec["updateStrategy"]
    _fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0, **strategy.get("rollingUpdate", {})}
    _fill(spec, revisionHistoryLimit=10)
    metadata["annotations"] = {TEMPLATE_GENERATION: "0", **metadata.get("annotations", {})}


def _stateful_set(spec: Struct) -> None:
    strategy = spec["updateStrategy"]
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        _fill(strategy, rollingUpdate={})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        _fill(strategy["rollingUpdate"], partition=0)
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec["persistentVolumeClaimRetentionPolicy"] = retention | spec.get("persistentVolumeClaimRetentionPolicy", {})
    _fill(spec, podManagementPolicy="OrderedReady", replicas=1, revisionHistoryLimit=10)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}


def _job(job: Struct) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _fill(
        spec,
        parallelism=1,
        backoffLimit=2**31 - 1 if "backoffLimitPerIndex" in spec else 6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
        manualSelector=False,
    )
    _labels_from_template(job)


def _condition_pattern(pattern: Struct) -> None:
    pattern["status"] = pattern["status"] or "True"


def _labels_from_template(owner: Struct) -> None:
    labels = (owner["spec"].get("template") or {}).get("metadata", {}).get("labels")
    if labels and not owner["metadata"].get("labels"):
        owner["metadata"]["labels"] = labels


def _replication_controller(controller: Struct) -> None:
    spec = controller["spec"]
    _fill(spec, replicas=1)
    if labels := (spec.get("template") or {}).get("metadata", {}).get("labels"):
        if not spec.get("selector"):
            spec["selector"] = labels
        _labels_from_template(controller)


def _scaling_policy(kind: str, value: int) -> Struct:
    return {"type": kind, "value": value, "periodSeconds": 15}


def _autoscaler(autoscaler: Struct) -> None:
    spec = autoscaler["spec"]
    _fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := spec.get("behavior")) is not None:
        up = [_scaling_policy("Pods", 4), _scaling_policy("Percent", 100)]
        down = [_scaling_policy("Percent", 100)]
        rules = behavior.get("scaleUp", {})
        behavior["scaleUp"] = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": up} | rules
        behavior["scaleDown"] = {"selectPolicy": "Max", "policies": down} | behavior.get("scaleDown", {})


def _secret(secret: Struct) -> None:
    _fill(secret, type="Opaque")
    if plain := secret.pop("stringData", None):
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = dict(sorted({**secret.get("data", {}), **encoded}.items()))


def _namespace(namespace: Struct) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": name}
    _fill(namespace["status"], phase="Active")


def _volume_status(obj: Struct) -> None:
    _fill(obj["status"], phase="Pending")


def _persistent_volume(volume: Struct) -> None:
    _volume_status(volume)
    _fill(volume["spec"], persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    _resources(volume["spec"])


def _node_status(status: Struct) -> None:
    if "capacity" in status:
        _fill(status, allocatable=status["capacity"])


def _node_spec(spec: Struct) -> None:
    """`podCIDR` is the first of `podCIDRs`, and wins when they differ."""
    network, networks = spec.get("podCIDR"), spec.get("podCIDRs", [])
    if network and (not networks or networks[0] != network):
        spec["podCIDRs"] = [network]
    elif networks:
        spec["podCIDR"] = networks[0]


def _limit_range_item(item: Struct) -> None:
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for name, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[name] = amounts


def _network_policy(policy: Struct) -> None:
    spec = policy.get("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(ingress_class: Struct) -> None:
    if (parameters := ingress_class["spec"].get("parameters")) is not None:
        _fill(parameters, scope="Cluster")


def _role_binding(binding: Struct) -> None:
    if not binding["roleRef"].get("apiGroup"):
        binding["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io"


def _subject(subject: Struct) -> None:
    if subject.get("kind") in {"User", "Group"}:
        _fill(subject, apiGroup="rbac.authorization.k8s.io")


def _webhook(webhook: Struct) -> None:
    _fill(
        webhook,
        failurePolicy="Fail",
        matchPolicy="Equivalent",
        namespaceSelector={},
        objectSelector={},
        timeoutSeconds=10,
    )


def _mutating_webhook(webhook: Struct) -> None:
    _webhook(webhook)
    _fill(webhook, reinvocationPolicy="Never")


def _csi_driver(driver: Struct) -> None:
    _fill(
        driver["spec"],
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        volumeLifecycleModes=["Persistent"],
        requiresRepublish=False,
        seLinuxMount=False,
    )


def _device_request(request: Struct) -> None:
    _fill(request, allocationMode="ExactCount")
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1


def _queuing(queuing: Struct) -> None:
    for field, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
        queuing[field] = queuing.get(field) or value


def _flow_schema(spec: Struct) -> None:
    spec["matchingPrecedence"] = spec.get("matchingPrecedence") or 1000


MODE: Final = _values(defaultMode=0o644)
API: Final = "io.k8s.api."
RULES: Final[dict[str, Callable[[Struct], None]]] = {
    API + name: rule
    for name, rule in {
        "admissionregistration.v1.MatchResources": _values(
            matchPolicy="Equivalent", namespaceSelector={}, objectSelector={}
        ),
        "admissionregistration.v1.MutatingAdmissionPolicySpec": _values(failurePolicy="Fail"),
        "admissionregistration.v1.MutatingWebhook": _mutating_webhook,
        "admissionregistration.v1.NamedRuleWithOperations": _values(scope="*"),
        "admissionregistration.v1.Rule": _values(scope="*"),
        "admissionregistration.v1.RuleWithOperations": _values(scope="*"),
        "admissionregistration.v1.ServiceReference": _values(port=443),
        "admissionregistration.v1.ValidatingAdmissionPolicySpec": _values(failurePolicy="Fail"),
        "admissionregistration.v1.ValidatingWebhook": _webhook,
        "apps.v1.DaemonSet": _daemon_set,
        "apps.v1.DeploymentSpec": _rolling_deployment,
        "apps.v1.ReplicaSetSpec": _values(replicas=1),
        "apps.v1.StatefulSetSpec": _stateful_set,
        "authentication.v1.TokenRequestSpec": _values(expirationSeconds=ONE_HOUR),
        "autoscaling.v1.HorizontalPodAutoscalerSpec": _values(minReplicas=1, targetCPUUtilizationPercentage=80),
        "autoscaling.v2.HorizontalPodAutoscaler": _autoscaler,
        "batch.v1.CronJobSpec": _values(
            concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
        ),
        "batch.v1.Job": _job,
        "batch.v1.PodFailurePolicyOnPodConditionsPattern": _condition_pattern,
        "core.v1.AzureDiskVolumeSource": _values(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared"),
        "core.v1.ConfigMapVolumeSource": MODE,
        "core.v1.Container": _container,
        "core.v1.ContainerPort": _values(protocol="TCP"),
        "core.v1.DownwardAPIVolumeSource": MODE,
        "core.v1.EndpointPort": _values(protocol="TCP"),
        "core.v1.EphemeralContainer": _container,
        "core.v1.FileKeySelector": _values(optional=False),
        "core.v1.HTTPGetAction": _values(path="/", scheme="HTTP"),
        "core.v1.HostPathVolumeSource": _values(type=""),
        "core.v1.ISCSIPersistentVolumeSource": _values(iscsiInterface="default"),
        "core.v1.ISCSIVolumeSource": _values(iscsiInterface="default"),
        "core.v1.LimitRangeItem": _limit_range_item,
        "core.v1.Namespace": _namespace,
        "core.v1.NodeSpec": _node_spec,
        "core.v1.NodeStatus": _node_status,
        "core.v1.ObjectFieldSelector": _values(apiVersion="v1"),
        "core.v1.PersistentVolume": _persistent_volume,
        "core.v1.PersistentVolumeClaim": _volume_status,
        "core.v1.PersistentVolumeClaimSpec": _values(volumeMode="Filesystem"),
        "core.v1.Pod": _pod,
        "core.v1.PodSpec": _pod_spec,
        "core.v1.PodStatus": _pod_status,
        "core.v1.Probe": _values(timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3),
        "core.v1.ProjectedVolumeSource": MODE,
        "core.v1.RBDPersistentVolumeSource": _values(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
        "core.v1.RBDVolumeSource": _values(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
        "core.v1.ReplicationController": _replication_controller,
        "core.v1.ResourceQuotaSpec": _resources,
        "core.v1.ScaleIOPersistentVolumeSource": _values(storageMode="ThinProvisioned", fsType="xfs"),
        "core.v1.ScaleIOVolumeSource": _values(storageMode="ThinProvisioned", fsType="xfs"),
        "core.v1.Secret": _secret,
        "core.v1.SecretVolumeSource": MODE,
        "core.v1.Service": _service,
        "core.v1.ServiceAccountTokenProjection": _values(expirationSeconds=ONE_HOUR),
        "core.v1.ServicePort": _service_port,
        "core.v1.Volume": _volume,
        "discovery.v1.EndpointPort": _values(name="", protocol="TCP"),
        "flowcontrol.v1.ExemptPriorityLevelConfiguration": _values(nominalConcurrencyShares=0, lendablePercent=0),
        "flowcontrol.v1.FlowSchemaSpec": _flow_schema,
        "flowcontrol.v1.LimitedPriorityLevelConfiguration": _values(nominalConcurrencyShares=30, lendablePercent=0),
        "flowcontrol.v1.QueuingConfiguration": _queuing,
        "networking.v1.IngressClass": _ingress_class,
        "networking.v1.NetworkPolicy": _network_policy,
        "networking.v1.NetworkPolicyPort": _values(protocol="TCP"),
        "rbac.v1.ClusterRoleBinding": _role_binding,
        "rbac.v1.RoleBinding": _role_binding,
        "rbac.v1.Subject": _subject,
        "resource.v1.DeviceSubRequest": _device_request,
        "resource.v1.ExactDeviceRequest": _device_request,
        "scheduling.v1.PriorityClass": _values(preemptionPolicy="PreemptLowerPriority"),
        "storage.v1.CSIDriver": _csi_driver,
        "storage.v1.StorageClass": _values(reclaimPolicy="Delete", volumeBindingMode="Immediate"),
    }.items()
}
