"""How far a rollout is, from what the workload says about itself. Pure.

    kind               available when
    Deployment         its controller says so (Progressing: NewReplicaSetAvailable), or all counts do
    StatefulSet        the update revision is the current one; with a partition, when the pods above it are updated
    DaemonSet          every scheduled pod is updated and available
    Rollout            its phase is Healthy (Degraded: failed)
    DeploymentConfig   as a Deployment
    CronJob, Job, any kind by configuration    at once: there is nothing to follow

A rollout that cannot move (paused, OnDelete, no replicas) counts as available: no workload should wait for it. What a
controller has not observed yet is under way.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.api.objects import Struct

if TYPE_CHECKING:
    from steersman.operators.reload.workloads.kinds import KindRule, SpecView


class Phase(StrEnum):
    """How far a rollout is."""

    PROGRESSING = "progressing"
    AVAILABLE = "available"
    FAILED = "failed"


class RolloutProgress(msgspec.Struct, frozen=True, gc=False):
    """What a workload says about its rollout."""

    phase: Phase = Phase.AVAILABLE
    reason: str = ""  # of a failure
    updated: int = 0
    available: int = 0
    wanted: int = 0

    def __str__(self) -> str:
        """Availability counts old pods too, so it says something about the rollout only when none are left.

        >>> [str(RolloutProgress(updated=updated, available=3 - updated, wanted=2)) for updated in (1, 2)]
        ['1 of 2 pods updated', '2 of 2 pods updated, 1 available']
        """
        updated = f"{self.updated} of {self.wanted} pods updated"
        return updated if self.updated < self.wanted else f"{updated}, {self.available} available"


DONE: Final = RolloutProgress()


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct):
    observed_generation: int | str | None = None  # Argo Rollouts writes text
    replicas: int | None = None
    updated_replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_available: int | None = None
    phase: str = ""
    message: str = ""
    conditions: list[_Condition] | None = None


_status: Final = msgspec.json.Decoder(_Status)
_COMPLETE: Final = ("NewReplicaSetAvailable", "NewReplicationControllerAvailable")


def progress_of(rule: KindRule, spec: SpecView, status: msgspec.Raw, generation: int) -> RolloutProgress:
    """How far the rollout of a workload is; what cannot be read counts as under way."""
    progress_by_kind = _PROGRESS_BY_KIND.get(rule.kind.kind) if rule.built_in else None
    if progress_by_kind is None or spec.paused:
        return DONE
    try:
        said = _status.decode(status) if bytes(status) else _Status()
    except msgspec.DecodeError:
        return RolloutProgress(Phase.PROGRESSING)
    observed = _observed(said)
    if observed is not None and observed < generation:
        return RolloutProgress(Phase.PROGRESSING, wanted=1 if spec.replicas is None else spec.replicas)
    return progress_by_kind(spec, said)


def _observed(said: _Status) -> int | None:
    """The generation its controller has seen; 0 before the first, None where it is not a number (Argo's hashes)."""
    seen = said.observed_generation
    if isinstance(seen, str):
        return int(seen) if seen.isdecimal() else None
    return seen or 0


def _deployment(spec: SpecView, said: _Status) -> RolloutProgress:
    wanted = 1 if spec.replicas is None else spec.replicas
    updated, available = said.updated_replicas or 0, said.available_replicas or 0
    progressing = next((row for row in said.conditions or () if row.type == "Progressing"), None)
    old = (said.replicas or 0) - updated
    if progressing is not None and progressing.reason in _COMPLETE and not old:
        phase, reason = Phase.AVAILABLE, ""
    elif progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        phase, reason = Phase.FAILED, "its progress deadline passed"
    elif updated >= wanted and available >= wanted and old <= 0:
        phase, reason = Phase.AVAILABLE, ""
    else:
        phase, reason = Phase.PROGRESSING, ""
    return RolloutProgress(phase, reason, updated, available, wanted)


def _stateful_set(spec: SpecView, said: _Status) -> RolloutProgress:
    strategy = spec.update_strategy
    wanted = 1 if spec.replicas is None else spec.replicas
    if strategy is not None and strategy.type == "OnDelete":
        return DONE
    partition = strategy.rolling_update.partition if strategy is not None and strategy.rolling_update else None
    updated = said.updated_replicas or 0
    ready = said.ready_replicas or 0
    if isinstance(partition, int) and partition > 0:
        done = updated >= max(0, wanted - partition) and ready >= wanted
    else:
        done = bool(said.update_revision) and said.current_revision == said.update_revision
        updated = wanted if done else updated
    return RolloutProgress(Phase.AVAILABLE if done or not wanted else Phase.PROGRESSING, "", updated, ready, wanted)


def _daemon_set(spec: SpecView, said: _Status) -> RolloutProgress:
    strategy = spec.update_strategy
    if strategy is not None and strategy.type == "OnDelete":
        return DONE
    wanted = said.desired_number_scheduled or 0
    updated, available = said.updated_number_scheduled or 0, said.number_available or 0
    done = updated >= wanted and available >= wanted
    return RolloutProgress(Phase.AVAILABLE if done else Phase.PROGRESSING, "", updated, available, wanted)


def _rollout(spec: SpecView, said: _Status) -> RolloutProgress:
    wanted = 1 if spec.replicas is None else spec.replicas
    phase = {"Healthy": Phase.AVAILABLE, "Degraded": Phase.FAILED}.get(said.phase, Phase.PROGRESSING)
    reason = (said.message or "it is degraded") if phase is Phase.FAILED else ""
    return RolloutProgress(phase, reason, said.updated_replicas or 0, said.available_replicas or 0, wanted)


_PROGRESS_BY_KIND: Final = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Rollout": _rollout,
    "DeploymentConfig": _deployment,
}
