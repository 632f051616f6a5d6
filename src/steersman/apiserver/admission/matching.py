"""Which requests webhooks and policies are asked about: rules, match policy, selectors of namespaces and objects. Pure.

A request matches when a rule names it, no excluded rule does, and both selectors match. With the match policy
`Equivalent` a rule that names another version of the same resource also matches; the webhook or policy then sees the
object in that version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.resources.kinds import ResourceInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.apiserver.admission.match_resources import AdmissionRule, MatchResources
    from steersman.kube.api.gvk import Kind

JSON = dict[str, Any]
_POLICIES = {
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
_CONFIGURATIONS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


class AdmissionAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to happen, as webhooks and policies are asked about it."""

    operation: str  # CREATE, UPDATE or DELETE
    info: ResourceInfo  # the resource and version of the request
    subresource: str = ""
    namespace: str = ""  # of a request for a namespace: its own name
    name: str = ""
    object: JSON | None = None  # None on DELETE
    old: JSON | None = None  # None on CREATE
    dry_run: bool = False
    options: JSON
    user: JSON


def is_policy_kind(kind: Kind) -> bool:
    """Whether no webhook and no policy is asked about objects of this kind: a policy must not prevent its repair."""
    return kind.group == "admissionregistration.k8s.io" and kind.kind in _POLICIES


def is_exempt(kind: Kind) -> bool:
    """Whether no webhook is asked about objects of this kind: a webhook must not be able to prevent its repair."""
    return is_policy_kind(kind) or (kind.group == "admissionregistration.k8s.io" and kind.kind in _CONFIGURATIONS)


def matched_version(
    match: MatchResources,
    attributes: AdmissionAttributes,
    equivalents: Iterable[ResourceInfo],
    namespace_labels: Callable[[], Mapping[str, str]],
) -> ResourceInfo | None:
    """The version in which a webhook or policy is asked about a request; None when it is not asked.

    `equivalents` are all versions of the requested resource. `namespace_labels` is called only when they matter.
    """
    if not match.objects.empty and not any(
        match.objects.matches(obj["metadata"].get("labels"))
        for obj in (attributes.object, attributes.old)
        if obj is not None
    ):
        return None
    if match.excluded and _version(match.excluded, match, attributes, equivalents) is not None:
        return None
    found = _version(match.rules, match, attributes, equivalents)
    if found is None:
        return None
    about_namespace = attributes.info.kind.qualified == "namespaces"
    if not match.namespaces.empty and (attributes.namespace or about_namespace):
        written = attributes.object if about_namespace and not attributes.subresource else None
        labels = written["metadata"].get("labels") if written is not None else namespace_labels()
        if not match.namespaces.matches(labels):
            return None
    return found


def _version(
    rules: tuple[AdmissionRule, ...],
    match: MatchResources,
    attributes: AdmissionAttributes,
    equivalents: Iterable[ResourceInfo],
) -> ResourceInfo | None:
    if any(_names(rule, attributes, attributes.info) for rule in rules):
        return attributes.info
    if not match.equivalent:
        return None
    others = [info for info in equivalents if info is not attributes.info]
    if attributes.subresource:
        others = [info for info in others if attributes.subresource in info.subresources]
    return next((info for rule in rules for info in others if _names(rule, attributes, info)), None)


def _names(rule: AdmissionRule, attributes: AdmissionAttributes, info: ResourceInfo) -> bool:
    kind = info.kind
    return (
        rule.scope in {"*", "Namespaced" if kind.namespaced else "Cluster"}
        and not rule.operations.isdisjoint({"*", attributes.operation})
        and not rule.groups.isdisjoint({"*", kind.group})
        and not rule.versions.isdisjoint({"*", kind.version})
        and any(
            resource in {"*", kind.plural} and subresource in {"*", attributes.subresource}
            for resource, subresource in rule.resources
        )
        and (not rule.names or attributes.name in rule.names)
    )
