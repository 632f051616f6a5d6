"""The report of a pass: Events, log lines and metrics about a workload.

A notice becomes an Event once, for as long as it stays the same. A gate that opens by itself gets none; the gates in
`REASONS` need a person, or take long. A restart budget is usually used up because two programs write the same source in
turn. The API server knows them as field managers, so `diagnose` reads these once when the budget gate closes, and never
otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import field
from msgspec.structs import replace

from steersman.kube.api.errors import KubeError
from steersman.kube.api.objects import ManagedFieldsEntry, OwnedMeta, PartialObjectMetadata
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.planning.diff import describe
from steersman.operators.reload.planning.plan import Action, Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import SourceRef
    from steersman.operators.reload.planning.diff import SourceChange
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.plan import Observed
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

REASONS: Final = {
    "missing": "SourceMissing",
    "action": "ActionOff",
    "hook": "RestartHeldByHook",
    "freeze": "RestartFrozen",
    "approval": "RestartNeedsApproval",
    "budget": "RestartBudgetUsed",
    "schedule": "RestartScheduled",
    "halt": "RestartHalted",
}
# Failures while a plan was applied: when newer, they count more than a gate that closed before.
ACTION_FAILURES: Final = ("ReloadCallFailed", "EvictionFailed", "EvictionWaits")
MOST_FAILURES: Final = 10  # that are remembered of a workload
FAILURES: Final = ("ReloadCallFailed", "EvictionFailed", "EvictionWaits", "RestartRefused", "SourceUnreadable")
MISCONFIGURED: Final = "ReloadMisconfigured"

_MOST: Final = 3  # sources that are read, and writers named for each


class ReloadListener(Protocol):
    """Is called with what the controllers do: notifications, shadow mode, metrics of profiles."""

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:
        """A plan was made, and applied as far as there was anything to write and it might be written."""

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:
        """What the plan asks for could not be written."""


def notices_of(evaluation: Evaluation) -> list[Notice]:
    """What people should know about a plan: problems with settings, and a gate that does not open by itself."""
    plan = evaluation.plan
    notices = [Notice(MISCONFIGURED, problem) for problem in plan.problems]
    if plan.action is Action.WAIT and plan.gate in REASONS:
        cause = describe(plan.changes, evaluation.workload.namespace)
        notices.append(Notice(REASONS[plan.gate], f"the restart for {cause} waits: {plan.reason}"))
    return notices


def announce(ctx: Context, evaluation: Evaluation) -> None:
    """Record the Event of a plan that was applied."""
    workload, plan = evaluation.workload, evaluation.plan
    cause = describe(plan.changes, workload.namespace)
    if plan.action is Action.RESTART:
        ctx.log.info("workload restarted", workload=workload.title, sources=cause)
        ctx.event(workload, "Restarted", f"restarted for {cause}{_note_on(workload)}")
    elif plan.action is Action.TRACK:
        ctx.event(workload, "SourcesChanged", f"{cause} changed; nothing is done ({plan.reason})")
    elif plan.action is Action.EVICT:
        ctx.event(workload, "Evicting", f"replacing pods one by one for {cause}")


async def report_notices(
    ctx: Context,
    workload: Workload,
    notices: Sequence[Notice],
    observed: Observed,
    flapping: Sequence[SourceChange] = (),
    *,
    is_under_way: bool = True,
) -> Observed:
    """Record the notices that are new; returns what to remember. `flapping`: changes whose writers are named.

    `is_under_way`: calls or evictions are not finished, so a failure of theirs that comes again is not reported again.
    """
    for notice in notices:
        if notice.message in (*observed.reported, *observed.failures):
            continue
        message = notice.message
        if flapping and notice.reason == REASONS["budget"]:
            writing = await diagnose(ctx.client, flapping, workload.namespace)
            message = f"{message}; {writing}" if writing else message
        ctx.event(workload, notice.reason, message, warning=notice.warning)
        ctx.log.warning("reported", workload=workload.title, reason=notice.reason, message=message)
    failures = [notice.message for notice in notices if notice.reason in ACTION_FAILURES]
    if is_under_way:
        failures = list(dict.fromkeys((*observed.failures, *failures)))[-MOST_FAILURES:]
    return replace(observed, reported=tuple(notice.message for notice in notices), failures=tuple(failures))


def _note_on(workload: Workload) -> str:
    """What a restart may not reach."""
    owner = workload.controller
    owned = f"{owner.kind.lower()}/{owner.name} controls it and may undo this" if owner is not None else None
    return "".join(f"; {text}" for text in (workload.facts.note, owned) if text)


class _ConfigMapOwners(PartialObjectMetadata, version="v1", kind="ConfigMap"):
    metadata: OwnedMeta = field(default_factory=OwnedMeta)


class _SecretOwners(PartialObjectMetadata, version="v1", kind="Secret"):
    metadata: OwnedMeta = field(default_factory=OwnedMeta)


_OWNERS: Final[dict[SourceKind, Any]] = {SourceKind.CONFIGMAP: _ConfigMapOwners, SourceKind.SECRET: _SecretOwners}


def writers(entries: Iterable[ManagedFieldsEntry], keys: Sequence[str]) -> list[str]:
    """The managers that write the data of a source, those of `keys` first, then the latest first."""
    ranked = []
    for entry in entries:
        fields = entry.fields_v1 or {}
        data = {**(fields.get("f:data") or {}), **(fields.get("f:binaryData") or {})}
        if data:
            ranked.append((any(f"f:{key}" in data for key in keys), entry.time or "", entry.manager))
    return list(dict.fromkeys(manager for _, _, manager in sorted(ranked, reverse=True)))


async def managers(client: Client, source: SourceRef) -> Sequence[ManagedFieldsEntry]:
    """The field managers of a source; its values are not read. Raises KubeError."""
    owners = _OWNERS.get(source.kind)
    if owners is None:
        return ()
    found = await client.get(owners, source.name, namespace=source.namespace)
    entries: Sequence[ManagedFieldsEntry] = found.metadata.managed_fields or ()
    return entries


async def diagnose(client: Client, changes: Sequence[SourceChange], namespace: str) -> str:
    """`configmap/app#mode is written by cert-manager, helm`; empty when that is not known."""
    found = []
    for change in changes[:_MOST]:
        try:
            managed_by = writers(await managers(client, change.source), change.keys)
        except KubeError:
            continue
        if managed_by:
            found.append(f"{change.seen_from(namespace)} is written by {', '.join(managed_by[:_MOST])}")
    return "; ".join(found)
