"""The profile of shipshape: variables only, one namespace, one selector, one Lease.

The first change restarts at once and later ones wait until DEBOUNCE_SECONDS after the last restart. What the original
takes silently for something else is refused here: an unknown boolean, a selector that would match nothing, a key that
is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError
from steersman.kube.api.selectors import Selector
from steersman.kube.api.validation import label_key_errors
from steersman.operators.reload.api.config import BudgetConfig, ReloadConfig, ScopeConfig
from steersman.operators.reload.compat.dialects.shipshape import RESTARTED_AT, Shipshape
from steersman.operators.reload.compat.profiles.arguments import Arguments, read_arguments
from steersman.operators.reload.compat.profiles.profile import GATHER_LIMIT, GATHER_QUIET, Logs, Profile, ProfileLease

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off", ""})
_LEVELS: Final = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warning",
    "WARN": "warning",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
}
VERSION: Final = "0.2.2"  # of the original that this stands in for


def read_shipshape(argv: Sequence[str], environ: Mapping[str, str]) -> Profile:
    """What the original would make of these variables; it has no flags."""
    said = read_arguments("shipshape", (), argv, environ)
    namespace = said.text("WATCH_NAMESPACE", "shipshape")
    if not namespace.strip():
        raise said.wrong("WATCH_NAMESPACE", "must be a non-empty string (try shipshape)")
    debounce = said.integer("DEBOUNCE_SECONDS", 5, least=0)
    config = ReloadConfig(
        quiet_period=GATHER_QUIET if debounce else "0s",
        max_delay=GATHER_LIMIT if debounce else "0s",
        min_interval=f"{debounce}s",
        selectors=(ScopeConfig(namespace=namespace, selector=_selector(said)),),
        dialects=("shipshape",),
        kinds=("Deployment",),
        budget=BudgetConfig(restarts=0),
        namespaces=(namespace,),
        secrets=False,
    )
    port = said.integer("HEALTH_PORT", 8080, least=1, most=65535)
    level = said.text("LOG_LEVEL", "INFO").upper()
    notes = [] if level in _LEVELS else [f'LOG_LEVEL: "{level}" is not a level; INFO is used']
    return Profile(
        name="shipshape",
        config=config,
        dialects=(Shipshape(config.options().scopes, key=_key(said)),),
        listen=f":{port}",
        lease=_lease(said, namespace),
        logs=Logs(level=_LEVELS.get(level, "info"), form="shipshape"),
        stop_seconds=said.integer("LEADER_ELECTION_CONTROLLER_STOP_TIMEOUT_SECONDS", 45, least=1),
        needs_rights=True,
        info={"version": said.text("APP_VERSION", VERSION), "revision": said.text("GIT_SHA", "unknown")},
        notes=tuple(notes),
    )


def _selector(said: Arguments) -> str:
    """The original sends it to the server and reads it again by splitting at commas and the first `=`."""
    text = said.text("APP_SELECTOR", "app=helloworld")
    try:
        selector = Selector.parse(text)
    except FormatError as error:
        raise said.wrong("APP_SELECTOR", str(error)) from None
    if selector.empty:
        raise said.wrong("APP_SELECTOR", f'must name at least one label as key=value, got: "{text}" (try app=web)')
    return text


def _key(said: Arguments) -> str:
    key = said.text("ROLLOUT_ANNOTATION_KEY", RESTARTED_AT)
    if complaints := label_key_errors(key):
        raise said.wrong("ROLLOUT_ANNOTATION_KEY", f'"{key}" is not the name of an annotation: {"; ".join(complaints)}')
    return key


def _lease(said: Arguments, namespace: str) -> ProfileLease | None:
    text = said.text("LEADER_ELECTION_ENABLED", "true").strip().lower()
    if text not in _YES | _NO:
        raise said.wrong("LEADER_ELECTION_ENABLED", f'"{text}" is neither true nor false (try true)')
    whole, renew, retry = (
        said.integer(f"LEADER_ELECTION_{name}_SECONDS", default, least=1)
        for name, default in (("LEASE_DURATION", 15), ("RENEW_DEADLINE", 10), ("RETRY_PERIOD", 2))
    )
    if text in _NO:
        return None
    if renew >= whole:
        message = f"must be < LEADER_ELECTION_LEASE_DURATION_SECONDS ({whole}), got: {renew}"
        raise said.wrong("LEADER_ELECTION_RENEW_DEADLINE_SECONDS", message)
    if retry >= renew:
        message = f"must be < LEADER_ELECTION_RENEW_DEADLINE_SECONDS ({renew}), got: {retry}"
        raise said.wrong("LEADER_ELECTION_RETRY_PERIOD_SECONDS", message)
    named = said.text("HOSTNAME") or said.text("POD_NAME") or None
    return ProfileLease(
        name=said.text("LEADER_ELECTION_LEASE_NAME", "helloworld-controller-leader"),
        namespace=namespace,
        lease_seconds=whole,
        renew_seconds=renew,
        retry_seconds=retry,
        identity=said.text("LEADER_ELECTION_IDENTITY") or named,
    )
