"""When a rollout is observed again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.kube.api.types.apps import Deployment
from steersman.operators.reload.api.annotations import RESTARTED_AT
from steersman.operators.reload.api.config import ReloadOptions, WorkloadId
from steersman.operators.reload.controllers.reconciler import WorkloadReconciler
from steersman.operators.reload.workloads.kinds import BUILT_IN
from steersman.operators.reload.workloads.rollout_status import Phase, RolloutProgress

WEB = WorkloadId("Deployment", "shop", "web")
START = 1_800_000_000.0


class Seen:
    """A Deployment that was restarted at the start, and is not available."""

    KIND = Deployment.KIND
    namespace, name = "shop", "web"
    annotations = {}  # noqa: RUF012  # nobody writes to it
    metadata = SimpleNamespace(resource_version="7")
    facts = SimpleNamespace(
        template_annotations={RESTARTED_AT: "2027-01-15T08:00:00Z"}, progress=RolloutProgress(phase=Phase.PROGRESSING)
    )


@pytest.mark.parametrize(
    ("deadline", "now", "again"),
    [(600, 1, 30), (600, 31, 60), (600, 595, 600), (10, 1, 10), (1, 0.2, 1)],
)
async def test_a_rollout_is_observed_when_its_deadline_passes_and_every_half_minute_before(deadline, now, again):
    reconciler = WorkloadReconciler(BUILT_IN[0], ReloadOptions(ask_pods=False))
    reconciler.rollouts.claim(WEB, now=START, cause="configmap/app", sources=(), deadline_seconds=deadline)
    reconciler.rollouts.start(WEB, Seen())
    context = SimpleNamespace(clock=SimpleNamespace(time=lambda: START + now, monotonic=lambda: now))
    assert await reconciler._observe_rollout(context, Seen()) == START + again
