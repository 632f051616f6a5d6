"""The TSIG keys of managed pods, and their rotation. Pure, except for randomness.

A rotated key keeps its name, and the Secret also stores the previous one, because a server that has not loaded the new
key still accepts the previous one. Servers reload their keys on command: nothing restarts and no update fails.

A lost key has no predecessor, and a server that knows only the lost key accepts no command. A key without predecessor
therefore begins a new *epoch*, and pods of another epoch are replaced.
"""

from __future__ import annotations

import base64
import re
import secrets as randomness
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from steersman.kube.api.times import format_micro_time, format_time, parse_time
from steersman.operators.dns.api.config import GROUP
from steersman.operators.dns.bind.named_conf import CONTROL_KEY, TRANSFER_KEY, UPDATE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.api.types.core import Secret
    from steersman.operators.dns.api.servers import RndcKey
    from steersman.operators.dns.wire.tsig import Key

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
    """The rotation period of a key."""
    number, unit = re.fullmatch(r"(\d+)([hdw])", key.rotate_after).groups()  # type: ignore[union-attr]  # the schema says so
    return min(LONGEST, max(SHORTEST, timedelta(hours=int(number) * _HOURS[unit])))


def due_in(held: Secret, key: RndcKey | None, now: float) -> float | None:
    """Seconds until the key is rotated; None without rotation."""
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
    """Data and annotations of an instance's key Secret, and whether the keys are new: unchanged until rotation is due.

    `given` is the user's control key; then only the update key is made. `sidecar` adds the token of the sidecar.
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
        data["token"] = before.get("token") or make()  # it is in the environment of the pods and must not change
    # The control channel does not transmit the name of the key: on the server it is the one of `controls`.
    statements = [_statement(CONTROL_KEY, algorithm, data["secret"])]
    statements.append(_statement(data["update-key-name"], algorithm, data["update-secret"]))
    data["rndc.key"] = statements[0]
    data["keys.conf"] = "".join(statements)
    return data, {name: notes[name] for name in (CREATED, ROTATE, COUNT, EPOCH) if name in notes}, fresh


def transfer_key(held: Secret | None, *, make: Callable[[], str] = _secret) -> dict[str, str]:
    """The transfer key that the servers of a namespace share."""
    known: Any = (held.data if held is not None else {}).get("secret")
    secret = known.decode() if known else make()
    data = {"key-name": TRANSFER_KEY, "algorithm": "hmac-sha256", "secret": secret}
    return {**data, "transfer.key": _statement(TRANSFER_KEY, "hmac-sha256", secret)}


def _statement(name: str, algorithm: str, secret: str) -> str:
    return f'key "{name}" {{ algorithm {algorithm}; secret "{secret}"; }};\n'
