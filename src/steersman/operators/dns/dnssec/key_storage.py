"""Where managed pods store their signing keys, and the volumes and containers that they need for it. Pure.

    secret    the operator makes keys and stores them in one Secret of the namespace, read-only for named
    given     the same with keys that the user stores in a Secret
    volume    named makes keys on a PersistentVolumeClaim for keys
    disk      named makes keys in its zone directory: they live as long as the zones there
    nowhere   key generation is off and no keys are given

Keys from Secrets never change, so they survive every pod and volume. named makes keys for a rollover only where it can
write, so limited lifetimes need `volume` or `disk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.dnssec.keys import ALGORITHMS, algorithm_of, seconds_of

if TYPE_CHECKING:
    from steersman.operators.dns.api.servers import KeySource, Signing

KEYS_SECRET: Final = "bind9-signing-keys"  # noqa: S105  # a name
PREFIX: Final = "bindy-"
READ_ONLY: Final = "/etc/bind/signing"  # keys as named wants them; only the containers that copy them can write it
MADE: Final = "/etc/bind/signing-made"
GIVEN: Final = "/etc/bind/signing-given"
VOLUME: Final = "/var/lib/bind-signing"
FIELD: Final = "spec.config.dnssec.signing"

Manifest = dict[str, Any]


class Keeping(msgspec.Struct, frozen=True):
    """How the signing keys of one instance are stored."""

    place: Literal["secret", "given", "volume", "disk", "nowhere"]
    policy: str
    algorithm: int
    generate: bool = True
    secret: str = KEYS_SECRET  # with the keys (place `secret` or `given`)
    rolls: bool = False  # keys have a limited lifetime

    @property
    def by_us(self) -> bool:
        """Whether keys come from a Secret."""
        return self.place in ("secret", "given")


def check_policy(signing: Signing, field: str = FIELD) -> int:
    """The algorithm of a policy; PlanError for a policy that named rejects."""
    if signing.policy in {"default", "insecure", "none"}:
        raise _invalid(f'"{signing.policy}" is a built-in policy of named: choose another name', f"{field}.policy")
    for key, text in (("ksk", signing.ksk_lifetime), ("zsk", signing.zsk_lifetime)):
        try:
            seconds_of(text, key)
        except FormatError as error:
            raise _invalid(str(error), f"{field}.{key}Lifetime") from None
    try:
        return algorithm_of(signing.algorithm)
    except FormatError as error:
        raise _invalid(str(error), f"{field}.algorithm") from None


def keeping_of(signing: Signing | None, namespace: str) -> Keeping | None:
    """How keys are stored; None without signing, PlanError for an impossible combination of fields."""
    if signing is None or not signing.enabled:
        return None
    algorithm = check_policy(signing)
    rolls = bool(seconds_of(signing.ksk_lifetime, "ksk") or seconds_of(signing.zsk_lifetime, "zsk"))
    generate = signing.auto_generate is not False
    source = signing.keys_from
    common: Manifest = {"policy": signing.policy, "algorithm": algorithm, "generate": generate, "rolls": rolls}
    if source is not None and source.secret_ref is not None:
        return Keeping(place="given", secret=_given(source, namespace, rolls=rolls), **common)
    if source is not None and source.persistent_volume is not None:
        if not generate:
            raise _invalid(
                "named makes the keys on a volume: for keys of your own use keysFrom.secretRef",
                f"{FIELD}.autoGenerate",
            )
        return Keeping(place="volume", **common)
    if rolls or signing.export_to_secret is False:
        return Keeping(place="disk" if generate else "nowhere", **common)
    return Keeping(place="secret", **common)


def _given(source: KeySource, namespace: str, *, rolls: bool) -> str:
    ref = source.secret_ref
    assert ref is not None
    where = f"{FIELD}.keysFrom.secretRef"
    if source.persistent_volume is not None:
        raise _invalid("set either secretRef or persistentVolume", f"{FIELD}.keysFrom")
    if not ref.name.startswith(PREFIX):
        raise _invalid(f'"{ref.name}": the name of a Secret with keys must start with {PREFIX}', f"{where}.name")
    if ref.namespace not in ("", namespace):
        raise _invalid(f"pods mount only Secrets of their own namespace: copy it to {namespace}", f"{where}.namespace")
    if rolls:
        raise _invalid(
            "keys from a Secret are not replaced: set kskLifetime and zskLifetime to unlimited", f"{FIELD}.kskLifetime"
        )
    return ref.name


def _invalid(message: str, field: str) -> PlanError:
    return PlanError(message, reason="ConfigurationInvalid", field=field)


def key_directory(keeping: Keeping | None) -> str:
    """The key directory of named; empty: its zone directory."""
    if keeping is None:
        return ""
    return READ_ONLY if keeping.by_us else (VOLUME if keeping.place == "volume" else "")


def key_condition(keeping: Keeping, *, lasting: bool) -> tuple[bool, str, str]:
    """Status, reason and message of the condition SigningKeys; `lasting`: the zone directory survives a pod."""
    name = ALGORITHMS[keeping.algorithm]
    match keeping.place:
        case "secret" | "given":
            return True, "InSecret", f"{name} keys of zones with policy {keeping.policy} are in Secret {keeping.secret}"
        case "volume":
            return True, "OnVolume", f"named makes {name} keys on the PersistentVolumeClaim for keys"
        case "nowhere":
            text = "dnssec.signing.autoGenerate is false and dnssec.signing.keysFrom.secretRef is not set"
            return False, "KeysMissing", f"{text}: zones are served unsigned"
    why = "named replaces keys with a limited lifetime, so exportToSecret has no effect"
    if not keeping.rolls:
        why = "exportToSecret is false"
    if lasting:
        return True, "OnDisk", f"{why}: keys are only on the PersistentVolumeClaim of the zones"
    out = "set storage.storageType: persistentVolumeClaim or dnssec.signing.keysFrom.persistentVolume"
    return False, "OnDisk", f"{why}: keys are lost with the pod, and the DS record in the parent becomes invalid; {out}"


# -- pods --------------------------------------------------------------------------------------------------------------

# Copies keys into the key directory under the file names that named expects, each file atomically and the private key
# last, because named searches for private keys. Removes keys that the Secret no longer has. Prints nothing, as keys are
# secret.
_COPY: Final = r"""
set -eu
umask 077
made=$1 given=$2 to=$3
times='^(Created|Publish|Activate|Revoke|Inactive|Delete|DSPublish|DSRemoved|SyncPublish|SyncDelete):'
copy() {
  for state in "$made"/K*.state; do
    [ -e "$state" ] || continue
    key=${state##*/} key=${key%.state} rest=${state##*._} rest=${rest%.state}
    name=${key%._*}.+${rest%%_*}+${rest#*_}
    from=$made; [ ! -e "$given/$key.private" ] || from=$given
    [ -e "$from/$key.private" ] && [ -e "$from/$key.key" ] || continue
    cat "$from/$key.key" > "$to/.new" && mv "$to/.new" "$to/$name.key"
    cat "$state" > "$to/.new" && mv "$to/.new" "$to/$name.state"
    {
      grep -Ev "$times" "$from/$key.private"
      sed -n -e 's/^Generated: \([0-9]*\).*/Created: \1/p' -e 's/^Published: \([0-9]*\).*/Publish: \1/p' \
        -e 's/^Active: \([0-9]*\).*/Activate: \1/p' -e 's/^PublishCDS: \([0-9]*\).*/SyncPublish: \1/p' "$state"
    } > "$to/.new" && mv "$to/.new" "$to/$name.private"
  done
  for old in "$to"/K*.state; do
    name=${old##*/} name=${name%.state} rest=${old##*.+} rest=${rest%.state}
    [ -e "$made/${name%.+*}._${rest%%+*}_${rest#*+}.state" ] || rm -f "$to/$name.private" "$to/$name.key" "$old"
  done
}
seen() { readlink "$made/..data" "$given/..data" 2>/dev/null || true; }
copy
[ "$4" = follow ] || exit 0
trap 'exit 0' TERM
last=
while :; do
  now=$(seen)
  [ "$now" = "$last" ] || { copy && last=$now; }
  sleep 2 & wait $!
done
"""


def key_claim(signing: Signing | None, keeping: Keeping | None) -> Manifest | None:
    """The spec of the PersistentVolumeClaim for keys; None when none is needed."""
    if keeping is None or keeping.place != "volume" or signing is None or signing.keys_from is None:
        return None
    asked = dict(signing.keys_from.persistent_volume or {})
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}
    return {**usual, **asked}


class KeyParts(msgspec.Struct, frozen=True):
    """The parts of a pod for its signing keys."""

    volumes: list[Manifest] = []
    mounts: list[Manifest] = []  # of the container of named
    first: list[Manifest] = []  # init containers
    beside: list[Manifest] = []  # sidecar containers


def key_parts(keeping: Keeping | None, claim: str, container: Manifest) -> KeyParts:
    """What the pods of an instance need; containers have the image and the rights of the container of named."""
    if keeping is None or keeping.place in ("disk", "nowhere"):
        return KeyParts()
    if keeping.place == "volume":
        volume = {"name": "signing", "persistentVolumeClaim": {"claimName": claim}}
        return KeyParts([volume], [{"name": "signing", "mountPath": VOLUME}])
    volumes: list[Manifest] = [
        {"name": "signing", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "signing-made", "secret": {"secretName": KEYS_SECRET, "defaultMode": 0o440}},
    ]
    mounts: list[Manifest] = [
        {"name": "signing", "mountPath": READ_ONLY},
        {"name": "signing-made", "mountPath": MADE, "readOnly": True},
    ]
    if keeping.place == "given":
        volumes.append({"name": "signing-given", "secret": {"secretName": keeping.secret, "defaultMode": 0o440}})
        mounts.append({"name": "signing-given", "mountPath": GIVEN, "readOnly": True})

    def copier(name: str, how: str) -> Manifest:
        return {
            "name": name,
            "image": container["image"],
            "imagePullPolicy": container["imagePullPolicy"],
            "command": ["sh"],
            "args": ["-c", _COPY, "signing", MADE, GIVEN, READ_ONLY, how],
            "volumeMounts": mounts,
            "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "32Mi"}},
            "securityContext": {**container["securityContext"], "readOnlyRootFilesystem": True},
        }

    return KeyParts(
        volumes,
        [{"name": "signing", "mountPath": READ_ONLY, "readOnly": True}],
        [copier("signing-keys", "once")],
        [copier("signing", "follow")],
    )
