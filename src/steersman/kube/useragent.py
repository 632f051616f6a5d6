"""What we call ourselves in audit logs."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["user_agent"]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as everything else in a cluster calls them


@cache
def user_agent(component: str | None = None) -> str:
    """`steersman/VERSION (os/arch) python/VERSION`, and the component that asks, when there is one."""
    try:
        release = version("steersman")
    except PackageNotFoundError:  # run from a source tree that was never installed
        release = "unknown"
    machine = platform.machine().lower()
    system = f"{platform.system().lower()}/{_ARCHITECTURES.get(machine, machine)}"
    python = ".".join(map(str, sys.version_info[:3]))
    return " ".join(filter(None, [f"steersman/{release}", f"({system})", f"python/{python}", component]))
