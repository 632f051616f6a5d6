"""What the page and `steersman status` show: the services that were found, and the ConfigMaps made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.toolset.health import State as Health
from steersman.runtime.parts import Row, State, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.toolset.views import ServiceView, TargetView

__all__ = ["tables"]

_SHOWN = 500  # rows of one table


def tables(views: Iterable[TargetView]) -> Sequence[Table]:
    """Services and toolsets of all targets."""
    known = sorted(views, key=lambda view: (view.namespace, view.name))
    services = [_service(view, one) for view in known for one in view.services]
    return (
        Table(
            "Services",
            ("service", "namespace", "type", "endpoint", "state", "matched by", "last check", "target"),
            services[:_SHOWN],
        ),
        Table(
            "Toolsets",
            ("ConfigMap", "namespace", "toolsets", "overrides", "parts", "drift", "last look"),
            [_target(view) for view in known],
        ),
    )


def _service(view: TargetView, one: ServiceView) -> Row:
    state = State.GOOD if one.included else State.BAD
    if one.state == Health.UNKNOWN:
        state = State.BUSY
    elif one.included and one.state in (Health.UNHEALTHY, Health.NO_ENDPOINTS, Health.NOT_IDENTIFIED):
        state = State.WAITING
    elif not one.included and one.state in (Health.AUTH_REQUIRED, Health.NOT_IDENTIFIED):
        state = State.OFF
    cells = (one.name, one.namespace, one.type, one.endpoint, one.state, one.reason, one.last_check, view.name)
    return Row(cells, state, one.message)


def _target(view: TargetView) -> Row:
    state = {"Ready": State.GOOD, "Paused": State.OFF, "Failing": State.BAD}.get(view.phase, State.BUSY)
    if state is State.GOOD and view.override_error:
        state = State.WAITING
    note = view.message or (f"overrides.yaml {view.override_error}" if view.override_error else "")
    drift = ", ".join(view.drift[:5])
    cells = (view.name, view.namespace, len(view.toolsets), view.overrides, view.parts, drift, view.last_discovery)
    return Row(cells, state, note)
