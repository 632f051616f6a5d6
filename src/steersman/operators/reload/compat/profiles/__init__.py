"""Profiles: this operator behind the flags, variables, ports, leases and metrics of another program.

    shipshape   variables only          :8080    Lease helloworld-controller-leader
    xing        -c -r --ignored-errors  :10254   no Lease
    reloader    the flags of 1 and 2    :9090    Lease stakater-reloader-lock with --enable-ha
    wave        --leader-election …     :8080    the Lease that --leader-election-id names

A profile is a value: the settings of the original, read into this operator's configuration and the way its process is
run. Everything after that is the same engine, so what is better there is better in every profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.errors import ConfigError
from steersman.operators.reload.compat.profiles.profile import Profile
from steersman.operators.reload.compat.profiles.reloader import read_reloader
from steersman.operators.reload.compat.profiles.shipshape import read_shipshape
from steersman.operators.reload.compat.profiles.wave import read_wave
from steersman.operators.reload.compat.profiles.xing import read_xing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["PROFILES", "Profile", "read_profile"]

PROFILES: Final[Mapping[str, Callable[[Sequence[str], Mapping[str, str]], Profile]]] = {
    "shipshape": read_shipshape,
    "xing": read_xing,
    "reloader": read_reloader,
    "wave": read_wave,
}


def read_profile(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> Profile:
    """What the original of that name would make of these arguments and variables; ConfigError names what is wrong."""
    if name not in PROFILES:
        raise ConfigError(f'"{name}" is not a profile (try {", ".join(PROFILES)})', field="--profile")
    return PROFILES[name](argv, environ)
