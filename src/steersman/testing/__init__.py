"""What tests of controllers need: servers, a virtual clock, a fault proxy, and pytest fixtures for all of them.

Naming this package as a pytest plugin (`pytest_plugins = ["steersman.testing"]`) brings the fixtures of `plugin`. Names
are loaded when they are first used. No module here bears the name of something it holds: importing a module sets its
name in the package, in the place of what was meant. PYTEST_DONT_REWRITE: a conftest.py may import it first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.testing.clock import FastClock, VirtualClock, settle
    from steersman.testing.controller_session import running, running_least_privilege
    from steersman.testing.controlplane.audit_log import AuditEntry, AuditLog
    from steersman.testing.controlplane.binaries import BinariesError
    from steersman.testing.controlplane.launcher import (
        ALL_CONTROLLERS,
        LIFECYCLE_CONTROLLERS,
        ControlPlane,
        ControlPlaneError,
    )
    from steersman.testing.fault_proxy import FaultProxy
    from steersman.testing.programs import Program
    from steersman.testing.raw_api import ApiServer, RawApi
    from steersman.testing.request_log import RequestLog
    from steersman.testing.round_trips import assert_round_trips, objects_of
    from steersman.testing.service_accounts import client_as
    from steersman.testing.waiting import eventually
    from steersman.testing.webhook_session import serving_webhooks

pytest_plugins = ["steersman.testing.plugin"]

__all__ = [
    "ALL_CONTROLLERS",
    "LIFECYCLE_CONTROLLERS",
    "ApiServer",
    "AuditEntry",
    "AuditLog",
    "BinariesError",
    "ControlPlane",
    "ControlPlaneError",
    "FastClock",
    "FaultProxy",
    "Program",
    "RawApi",
    "RequestLog",
    "VirtualClock",
    "assert_round_trips",
    "client_as",
    "eventually",
    "objects_of",
    "running",
    "running_least_privilege",
    "serving_webhooks",
    "settle",
]

_MODULES = (
    "clock",
    "waiting",
    "raw_api",
    "request_log",
    "fault_proxy",
    "programs",
    "controller_session",
    "service_accounts",
    "webhook_session",
    "controlplane.audit_log",
    "controlplane.binaries",
    "controlplane.launcher",
    "round_trips",  # the last: it loads Hypothesis
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = importlib.import_module(f"{__name__}.{module}")
            if name in found.__all__:
                globals()[name] = value = getattr(found, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
