"""What tests of controllers need: servers, a virtual clock, a fault proxy, and pytest fixtures for all of them.

Names are looked up when they are first used. The pytest plugin lives in this package and is imported by every test
run, also by runs that use none of it: importing it must cost nothing. No module here bears the name of something it
holds: importing a module sets its name in the package, in the place of what was meant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.testing.atwork import running
    from steersman.testing.audit import AuditEntry, AuditLog
    from steersman.testing.binaries import BinariesError
    from steersman.testing.clock import VirtualClock, settle
    from steersman.testing.controlplane import ALL_CONTROLLERS, LIFECYCLE_CONTROLLERS, ControlPlane, ControlPlaneError
    from steersman.testing.fastclock import FastClock
    from steersman.testing.programs import Program
    from steersman.testing.proxy import FaultProxy
    from steersman.testing.rawapi import RawApi
    from steersman.testing.requestlog import RequestLog
    from steersman.testing.servers import ApiServer
    from steersman.testing.waiting import eventually

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
    "eventually",
    "running",
    "settle",
]

_HOME = {
    "ALL_CONTROLLERS": "controlplane",
    "LIFECYCLE_CONTROLLERS": "controlplane",
    "ApiServer": "servers",
    "AuditEntry": "audit",
    "AuditLog": "audit",
    "BinariesError": "binaries",
    "ControlPlane": "controlplane",
    "ControlPlaneError": "controlplane",
    "FastClock": "fastclock",
    "FaultProxy": "proxy",
    "Program": "programs",
    "RawApi": "rawapi",
    "RequestLog": "requestlog",
    "VirtualClock": "clock",
    "eventually": "waiting",
    "running": "atwork",
    "settle": "clock",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
