"""One request of a sequence, as data that prints, reads back and shrinks.

A step names an object by kind and a short name, never by revision or uid: those differ between servers, so a step says
"the live revision" or "a stale one" and each server's side fills in its own. Nothing here does I/O.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from steersman.kube.api.gvk import Kind

__all__ = ["GROUP", "HOOKED", "KINDS", "Owner", "Revision", "Step", "Verb", "from_lines", "to_lines"]

GROUP = "differential.example.org"
HOOKED = "hooked"  # the label of objects that webhooks are asked about; its value says what they answer

KINDS: dict[str, Kind] = {
    "configmap": Kind(version="v1", kind="ConfigMap", plural="configmaps"),
    "secret": Kind(version="v1", kind="Secret", plural="secrets"),
    "service": Kind(version="v1", kind="Service", plural="services"),
    "pod": Kind(version="v1", kind="Pod", plural="pods"),
    "deployment": Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    "statefulset": Kind(group="apps", version="v1", kind="StatefulSet", plural="statefulsets"),
    "cronjob": Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs"),
    "daemonset": Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets"),
    "job": Kind(group="batch", version="v1", kind="Job", plural="jobs"),
    "serviceaccount": Kind(version="v1", kind="ServiceAccount", plural="serviceaccounts"),
    "budget": Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"),
    "autoscaler": Kind(
        group="autoscaling", version="v2", kind="HorizontalPodAutoscaler", plural="horizontalpodautoscalers"
    ),
    "ingress": Kind(group="networking.k8s.io", version="v1", kind="Ingress", plural="ingresses"),
    "role": Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles"),
    "lease": Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases"),
    "widget": Kind(group=GROUP, version="v1", kind="Widget", plural="widgets"),
    "quota": Kind(version="v1", kind="ResourceQuota", plural="resourcequotas"),
    "gadget": Kind(group=GROUP, version="v1", kind="Gadget", plural="gadgets"),  # and v2, with another schema
}

Verb = Literal[
    "create",
    "replace",
    "modify",
    "merge",
    "json",
    "strategic",
    "apply",
    "delete",
    "clear",
    "get",
    "list",
    "watch",
    "evict",
    "limit",
    "count",
    "collect",
]
Revision = Literal["none", "live", "stale", "wrong"]


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An owner reference: to the last object that had this kind and name, or to one that never was."""

    kind: str
    name: str
    block: bool = False
    controller: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request.

    `modify` reads the live object, merges `body` into it and writes it back; `clear` deletes what selectors select. A
    list with a revision shows the collection as it was when `name` had that revision.

    `limit` puts a quota in force and `count` brings its usage up to date, which a controller does on a real cluster.
    `collect` waits for garbage collection and shows what is left.
    """

    verb: Verb
    kind: str
    name: str = ""
    body: Any = None
    manager: str = ""  # fieldManager; empty leaves it to the user agent
    subresource: str = ""
    version: str = ""  # of the request; empty: the version of the kind
    revision: Revision = "none"  # what a write or a delete says it expects
    uid: Revision = "none"  # what a delete says it expects
    force: bool = False
    dry_run: bool = False
    strict: bool = False
    labels: str = ""  # label selector of a list or watch
    fields: str = ""  # field selector of a list or watch
    limit: int = 0  # page size of a list; all pages are read
    owners: tuple[Owner, ...] = ()  # of the written object
    propagation: str = ""  # policy of a delete
    live: bool = False  # a watch that is open while the sequence runs, instead of reading the past at its end

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def to_lines(steps: list[Step]) -> str:
    """A sequence as lines of JSON, for people and for `--replay`."""
    return "\n".join(str(step) for step in steps)


def from_lines(text: str) -> list[Step]:
    """The inverse of `to_lines`."""
    return [msgspec.json.decode(line, type=Step) for line in text.splitlines() if line.strip()]
