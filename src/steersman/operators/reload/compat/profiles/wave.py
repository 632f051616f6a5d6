"""The profile of wave: Go's own flags, Deployments, StatefulSets and DaemonSets, a Lease when asked for.

Changes restart at once. The bucket that limits all restarts of a kind together is not kept: one workload that keeps
changing is held by its own budget and delays no other.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from steersman.errors import ConfigError
from steersman.operators.reload.api.config import BudgetConfig, ReloadConfig
from steersman.operators.reload.compat.dialects.wave import Wave
from steersman.operators.reload.compat.profiles.arguments import Flag, read_arguments
from steersman.operators.reload.compat.profiles.profile import GATHER_LIMIT, GATHER_QUIET, Logs, Profile, ProfileLease

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAGS: Final = (
    Flag(name="leader-election", boolean=True),
    Flag(name="leader-election-id"),
    Flag(name="leader-election-namespace"),
    Flag(name="sync-period"),
    Flag(name="update-rate"),
    Flag(name="update-burst"),
    Flag(name="enable-webhooks", boolean=True),
    Flag(name="namespaces"),
    Flag(name="version", boolean=True),
    *(Flag(name=f"zap-{name}") for name in ("encoder", "log-level", "stacktrace-level", "time-encoding")),
    Flag(name="zap-devel", boolean=True),
)
_NOTES: Final = {
    "sync-period": "sync-period: no periodic resync is needed; changes are watched",
    "update-rate": "update-rate: restarts are not limited for all workloads together; use budgets per workload",
    "update-burst": "update-burst: restarts are not limited for all workloads together; use budgets per workload",
}


def read_wave(argv: Sequence[str], environ: Mapping[str, str]) -> Profile:
    """What the original would make of these flags."""
    said = read_arguments("wave", FLAGS, argv, environ)
    said.seconds("sync-period", 36_000.0)
    if said.truth("enable-webhooks"):
        raise ConfigError(
            "pods are not held back by a webhook here: leave the flag out, and remove wave's webhook configuration",
            field="--enable-webhooks",
        )
    lease = None
    if said.truth("leader-election"):
        if not said.text("leader-election-id"):
            raise ConfigError("--leader-election needs the name of a Lease (try wave)", field="--leader-election-id")
        lease = ProfileLease(
            name=said.text("leader-election-id"), namespace=said.text("leader-election-namespace") or None
        )
    level = said.text("zap-log-level", "debug")
    return Profile(
        name="wave",
        config=ReloadConfig(
            quiet_period=GATHER_QUIET,
            max_delay=GATHER_LIMIT,
            dialects=("wave",),
            kinds=("Deployment", "StatefulSet", "DaemonSet"),
            budget=BudgetConfig(restarts=0),
            namespaces=said.words("namespaces"),
            namespace_settings=False,
            secret_provider_classes=False,
        ),
        dialects=(Wave(),),
        listen=":8080",
        lease=lease,
        logs=Logs(
            level=level if level in ("debug", "info", "error") else "debug",
            form="json" if said.text("zap-encoder") == "json" else "text",
        ),
        notes=tuple(note for name, note in _NOTES.items() if said.given(name)),
        answer=f"steersman {version('steersman')} as wave" if said.truth("version") else "",
    )
