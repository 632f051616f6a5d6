"""What the containers of a simulated pod report, for each state that a pod can be in. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from steersman.kube.times import format_time
from steersman.kube.types.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from steersman.simulate.templates import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.simulate.kinds import JSON, Pod

__all__ = ["State", "container_statuses"]


class State(Enum):
    """How far a pod has come; the value is its phase and a word that tells states of one phase apart."""

    PULLING = ("Pending", "image cannot be pulled")
    RUNNING = ("Running", "not ready")
    READY = ("Running", "ready")
    CRASHING = ("Running", "crashing")
    SUCCEEDED = ("Succeeded", "")
    FAILED = ("Failed", "")

    @property
    def phase(self) -> str:
        """The phase of the pod."""
        return self.value[0]

    @property
    def over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.phase in {"Succeeded", "Failed"}


def container_statuses(pod: Pod, state: State, now: float, *, init: bool = False) -> Sequence[ContainerStatus]:
    """One per container, in the order of the spec. Init containers have ended well before the others begin."""
    known = {one.name: one for one in (pod.status.init_container_statuses if init else pod.status.container_statuses)}
    containers: list[JSON] = pod.spec.get("initContainers" if init else "containers") or []
    if init and state is not State.PULLING:
        state = State.SUCCEEDED
    return [_status(pod, container, state, known.get(container["name"]), now) for container in containers] or ()


def _status(pod: Pod, container: JSON, state: State, known: ContainerStatus | None, now: float) -> ContainerStatus:
    image = container.get("image", "")
    since = _since(known) or format_time(now)
    status = ContainerStatus(
        name=container["name"], image=image, ready=state is State.READY, started=False, last_state=ContainerState()
    )
    if state is State.PULLING:
        waiting = ContainerStateWaiting(reason="ImagePullBackOff", message=f'Back-off pulling image "{image}"')
        status.state = ContainerState(waiting=waiting)
        return status
    status.image_id = f"simulated://{fingerprint(image, 20)}"
    status.container_id = f"simulated://{fingerprint([pod.metadata.uid, container['name']], 20)}"
    if state in {State.RUNNING, State.READY}:
        status.started = True
        status.state = ContainerState(running=ContainerStateRunning(started_at=since))
    elif state is State.CRASHING:
        message = f"back-off 10s restarting failed container={container['name']} pod={pod.name}"
        status.restart_count = 1
        status.state = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message=message))
        status.last_state = ContainerState(terminated=_ended(1, since))
    else:
        status.state = ContainerState(terminated=_ended(1 if state is State.FAILED else 0, since))
    return status


def _ended(code: int, since: str) -> ContainerStateTerminated:
    reason = "Error" if code else "Completed"
    return ContainerStateTerminated(exit_code=code, reason=reason, started_at=since, finished_at=since)


def _since(known: ContainerStatus | None) -> str | None:
    """When the container started, as it said itself; so that saying it again changes nothing."""
    for state in (known.state, known.last_state) if known is not None else ():
        if state is not None and state.running is not None:
            return state.running.started_at
        if state is not None and state.terminated is not None:
            return state.terminated.started_at
    return None
