"""Cells of a pod: how many of its containers are ready, and the one word that says how it is.

The word is the pod's phase unless something more telling is known: an init container that has not finished, a
container that waits or has ended, a deletion under way. What the last container of the list says wins.
"""

from __future__ import annotations

from typing import Any

from steersman.apiserver.printing.format import NONE, Cells, age, age_of, name_of, spec_of, status_of

JSON = dict[str, Any]

_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def conditions(obj: JSON) -> list[JSON]:
    """Conditions of a pod's row: whether it has run its course."""
    phase = status_of(obj).get("phase", "")
    if phase not in _COMPLETED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]}]


def pod(obj: JSON, now: float) -> Cells:
    """The row of a pod."""
    spec, status = spec_of(obj), status_of(obj)
    tally = _Tally(obj)
    tally.read_init_containers()
    if not tally.initializing or _is_true(status, "Initialized"):
        tally.read_containers()
    reason = _ending(obj, tally.reason)
    restarts = str(tally.restarts)
    if tally.restarts and tally.last_restart:
        restarts = f"{restarts} ({age(tally.last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    wide = [addresses[0].get("ip"), spec.get("nodeName"), status.get("nominatedNodeName"), _gates(spec, status)]
    head = [name_of(obj), f"{tally.ready}/{tally.total}", reason, restarts, age_of(obj, now)]
    return [*head, *(value or NONE for value in wide)]


def _ending(obj: JSON, reason: str) -> str:
    status = status_of(obj)
    if not obj["metadata"].get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _COMPLETED else "Terminating"


def _is_true(status: JSON, kind: str) -> bool:
    found = (item for item in status.get("conditions") or () if item.get("type") == kind)
    return any(item.get("status") == "True" for item in found)


def _gates(spec: JSON, status: JSON) -> str:
    gates = spec.get("readinessGates") or []
    met = sum(_is_true(status, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}" if gates else ""


def _ended(state: JSON) -> str:
    """Why a container ended, in a word."""
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


class _Tally:
    """What the containers of a pod add up to."""

    def __init__(self, obj: JSON) -> None:
        self._spec, self._status = spec_of(obj), status_of(obj)
        init = self._spec.get("initContainers") or []
        self._sidecars = {c.get("name") for c in init if c.get("restartPolicy") == "Always"}
        self._init_count = len(init)
        self.total = len(self._spec.get("containers") or ()) + len(self._sidecars)
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        self._sidecar_restarts = (0, "")
        self.initializing = False
        self.reason: str = self._status.get("reason") or self._status.get("phase", "")
        for item in self._status.get("conditions") or ():
            if item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated":
                self.reason = "SchedulingGated"

    def _count(self, container: JSON) -> None:
        self.restarts += container.get("restartCount", 0)
        finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last_restart = max(self.last_restart, finished)

    def read_init_containers(self) -> None:
        """Up to the first one that has not finished: it says what the pod waits for."""
        for at, container in enumerate(self._status.get("initContainerStatuses") or ()):
            self._count(container)
            sidecar = container.get("name") in self._sidecars
            if sidecar:
                count, moment = self._sidecar_restarts
                finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
                self._sidecar_restarts = (count + container.get("restartCount", 0), max(moment, finished))
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and terminated.get("exitCode", 0) == 0:
                continue
            if sidecar and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated is not None:
                self.reason = f"Init:{_ended(terminated)}"
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{at}/{self._init_count}"
            self.initializing = True
            return

    def read_containers(self) -> None:
        """From the last to the first, so that the first one that has something to say wins."""
        self.restarts, self.last_restart = self._sidecar_restarts
        running = False
        failure = ""
        for container in reversed(self._status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            terminated = state.get("terminated")
            if (state.get("waiting") or {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif terminated is not None:
                self.reason = _ended(terminated)
                failure = self.reason if terminated.get("exitCode", 0) else failure
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and _is_true(self._status, "Ready"):
                self.reason = "Running"
            elif failure:
                self.reason = failure
            elif running:
                self.reason = "NotReady"
