"""Holders: whether who holds a Lease may change workloads in all namespaces.

A Lease proves nothing about its author but that somebody may write Leases in its namespace. So it is asked who that is:
the holder names a pod there, the pod runs as a service account, and the API server says what that account may do.
Nobody gets an account with rights in all namespaces by writing Leases, or anything else, in one: who can make the
answer a yes could change every workload already, and to hold up restarts adds nothing to that.

    holder ──► pod of that name that runs ──► its service account ──► may it patch Deployments everywhere?
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.types.authorization import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from steersman.kube.types.pods import Pod
from steersman.kube.types.rbac import PolicyRule

if TYPE_CHECKING:
    from steersman.kube.client import Client

__all__ = ["RULES", "Verdict", "reach_of"]

RULES: Final = (
    PolicyRule(api_groups=[""], resources=["pods"], verbs=["list"]),
    PolicyRule(api_groups=["authorization.k8s.io"], resources=["subjectaccessreviews"], verbs=["create"]),
)
_VERBS: Final = ("patch", "update")  # either is enough to restart
_OVER: Final = ("Succeeded", "Failed")


class Verdict(msgspec.Struct, frozen=True):
    """How far a holder reaches, and why."""

    everywhere: bool
    why: str


async def reach_of(client: Client, namespace: str, holder: str) -> Verdict:
    """How far the holder of a Lease in `namespace` reaches; KubeError when that cannot be found out."""
    pod = await _pod(client, namespace, holder)
    if pod is None:
        return Verdict(everywhere=False, why=f"no pod in {namespace} has the name of its holder")
    account = pod.spec.service_account_name or "default"
    for verb in _VERBS:
        question = SubjectAccessReviewSpec(
            user=f"system:serviceaccount:{namespace}:{account}",
            groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            resource_attributes=ResourceAttributes(verb=verb, group="apps", resource="deployments"),
        )
        if (await client.create(SubjectAccessReview(spec=question))).status.allowed:
            return Verdict(everywhere=True, why=f"serviceaccount/{account} may {verb} deployments in all namespaces")
    return Verdict(everywhere=False, why=f"serviceaccount/{account} may not change deployments in all namespaces")


async def _pod(client: Client, namespace: str, holder: str) -> Pod | None:
    """The pod that a holder names: by its name, or as controller-runtime does, with a random part behind it."""
    for name in dict.fromkeys((holder, holder.partition("_")[0])):
        if not name or "," in name or "=" in name:
            continue
        listing = await client.list(Pod, namespace=namespace, field_selector=f"metadata.name={name}")
        for pod in listing.items:
            if pod.status.phase not in _OVER and not pod.deleting:
                return pod
    return None
