"""What moving from another program means: what stays, what gets better, what is not there, and in which steps. Pure.

The settings of the other program are read from its own Deployment (`carry_over`), so what is said here is what will
happen.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.cli.migrate.carry_over import CarriedSettings, carry_over, printable_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A program that people move from."""

    name: str
    operator: str  # ours, that takes its place
    images: tuple[str, ...]  # what its image is called, wherever it was pushed to
    better: tuple[str, ...]
    missing: tuple[str, ...] = ()
    profile: bool = False  # whether `steersman reload --profile` stands in for it
    kinds: tuple[str, ...] = ()  # custom kinds that carry over as they are


ORIGINALS: Final = {
    original.name: original
    for original in (
        Original(
            name="reloader",
            operator="reload",
            images=("stakater/reloader", "/reloader"),
            profile=True,
            better=(
                "a change made while the controller is down is applied when it runs again",
                "several sources that change together make one rollout",
                "values are hashed while they are read and dropped; Reloader holds every ConfigMap and Secret",
                "restarts are followed to their end; a failing one halts those after it",
            ),
        ),
        Original(
            name="wave",
            operator="reload",
            images=("wave-k8s/wave", "pusher/wave", "/wave"),
            profile=True,
            better=(
                "no finalizers and no owner references on sources: nothing hangs when wave is removed",
                "several sources that change together make one rollout",
                "CronJobs and any other kind take part",
            ),
        ),
        Original(
            name="xing",
            operator="reload",
            images=("k8s-deployment-restart-controller", "deployment-restart-controller"),
            profile=True,
            better=(
                "two replicas with leader election, so an upgrade or a lost node causes no gap",
                "a change made while the controller is down is applied when it runs again",
                "DaemonSets, CronJobs and any other kind take part",
            ),
        ),
        Original(
            name="shipshape",
            operator="reload",
            images=("helloworld-controller", "shipshape"),
            profile=True,
            better=(
                "a restart that waits survives a crash and a change of leader",
                "Secrets and every kind of reference count, not only labelled ConfigMaps",
                "a workload that the server refuses to restart does not hold up the others",
            ),
        ),
        Original(
            name="bindy",
            operator="dns",
            images=("firestoned/bindy", "/bindy"),
            kinds=("bind9clusters", "bind9instances", "dnszones", "arecords", "cnamerecords", "txtrecords"),
            better=(
                "one writer per zone: an update is one transaction with one serial, or nothing",
                "records of two resources at one name are merge_rules; what conflicts is named on the resource",
                "a primary that lost its disk gets its zones before it answers",
            ),
        ),
        Original(
            name="hourglass",
            operator="hourglass",
            images=("hourglass-kubernetes", "hourglass-operator"),
            kinds=("hourglassexecutors", "performers"),
            better=(
                "pods that run are adopted, none is deleted",
                "server-side apply: fields of others stay",
                "keys never appear in a ConfigMap",
            ),
        ),
        Original(
            name="kubernaut",
            operator="toolset",
            images=("dynamic-toolset", "kubernaut"),
            better=(
                "found by watches, not by polling",
                "`overrides.yaml` is never touched and always wins",
                "credentials only from namespaces you trust",
            ),
        ),
    )
}


_PROGRAM: Final = ("/usr/bin/python3", "-m", "steersman")  # the image's, which has no shell


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """The other program, as it is deployed."""

    namespace: str
    name: str
    image: str
    arguments: tuple[str, ...] = ()
    environ: dict[str, str] = {}
    references: dict[str, dict[str, Any]] = {}  # variables that come from a Secret or ConfigMap: `valueFrom`
    env_from: tuple[str, ...] = ()  # Secrets and ConfigMaps whose keys are all variables
    replicas: int = 1

    @property
    def title(self) -> str:
        """How kubectl names it."""
        return f"deployment/{self.name} in {self.namespace}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a person reads before they decide."""

    original: str
    operator: str
    found: str | None  # the Deployment it was read from
    same: tuple[str, ...]
    better: tuple[str, ...]
    missing: tuple[str, ...]
    left: tuple[str, ...]  # its settings that are not carried over, each with what to do
    values: dict[str, Any]  # for our chart
    settings: dict[str, Any]  # the same as a configuration file, for a process outside of it
    steps: tuple[str, ...]
    back: tuple[str, ...]
    instead: tuple[str, ...] = ()  # another way, where there is one


def find_original(original: Original, deployments: Iterable[Mapping[str, Any]]) -> Deployed | None:
    """Its Deployment among manifests, known by the image."""
    for manifest in deployments:
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers") or ():
            image = str(container.get("image", ""))
            path = re.sub(r":[^/]*$", "", image.partition("@")[0])
            if not any(f"/{path}".endswith(known if known[0] == "/" else f"/{known}") for known in original.images):
                continue
            namespace = manifest["metadata"].get("namespace", "default")
            environ, references = _variables(container.get("env") or (), namespace)
            command = [str(word) for word in container.get("command") or ()]
            return Deployed(
                namespace=namespace,
                name=manifest["metadata"]["name"],
                image=image,
                arguments=(*command[1:], *(str(word) for word in container.get("args") or ())),
                environ=environ,
                references=references,
                env_from=tuple(_sets_of_variables(container.get("envFrom") or ())),
                replicas=max(1, manifest["spec"].get("replicas", 1)),
            )
    return None


def _variables(rows: Iterable[Mapping[str, Any]], namespace: str) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The variables whose value is known here, and those that a Secret or ConfigMap holds."""
    environ: dict[str, str] = {}
    references: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, origin = str(row.get("name", "")), row.get("valueFrom") or {}
        if "secretKeyRef" in origin or "configMapKeyRef" in origin:
            references[name] = dict(origin)
        elif (origin.get("fieldRef") or {}).get("fieldPath") == "metadata.namespace":
            environ[name] = namespace
        elif not origin:  # other fields and resources of the pod say nothing about settings
            environ[name] = str(row.get("value") or "")
    return environ, references


def _sets_of_variables(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for row in rows:
        for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if field in row:
                yield f"{kind} {row[field].get('name')}"


def still_running(original: Original, deployments: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The Deployments of the original that want pods, or still have some."""
    found = []
    for manifest in deployments:
        wanted = manifest.get("spec", {}).get("replicas", 1) or manifest.get("status", {}).get("replicas", 0)
        if wanted and (deployed := find_original(original, [manifest])) is not None:
            found.append(deployed.title)
    return tuple(found)


def report_on(original: Original, deployed: Deployed | None) -> Report:
    """What moving means; without a Deployment, for the defaults of the original."""
    here = deployed or Deployed(namespace="NAMESPACE", name=original.name, image="")
    missing = list(original.missing)
    left = [f"envFrom {source}: its variables are not read here: set what they say by hand" for source in here.env_from]
    values: dict[str, Any] = {"operators": [original.operator]}
    same: list[str] = [f"every {kind} as it is" for kind in original.kinds]
    if original.profile:
        settings = carried_settings(original, here)
        carried = settings.section
        missing += settings.notes
        left += settings.left
        same += [f"{field}: {_plain(value)}" for field, value in carried.items()]
        same.append("its annotations and its marks; in its own Deployment also its flags, Lease, ports and metrics")
        if carried:
            values["config"] = {"reload": carried}
        if settings.env:
            values["env"] = list(settings.env)
            same.append(f"{', '.join(row['name'] for row in settings.env)}: from a Secret, never in the values")
        if settings.log_level != "info":
            values["logLevel"] = settings.log_level
        if carried.get("namespaces"):
            values["namespaces"] = list(carried["namespaces"])  # rights end there too, as they did
    if original.operator == "toolset":
        values["config"] = {"toolset": {"dialects": ["kubernaut"]}}  # its keys and no others
        if deployed is not None:
            values["config"]["toolset"]["namespace"] = deployed.namespace  # where its ConfigMap is
        same.append("its ConfigMap with its keys; add holmesgpt to dialects for a file that HolmesGPT loads")
    if rules := _further_rules(original.operator, values.get("config", {})):
        values["rbac"] = {"extraRules": rules}
    if not original.profile:
        left += [f"{name}: comes from a Secret or ConfigMap: set what it says by hand" for name in here.references]
    return Report(
        original=original.name,
        operator=original.operator,
        found=f"{deployed.title} ({deployed.image})" if deployed else None,
        same=tuple(same),
        better=original.better,
        missing=tuple(missing),
        left=tuple(left),
        values=values,
        settings={"operators": values["operators"], **values.get("config", {})},
        steps=_steps(original, here, with_secret=bool(values.get("env"))),
        back=_back(here),
        instead=_in_its_own_deployment(original, here) if original.profile else (),
    )


def carried_settings(original: Original, deployed: Deployed) -> CarriedSettings:
    """The settings of an original that `steersman reload` stands in for."""
    return carry_over(original.name, deployed.arguments, deployed.environ, deployed.references)


def _further_rules(operator: str, config: dict[str, Any]) -> list[dict[str, list[str]]]:
    """The rules that these settings need missing_rules those of the chart, which are made for the defaults."""
    from steersman.operators import load_operator, permissions_of
    from steersman.runtime.rbac import missing_rules, rule_manifest

    ours = load_operator(operator)
    if ours.config is None or operator not in config:
        return []
    settings = msgspec.convert(config[operator], ours.config)
    needed, granted = (permissions_of([(ours, section)]) for section in (settings, ours.config()))
    further = missing_rules([*needed.namespace, *needed.cluster], [*granted.namespace, *granted.cluster])
    return [rule_manifest(rule) for rule in further]


def _plain(value: Any) -> str:
    """As a person would write it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain_row(part) if isinstance(part, dict) else _plain(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain_row(row: dict[str, Any]) -> str:
    """The first field of a row of a list, which names it, and the others after it.

    >>> _plain_row({"kind": "CronJob", "restart": "run"})
    'CronJob (restart run)'
    """
    (_, name), *rest = row.items()
    return f"{_plain(name)} ({_plain(dict(rest))})" if rest else _plain(name)


_IMAGE: Final = "registry.example.org/steersman"  # there is no public image: users put the name of theirs here


def _steps(original: Original, deployed: Deployed, *, with_secret: bool) -> tuple[str, ...]:
    stop = f"kubectl -n {deployed.namespace} scale deployment/{deployed.name} --replicas 0"
    files = f"steersman migrate from {original.name} --values values.yaml --config steersman.yaml"
    secret = ("kubectl create namespace steersman; kubectl apply -f secret.yaml",) if with_secret else ()
    files += " --secret secret.yaml" if with_secret else ""
    check = (
        f"steersman migrate check {original.name} --config steersman.yaml    # says what would happen; writes nothing"
    )
    install = "helm install steersman charts/steersman -n steersman --create-namespace -f values.yaml"
    install += f" --set image.repository={_IMAGE}"
    if original.kinds:
        install += " --take-ownership"  # the definitions are there already
    if not original.profile:
        return (files, check, stop, install)
    shadow = "steersman run --config steersman.yaml --shadow    # beside it; writes nothing, reports differences"
    return (files, shadow, check, *secret, stop, install)


def _in_its_own_deployment(original: Original, deployed: Deployed) -> tuple[str, ...]:
    """The other way: our image in the original's Deployment, with its flags, Lease, ports and metrics; and back."""
    place = "/spec/template/spec/containers/0"
    patch = [
        {"op": "replace", "path": f"{place}/image", "value": f"{_IMAGE}:VERSION"},
        {"op": "add", "path": f"{place}/command", "value": [*_PROGRAM, "reload", "--profile", original.name]},
    ]
    written = msgspec.json.encode(patch).decode()
    arguments = shlex.join(printable_arguments(deployed.arguments))
    return (
        f"steersman reload --profile {original.name} --shadow {arguments}".rstrip() + "    # beside it",
        f"kubectl -n {deployed.namespace} patch deployment/{deployed.name} --type json -p '{written}'",
        f"kubectl -n {deployed.namespace} rollout undo deployment/{deployed.name}    # the way back",
    )


def _back(deployed: Deployed) -> tuple[str, ...]:
    start = f"kubectl -n {deployed.namespace} scale deployment/{deployed.name} --replicas {deployed.replicas}"
    return ("helm uninstall steersman -n steersman    # definitions and objects stay", start)
