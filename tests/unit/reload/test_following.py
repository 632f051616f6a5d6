"""When a rollout is asked about again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.kube.types.apps import Deployment
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.following import Follower
from steersman.operators.reload.progress import Phase, Progress
from steersman.operators.reload.types import RESTARTED_AT, WorkloadId

WEB = WorkloadId("Deployment", "shop", "web")
START = 1_800_000_000.0


class Seen:
    """A Deployment that was restarted at the start, and is not available."""

    KIND = Deployment.KIND
    namespace, name = "shop", "web"
    annotations = {}  # noqa: RUF012  # nobody writes to it
    metadata = SimpleNamespace(resource_version="7")
    facts = SimpleNamespace(
        template_annotations={RESTARTED_AT: "2027-01-15T08:00:00Z"}, progress=Progress(phase=Phase.PROGRESSING)
    )


@pytest.mark.parametrize(
    ("deadline", "now", "again"),
    [(600, 1, 30), (600, 31, 60), (600, 595, 600), (10, 1, 10), (1, 0.2, 1)],
)
async def test_a_rollout_is_looked_at_when_its_deadline_passes_and_every_half_minute_before(deadline, now, again):
    fleet = Fleet()
    fleet.rollouts.claim(WEB, now=START, told="configmap/app", sources=(), deadline_seconds=deadline)
    fleet.rollouts.started(WEB, Seen())
    context = SimpleNamespace(clock=SimpleNamespace(time=lambda: START + now))
    follower = Follower(fleet, ask_pods=False)
    assert await follower.follow(context, SimpleNamespace(workload=Seen())) == START + again
