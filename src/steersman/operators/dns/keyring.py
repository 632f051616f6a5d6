"""The keys that the operator makes, and when they are made anew. Pure, except for where randomness comes from.

A new secret keeps its name, and the one before it stays beside it: a server that has not read the new one yet still
answers to the old. Servers read their keys again when told to; nothing restarts and no update fails.

A key that was lost has none before it, and a server that knows only the lost one listens to nobody. With such a key an
*epoch* begins, and pods of another epoch are replaced.
"""

from __future__ import annotations

import base64
import re
import secrets as randomness
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from steersman.kube.times import format_micro_time, format_time, parse_time
from steersman.operators.dns.namedconf import CONTROL_KEY, TRANSFER_KEY, UPDATE_KEY
from steersman.operators.dns.types import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.types.core import Secret
    from steersman.operators.dns.serverkinds import RndcKey
    from steersman.operators.dns.tsig import Key

__all__ = ["CREATED", "EPOCH", "ROTATE", "control_keys", "due_in", "transfer_key"]

CREATED: Final = f"{GROUP}/rndc-created-at"
ROTATE: Final = f"{GROUP}/rndc-rotate-at"
COUNT: Final = f"{GROUP}/rndc-rotation-count"
EPOCH: Final = "steersman.dev/key-epoch"
SHORTEST: Final = timedelta(hours=1)
LONGEST: Final = timedelta(hours=8760)
_HOURS: Final = {"h": 1, "d": 24, "w": 168}


def _secret() -> str:
    return base64.b64encode(randomness.token_bytes(32)).decode()


def period_of(key: RndcKey) -> timedelta:
    """How long a key is used."""
    number, unit = re.fullmatch(r"(\d+)([hdw])", key.rotate_after).groups()  # type: ignore[union-attr]  # the schema says so
    return min(LONGEST, max(SHORTEST, timedelta(hours=int(number) * _HOURS[unit])))


def due_in(held: Secret, key: RndcKey | None, now: float) -> float | None:
    """Seconds until the key is made anew; None when it never is."""
    if key is None or not key.auto_rotate:
        return None
    created = held.annotations.get(CREATED)
    if not created:
        return 0.0
    return parse_time(created).timestamp() + period_of(key).total_seconds() - now


def control_keys(
    held: Secret | None,
    key: RndcKey | None,
    now: float,
    *,
    given: Key | None = None,
    sidecar: bool = False,
    make: Callable[[], str] = _secret,
) -> tuple[dict[str, str], dict[str, str], bool]:
    """Data and annotations of an instance's keys, and whether they are new: the same as before unless they are due.

    `given` is a control key that somebody else keeps: it is what it is, and only the key for updates is ours. `sidecar`
    adds the token that opens the sidecar.
    """
    algorithm = given.algorithm if given is not None else (key.algorithm if key is not None else "hmac-sha256")
    before = {name: (value or b"").decode() for name, value in (held.data if held is not None else {}).items()}
    complete = all(before.get(name) for name in ("secret", "update-secret", "key-name", "update-key-name"))
    waits = due_in(held, key, now) if held is not None and given is None else None
    fresh = not complete or before.get("algorithm") != algorithm or (waits is not None and waits <= 0)
    notes = dict(held.annotations) if held is not None else {}
    if not fresh:
        data = {name: before[name] for name in before if not name.endswith((".key", ".conf"))}
    else:
        data = {
            "key-name": CONTROL_KEY,
            "algorithm": algorithm,
            "secret": make(),
            "update-key-name": UPDATE_KEY,
            "update-secret": make(),
        }
        if complete:
            data |= {"previous-secret": before["secret"], "previous-update-secret": before["update-secret"]}
            data["previous-algorithm"] = before.get("algorithm") or algorithm
        count = int(notes.get(COUNT, "-1") or "-1") + 1
        epoch = {EPOCH: notes[EPOCH]} if EPOCH in notes else {}
        notes = {
            CREATED: format_time(now),
            COUNT: str(count),
            **(epoch if complete else {EPOCH: format_micro_time(now)}),
        }
        if key is not None and key.auto_rotate and given is None:
            notes[ROTATE] = format_time(now + period_of(key).total_seconds())
    if given is not None:
        data["key-name"], data["secret"] = given.name, base64.b64encode(given.secret).decode()
        if complete and before["secret"] != data["secret"]:
            data |= {"previous-secret": before["secret"], "previous-algorithm": before.get("algorithm") or algorithm}
    if sidecar or before.get("token"):
        data["token"] = before.get("token") or make()  # in the environment of its pods: it stays
    # The control channel never says the name of its key: on the server it is always the one that `controls` names.
    statements = [_statement(CONTROL_KEY, algorithm, data["secret"])]
    statements.append(_statement(data["update-key-name"], algorithm, data["update-secret"]))
    data["rndc.key"] = statements[0]
    data["keys.conf"] = "".join(statements)
    return data, {name: notes[name] for name in (CREATED, ROTATE, COUNT, EPOCH) if name in notes}, fresh


def transfer_key(held: Secret | None, *, make: Callable[[], str] = _secret) -> dict[str, str]:
    """The key that the servers of a namespace share."""
    known: Any = (held.data if held is not None else {}).get("secret")
    secret = known.decode() if known else make()
    data = {"key-name": TRANSFER_KEY, "algorithm": "hmac-sha256", "secret": secret}
    return {**data, "transfer.key": _statement(TRANSFER_KEY, "hmac-sha256", secret)}


def _statement(name: str, algorithm: str, secret: str) -> str:
    return f'key "{name}" {{ algorithm {algorithm}; secret "{secret}"; }};\n'
