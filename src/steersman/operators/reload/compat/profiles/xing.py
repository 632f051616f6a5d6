"""The profile of xing/kubernetes-deployment-restart-controller: four flags, the whole cluster, no Lease.

A change waits for the grace period, counted from when it was first seen. Errors never end the process here, so the
errors to be ignored are only kept out of the count of failures.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from steersman.operators.reload.api.config import BudgetConfig, ReloadConfig
from steersman.operators.reload.compat.dialects.xing import Xing
from steersman.operators.reload.compat.profiles.arguments import Flag, read_arguments
from steersman.operators.reload.compat.profiles.profile import Logs, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAGS: Final = (
    Flag(name="restart-check-period", short="c", variable="RESTART_CHECK_PERIOD"),
    Flag(name="restart-grace-period", short="r", variable="RESTART_GRACE_PERIOD"),
    Flag(name="ignored-errors", variable="IGNORED_ERRORS"),
    Flag(name="verbose", short="v", variable="VERBOSE"),
    Flag(name="version", boolean=True),
)


def read_xing(argv: Sequence[str], environ: Mapping[str, str]) -> Profile:
    """What the original would make of these flags and variables."""
    said = read_arguments("xing", FLAGS, argv, environ)
    said.integer("restart-check-period", 500, least=1)  # changes are acted on when they are due; nothing is polled
    grace = max(0, said.integer("restart-grace-period", 5))
    verbose = said.integer("verbose", 0)
    notes = []
    if said.given("ignored-errors"):
        patterns = said.text("ignored-errors").split(";")
        notes.append("ignored-errors: no error ends this process; each workload is tried again on its own")
        if not all(patterns):
            notes.append("ignored-errors: an empty pattern would ignore everything and is left out")
    return Profile(
        name="xing",
        config=ReloadConfig(
            quiet_period=f"{grace}s",
            max_delay=f"{grace}s",
            dialects=("xing",),
            kinds=("Deployment", "StatefulSet"),
            budget=BudgetConfig(restarts=0),
            namespace_settings=False,
            secret_provider_classes=False,
        ),
        dialects=(Xing(),),
        listen=":10254",
        logs=Logs(level="debug" if verbose >= 2 else "info", form="text"),  # glog's second level
        notes=tuple(notes),
        answer=f"steersman {version('steersman')} as kubernetes-deployment-restart-controller"
        if said.truth("version")
        else "",
    )
