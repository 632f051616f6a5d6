"""What runs beside the controllers when the configuration asks for it: the notifier, the auditor, and the hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.reload.auditor import Auditor
from steersman.operators.reload.hooks import Judge
from steersman.operators.reload.notifier import Notifier
from steersman.runtime.parts import Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.oversight import Oversight
    from steersman.operators.reload.types import Options
    from steersman.runtime.parts import Surroundings

__all__ = ["attend"]


def attend(
    options: Options,
    around: Surroundings,
    oversight: Oversight,
    fleet: Fleet,
    *,
    registry: CollectorRegistry | None = None,
) -> list[Task]:
    """The tasks; listeners and the hook are put in their place."""
    tasks = []
    if options.features.notify and not around.dry_run:
        notifier = Notifier(options.features.notify, fleet, registry=registry, lease=around.lease)
        oversight.listeners.append(notifier)
        oversight.preparing.append(notifier.begins)
        oversight.wait_for(notifier.ready)
        tasks.append(Task(name="reload-notifier", run=notifier.run))
    if options.features.audit is not None:
        auditor = Auditor(options, around.served, registry)
        tasks.append(Task(name="reload-auditor", run=auditor.run))
    oversight.judge = Judge.of(options.features)
    return tasks
