"""The rules of probes and lifecycle handlers: exactly one action each, and numbers that make sense.

Defaults are filled in before, so a threshold of zero never arrives here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.names import is_port_name, is_port_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_PROBE_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_ACTIONS = ("exec", "httpGet", "tcpSocket", "sleep")
_HEADER = re.compile(r"[-A-Za-z0-9]+")


def handler_causes(container: JSON, path: str, grace: int) -> Iterator[Cause]:
    """What is wrong with the probes and hooks of a container whose pod has `grace` seconds to end."""
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            yield from _probe(probe, f"{path}.{name}", repeats=name == "readinessProbe")
    for name, hook in (container.get("lifecycle") or {}).items():
        if name in {"postStart", "preStop"} and hook is not None:
            yield from _action(hook, f"{path}.lifecycle.{name}", _HOOK_ACTIONS, grace)


def _probe(probe: JSON, path: str, *, repeats: bool) -> Iterator[Cause]:
    """`repeats`: whether a probe may have to succeed more than once, and never ends the container."""
    yield from _action(probe, path, _PROBE_ACTIONS, 0)
    for field in _COUNTS:
        if (number := probe.get(field) or 0) < 0:
            yield field_errors.invalid(f"{path}.{field}", number, "must be greater than or equal to 0")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and repeats:
        yield field_errors.invalid(
            f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes"
        )
    elif grace is not None and grace <= 0:
        yield field_errors.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if not repeats and (number := probe.get("successThreshold", 1)) > 1:
        yield field_errors.invalid(f"{path}.successThreshold", number, "must be 1")


def _action(handler: JSON, path: str, actions: tuple[str, ...], grace: int) -> Iterator[Cause]:
    given = [name for name in actions if handler.get(name) is not None]
    if not given:
        yield field_errors.required(path, "must specify a handler type")
        return
    for name in given[1:]:
        yield field_errors.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")
    name = given[0]
    action, where = handler[name], f"{path}.{name}"
    if name == "exec" and not action.get("command"):
        yield field_errors.required(f"{where}.command")
    elif name == "sleep" and not 0 <= action.get("seconds", 0) <= grace:
        text = f"must be non-negative and at most terminationGracePeriodSeconds ({grace})"
        yield field_errors.invalid(where, action.get("seconds", 0), text)
    elif name in {"httpGet", "tcpSocket", "grpc"}:
        port = action.get("port", 0)
        complaints = is_port_name(port) if isinstance(port, str) else is_port_number(port)
        yield from (field_errors.invalid(f"{where}.port", port, text) for text in complaints)
        yield from field_errors.enum_causes(action, "core.v1.HTTPGetAction", where, "scheme")
        for header in action.get("httpHeaders") or ():
            if not _HEADER.fullmatch(header.get("name", "")):
                yield field_errors.invalid(f"{where}.httpHeaders", header.get("name", ""), "not an HTTP header name")
