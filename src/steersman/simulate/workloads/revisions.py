"""Revisions: every template a StatefulSet or DaemonSet has had, kept as ControllerRevisions.

Invariant: the revision of the present template has the highest number. Going back to an old template raises the number
of its revision instead of making another one; `kubectl rollout history` and `undo` read exactly this. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.objects import ObjectMeta, owner_reference
from steersman.kube.api.types.apps import ControllerRevision
from steersman.simulate.plan import Change
from steersman.simulate.workloads.pods import REVISION_LABEL, fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from steersman.simulate.kinds import JSON, SimulatedDaemonSet, SimulatedStatefulSet

_HISTORY = 10  # revisionHistoryLimit, the default
# The label of a ControllerRevision with the hash of its template. Pods of a DaemonSet carry the hash too, those of a
# StatefulSet the name of the revision.
HASH_LABELS = {"DaemonSet": REVISION_LABEL, "StatefulSet": "controller.kubernetes.io/hash"}


class RevisionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The revision of the present template, and what to do so that it is on record."""

    present: ControllerRevision
    create: tuple[ControllerRevision, ...] = ()
    change: tuple[Change, ...] = ()
    forget: tuple[ControllerRevision, ...] = ()


def history(
    owner: SimulatedStatefulSet | SimulatedDaemonSet, known: Sequence[ControllerRevision], used: Collection[str]
) -> RevisionHistory:
    """What is on record; `used` are the hashes that pods carry, whose revisions are never forgotten."""
    data = {"spec": {"template": {**owner.spec.template, "$patch": "replace"}}}
    ordered = sorted(known, key=lambda revision: revision.revision)
    latest = ordered[-1].revision if ordered else 0
    present = next((revision for revision in ordered if revision.data == data), None)
    if present is None:
        made = _new(owner, data, latest + 1)
        return RevisionHistory(present=made, create=(made,), forget=_surplus(owner, ordered, used))
    change = () if present.revision == latest else (Change(present, {"revision": latest + 1}),)
    return RevisionHistory(present=present, change=change, forget=_surplus(owner, ordered, {present.name, *used}))


def template_of(revision: ControllerRevision) -> JSON:
    """The template it records."""
    template: JSON = revision.data["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def _new(owner: SimulatedStatefulSet | SimulatedDaemonSet, data: JSON, number: int) -> ControllerRevision:
    digest = fingerprint(data)
    key = HASH_LABELS[owner.KIND.kind]
    labels = {**((owner.spec.template.get("metadata") or {}).get("labels") or {}), key: digest}
    return ControllerRevision(
        metadata=ObjectMeta(
            name=f"{owner.name}-{digest}",
            namespace=owner.namespace,
            labels=labels,
            annotations=dict(owner.annotations),
            owner_references=[owner_reference(owner)],
        ),
        revision=number,
        data=data,
    )


def _surplus(
    owner: SimulatedStatefulSet | SimulatedDaemonSet, ordered: Sequence[ControllerRevision], used: Collection[str]
) -> tuple[ControllerRevision, ...]:
    kept = owner.spec.revision_history_limit
    idle = [
        revision
        for revision in ordered
        if revision.name not in used and revision.labels.get(REVISION_LABEL) not in used
    ]
    return tuple(idle[: max(0, len(idle) - (_HISTORY if kept is None else kept))])
