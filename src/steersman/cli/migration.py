"""What moving from another program means: what stays, what gets better, what is not there, and in which steps. Pure.

The settings of the other program are read from its own Deployment, by the same code that runs in its place
(`steersman reload --profile`), so what is said here is what will happen.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ORIGINALS", "Original", "Report", "find_original", "report_on"]


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
            missing=("--webhook-url: a call in the place of a restart; notifications tell of restarts instead",),
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
                "two replicas with leader election, so an upgrade or a lost node is no gap",
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
                "records of two resources at one name are merged; what conflicts is named on the resource",
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
    unread: tuple[str, ...] = ()  # variables that come from elsewhere

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
    values: dict[str, Any]  # for our chart
    steps: tuple[str, ...]
    back: tuple[str, ...]


def find_original(original: Original, deployments: Iterable[Mapping[str, Any]]) -> Deployed | None:
    """Its Deployment among manifests, known by the image."""
    for manifest in deployments:
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers") or ():
            image = str(container.get("image", ""))
            path = re.sub(r":[^/]*$", "", image.partition("@")[0])
            if not any(f"/{path}".endswith(known if known[0] == "/" else f"/{known}") for known in original.images):
                continue
            variables = {str(one["name"]): one.get("value") for one in container.get("env") or () if "name" in one}
            command = [str(word) for word in container.get("command") or ()]
            return Deployed(
                namespace=manifest["metadata"].get("namespace", "default"),
                name=manifest["metadata"]["name"],
                image=image,
                arguments=(*command[1:], *(str(word) for word in container.get("args") or ())),
                environ={name: str(value) for name, value in variables.items() if value is not None},
                unread=tuple(name for name, value in variables.items() if value is None),
            )
    return None


def report_on(original: Original, deployed: Deployed | None) -> Report:
    """What moving means; without a Deployment, for the defaults of the original."""
    here = deployed or Deployed(namespace="NAMESPACE", name=original.name, image="")
    missing = list(original.missing)
    values: dict[str, Any] = {"operators": [original.operator]}
    same: list[str] = [f"every {kind} as it is" for kind in original.kinds]
    if original.profile:
        carried, notes = _settings(original.name, here)
        missing += notes
        same += [f"{field}: {_plain(value)}" for field, value in carried.items()]
        same.append("its annotations and its marks; in its own Deployment also its flags, Lease, ports and metrics")
        if carried:
            values["config"] = {"reload": carried}
    missing += [f"{name} comes from elsewhere: look what it says" for name in here.unread]
    return Report(
        original=original.name,
        operator=original.operator,
        found=f"{deployed.title} ({deployed.image})" if deployed else None,
        same=tuple(same),
        better=original.better,
        missing=tuple(missing),
        values=values,
        steps=_steps(original, here),
        back=_back(original, here),
    )


def _settings(name: str, deployed: Deployed) -> tuple[dict[str, Any], list[str]]:
    """The section `reload:` that says what the original was told, without defaults; and what cannot be said."""
    from steersman.operators.reload.dialects import dialects_for
    from steersman.operators.reload.profiles import read_profile
    from steersman.operators.reload.types import ReloadConfig

    try:
        profile = read_profile(name, deployed.arguments, deployed.environ)
    except ConfigError as error:
        return {}, [str(error)]
    notes = list(profile.notes)
    usual = dialects_for(profile.config.options())
    if [vars(dialect) for dialect in profile.dialects] != [vars(dialect) for dialect in usual]:
        notes.append("renamed annotations and --auto-reload-all in the chart: keep to its own Deployment (step 2)")
    written = _as_written(profile.config)
    defaults = _as_written(ReloadConfig())
    return {field: value for field, value in written.items() if value != defaults.get(field)}, notes


def _as_written(config: Any) -> dict[str, Any]:
    """The section as a YAML file would hold it: lists, and no other sequences."""
    section: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return section


def _plain(value: Any) -> str:
    """As a person would write it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _steps(original: Original, deployed: Deployed) -> tuple[str, ...]:
    stop = f"kubectl -n {deployed.namespace} scale deployment/{deployed.name} --replicas 0"
    install = "helm install steersman charts/steersman -n steersman --create-namespace -f values.yaml"
    if not original.profile:
        return (stop, install)
    run = f"steersman reload --profile {original.name}"
    place = "/spec/template/spec/containers/0"
    patch = [
        {"op": "replace", "path": f"{place}/image", "value": "steersman:VERSION"},
        {"op": "add", "path": f"{place}/command", "value": [*_PROGRAM, "reload", "--profile", original.name]},
    ]
    written = msgspec.json.encode(patch).decode()
    return (
        f"{run} --shadow {shlex.join(deployed.arguments)}".rstrip()
        + "    # beside it; writes nothing, reports differences",
        f"kubectl -n {deployed.namespace} patch deployment/{deployed.name} --type json -p '{written}'",
        f"later, with our own flags and policies: {stop} && {install}",
    )


def _back(original: Original, deployed: Deployed) -> tuple[str, ...]:
    start = f"kubectl -n {deployed.namespace} scale deployment/{deployed.name} --replicas 1"
    undo = f"kubectl -n {deployed.namespace} rollout undo deployment/{deployed.name}    # of step 2"
    leave = f"helm uninstall steersman -n steersman && {start}    # definitions and objects stay"
    return (undo, leave) if original.profile else (leave,)
