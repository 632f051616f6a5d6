"""Where the servers that the operator makes have their signing keys, and what their pods need for that. Pure.

    secret    the operator makes keys and keeps them in one Secret of the namespace; named cannot write there
    given     the same, with keys that people keep in a Secret of their own
    volume    named makes keys, on a claim of their own
    disk      named makes keys, beside its zones: they live as long as those
    nowhere   nobody may make keys, and there are none

Keys that come from Secrets never change under named's hands, so they outlive every pod and disk. named can only make
keys for a roll-over where it can write, so lifetimes that end mean `volume` or `disk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.lifetimes import seconds_of
from steersman.operators.dns.signing import ALGORITHMS
from steersman.operators.dns.signingkeys import algorithm_of

if TYPE_CHECKING:
    from steersman.operators.dns.serverkinds import KeySource, Signing

__all__ = [
    "KEYS_SECRET",
    "Keeping",
    "check_policy",
    "keeping_of",
    "key_claim",
    "key_directory",
    "key_parts",
    "words_of",
]

KEYS_SECRET: Final = "bind9-signing-keys"  # noqa: S105  # a name
PREFIX: Final = "bindy-"
READ_ONLY: Final = "/etc/bind/signing"  # keys as named wants them; only the containers that copy them can write it
MADE: Final = "/etc/bind/signing-made"
GIVEN: Final = "/etc/bind/signing-given"
VOLUME: Final = "/var/lib/bind-signing"
FIELD: Final = "spec.config.dnssec.signing"

Manifest = dict[str, Any]


class Keeping(msgspec.Struct, frozen=True):
    """How the keys of one instance are kept."""

    place: Literal["secret", "given", "volume", "disk", "nowhere"]
    policy: str
    algorithm: int
    generate: bool = True
    secret: str = KEYS_SECRET  # that keys are in (place `secret` or `given`)
    rolls: bool = False  # keys are replaced from time to time

    @property
    def by_us(self) -> bool:
        """Whether keys come from Secrets."""
        return self.place in ("secret", "given")


def check_policy(signing: Signing, field: str = FIELD) -> int:
    """The algorithm of a policy; PlanError for what named would not start with."""
    if signing.policy in {"default", "insecure", "none"}:
        raise _wrong(f'"{signing.policy}" is named\'s own', f"{field}.policy")
    for key, text in (("ksk", signing.ksk_lifetime), ("zsk", signing.zsk_lifetime)):
        try:
            seconds_of(text, key)
        except FormatError as error:
            raise _wrong(str(error), f"{field}.{key}Lifetime") from None
    try:
        return algorithm_of(signing.algorithm)
    except FormatError as error:
        raise _wrong(str(error), f"{field}.algorithm") from None


def keeping_of(signing: Signing | None, namespace: str) -> Keeping | None:
    """How keys are kept; None when nothing is signed, PlanError when it cannot be done as it is said."""
    if signing is None or not signing.enabled:
        return None
    algorithm = check_policy(signing)
    rolls = bool(seconds_of(signing.ksk_lifetime, "ksk") or seconds_of(signing.zsk_lifetime, "zsk"))
    generate = signing.auto_generate is not False
    source = signing.keys_from
    about: Manifest = {"policy": signing.policy, "algorithm": algorithm, "generate": generate, "rolls": rolls}
    if source is not None and source.secret_ref is not None:
        return Keeping(place="given", secret=_given(source, namespace, rolls=rolls), **about)
    if source is not None and source.persistent_volume is not None:
        if not generate:
            raise _wrong(
                "nobody can tell what keys a volume has before named makes its own: give them in keysFrom.secretRef",
                f"{FIELD}.autoGenerate",
            )
        return Keeping(place="volume", **about)
    if rolls or signing.export_to_secret is False:
        return Keeping(place="disk" if generate else "nowhere", **about)
    return Keeping(place="secret", **about)


def _given(source: KeySource, namespace: str, *, rolls: bool) -> str:
    ref = source.secret_ref
    assert ref is not None
    where = f"{FIELD}.keysFrom.secretRef"
    if source.persistent_volume is not None:
        raise _wrong("keys come from a Secret or from a volume", f"{FIELD}.keysFrom")
    if not ref.name.startswith(PREFIX):
        raise _wrong(f'"{ref.name}": Secrets with keys are named {PREFIX}…', f"{where}.name")
    if ref.namespace not in ("", namespace):
        raise _wrong(f"pods see only Secrets of their own namespace: copy it to {namespace}", f"{where}.namespace")
    if rolls:
        raise _wrong(
            "keys of a Secret are not replaced: kskLifetime and zskLifetime are to be unlimited", f"{FIELD}.kskLifetime"
        )
    return ref.name


def _wrong(message: str, field: str) -> PlanError:
    return PlanError(message, reason="ConfigurationInvalid", field=field)


def key_directory(keeping: Keeping | None) -> str:
    """Where named finds keys; empty: beside its zones."""
    if keeping is None:
        return ""
    return READ_ONLY if keeping.by_us else (VOLUME if keeping.place == "volume" else "")


def words_of(keeping: Keeping, *, lasting: bool) -> tuple[bool, str, str]:
    """Whether keys outlive a pod, and in words why; `lasting` says whether its zones do."""
    name = ALGORITHMS[keeping.algorithm]
    match keeping.place:
        case "secret" | "given":
            return True, "InSecret", f"{name} keys of zones with policy {keeping.policy} are in Secret {keeping.secret}"
        case "volume":
            return True, "OnVolume", f"named makes {name} keys on the claim for keys"
        case "nowhere":
            text = "dnssec.signing.autoGenerate is false and no keys are named in dnssec.signing.keysFrom.secretRef"
            return False, "KeysMissing", f"{text}: zones are served unsigned"
    why = "named replaces keys whose lifetime ends, so exportToSecret has no effect on them"
    if not keeping.rolls:
        why = "exportToSecret is false"
    if lasting:
        return True, "OnDisk", f"{why}: keys are on the claim beside the zones, and nowhere else"
    out = "use storage.storageType: persistentVolumeClaim or dnssec.signing.keysFrom.persistentVolume"
    return False, "OnDisk", f"{why}: keys are lost with the pod, and the parent's DS record with them; {out}"


# -- pods --------------------------------------------------------------------------------------------------------------

# Puts keys where named looks for them, under the names it knows: as whole files, and the private half last, because
# that is what it goes by. What a Secret no longer has goes. Prints nothing: there is nothing in it to be shown.
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
    """The specification of the claim for keys."""
    if keeping is None or keeping.place != "volume" or signing is None or signing.keys_from is None:
        return None
    asked = dict(signing.keys_from.persistent_volume or {})
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}
    return {**usual, **asked}


class KeyParts(msgspec.Struct, frozen=True):
    """What a pod has besides, for keys."""

    volumes: list[Manifest] = []
    mounts: list[Manifest] = []  # of named
    first: list[Manifest] = []  # containers that end before named starts
    beside: list[Manifest] = []  # containers that run beside it


def key_parts(keeping: Keeping | None, claim: str, container: Manifest) -> KeyParts:
    """What the pods of an instance need, made from the container of named: its image, and no more rights than that."""
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
