"""What a profile says. Pure data; `arguments` reads it, `steersman.cli.reload.profile` runs it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from steersman.operators.reload.api.config import ReloadConfig

# Originals that act at once give what is applied together a moment to arrive, so that it becomes one rollout.
GATHER_QUIET: Final = "500ms"
GATHER_LIMIT: Final = "1s"


class ProfileLease(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease of the original."""

    name: str
    namespace: str | None = None  # None: where the process is at home
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    identity: str | None = None  # what makes it readable; it is made unique in any case

    @property
    def jitter(self) -> float:
        """As large as usual, and small enough that a follower tries in time."""
        return min(1.2, 0.9 * self.renew_seconds / self.retry_seconds)


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """How the original logs."""

    level: str = "info"
    form: str = "json"  # text, json, or shipshape: JSON with its names


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an original, as this program takes them."""

    name: str
    config: ReloadConfig
    dialects: tuple[Any, ...]  # Dialect; those of the profile alone
    listen: str  # where the original serves metrics and health
    further_listens: tuple[str, ...] = ()  # and where else, when it was asked to
    lease: ProfileLease | None = None
    logs: Logs = Logs()
    stop_seconds: float = 30.0  # for what is under way at the end, and for what waits
    needs_rights: bool = False  # ends, as the original does, when it may not read what it watches
    info: dict[str, str] = {}  # of the original's info metric
    by_namespace: bool = False  # Reloader: count per namespace too
    notes: tuple[str, ...] = ()  # what is not as it was, said at the start
    answer: str = ""  # print this and end: --version
