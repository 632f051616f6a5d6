"""Who signs a zone, and with which keys: decided before it is published, and made where they are missing.

One primary signs, the others transfer from it. It stays the one as long as it is chosen, also while it is away: another
would have to serve the zone anew, and with keys of its own disk it would contradict the parent. Keys that the operator
keeps are added to one Secret of the namespace, field by field and only on the state that was read, so nothing that is
there is ever written over.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.kube.errors import AlreadyExists, Conflict, Invalid
from steersman.kube.objects import ObjectMeta
from steersman.kube.resources import ObjectRef
from steersman.kube.times import format_time
from steersman.kube.types.core import Secret
from steersman.operators.dns.fleet import unused_keys
from steersman.operators.dns.manifests import is_lasting
from steersman.operators.dns.namedconf import keeping_for, without_effect
from steersman.operators.dns.serverkinds import Bind9Cluster
from steersman.operators.dns.servers import Server
from steersman.operators.dns.signing import ALGORITHMS
from steersman.operators.dns.signingkeys import KeyPlan, keys_in, make_key, plan_keys, state_of
from steersman.operators.dns.signingpod import KEYS_SECRET, key_directory, words_of
from steersman.operators.dns.zoneplan import zone_name
from steersman.runtime.cluster import Snapshots
from steersman.runtime.conditions import condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.dns.serverkinds import Bind9Instance
    from steersman.operators.dns.signingpod import Keeping
    from steersman.operators.dns.zonekinds import DNSZone
    from steersman.runtime.conditions import Condition
    from steersman.runtime.context import Context

__all__ = [
    "SIGNING_CONDITIONS",
    "SignedBy",
    "Signers",
    "keep_signing_keys",
    "keys_secret",
    "signer_of",
    "signing_conditions",
]


class SignedBy(msgspec.Struct, frozen=True):
    """How a zone is signed."""

    policy: str | None = None  # None: it is not
    instance: ObjectRef | None = None
    primaries: tuple[Server, ...] = ()  # the one that signs first
    directory: str = ""  # of keys; empty: where the server has them
    tags: frozenset[int] = frozenset()  # of the keys that it must show; empty: whichever it made
    hold: bool = False  # its parent knows its keys: nobody may see it unsigned
    reason: str = ""  # why it is not as it should be
    message: str = ""


def signer_of(instances: Sequence[Bind9Instance], primaries: Sequence[Server], known: str) -> Bind9Instance | None:
    """The instance that signs: the one that did, else the first that is there, else the first."""
    able = [one for one in instances if one.spec.role == "primary"]
    here = {server.instance for server in primaries}
    before = [one for one in able if str(one.ref) == known]
    return next(iter([*before, *(one for one in able if one.ref in here), *able]), None)


def keys_secret(namespace: str, files: dict[str, str]) -> Secret:
    """The Secret of a namespace's signing keys. It belongs to nobody: keys outlive zones and servers."""
    meta = ObjectMeta(name=KEYS_SECRET, namespace=namespace, labels={"app": "bind9"})
    return Secret(metadata=meta, type="Opaque", data={name: text.encode() for name, text in files.items()})


# -- instances ---------------------------------------------------------------------------------------------------------

SIGNING_CONDITIONS: Final = frozenset({"Ignored", "SigningKeys"})


def signing_conditions(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[Condition]:
    """What an instance says about its keys: where those of zones are, and what is asked for and not done."""
    generation = instance.metadata.generation
    fields, texts = without_effect(instance, cluster), []
    if fields:
        texts.append(
            f"{', '.join(fields)}: a server that exists already has its keys in its own key-directory; put them there, "
            "or have the server made here (no endpoints)"
        )
    if cluster is not None and (unused := unused_keys(instance, cluster)):
        texts.append(
            f"rndcSecretRefs of Bind9Cluster {cluster.name}: only the first is used, and {', '.join(unused)} is not; "
            "a server has one control key (updateKey and transferKey of an instance name others)"
        )
    rows = [condition("Ignored", True, "NoEffect", "; ".join(texts), generation=generation)] if texts else []
    if fields:
        return rows
    try:
        keeping = keeping_for(instance, cluster)
    except PlanError:
        return rows  # Ready says it
    if keeping is None:
        return rows
    fine, reason, text = words_of(keeping, lasting=is_lasting(instance, cluster))
    return [*rows, condition("SigningKeys", fine, reason, text, generation=generation)]


async def keep_signing_keys(
    ctx: Context, instance: Bind9Instance, keeping: Keeping | None, zones: Sequence[DNSZone]
) -> None:
    """Have the Secret that pods wait for; PlanError when its keys are not of the algorithm that is wanted now.

    One that was lost is not made again while a zone is known by its keys: pods that still have them would lose them.
    """
    if keeping is None or not keeping.by_us:
        return
    held = ctx.cache[Secret].get(ObjectRef(KEYS_SECRET, instance.namespace))
    signed = [zone for zone in zones if zone.spec.dnssec_policy == keeping.policy]
    if held is None:
        if not any(zone.status and zone.status.dnssec and zone.status.dnssec.ds_records for zone in signed):
            with suppress(AlreadyExists):
                await ctx.create(keys_secret(instance.namespace, {}), owner=None)
        return
    for zone in signed if keeping.place == "secret" else ():
        with suppress(FormatError):
            others = {key.algorithm for key in keys_in(held.data, zone_name(zone))} - {keeping.algorithm}
            if others:
                raise PlanError(
                    f"{zone.spec.zone_name} has keys of {ALGORITHMS[others.pop()]}, and keys of a Secret are not "
                    "replaced: go back to that, or take dnssecPolicy out of the zone and its keys out of Secret "
                    f"{KEYS_SECRET} first",
                    reason="ConfigurationInvalid",
                    field="spec.config.dnssec.signing.algorithm",
                )


# -- zones -------------------------------------------------------------------------------------------------------------


class Signers:
    """See the module."""

    def __init__(self) -> None:
        self._locks: dict[ObjectRef, asyncio.Lock] = {}  # one writer for each Secret

    async def prepare(
        self, ctx: Context, zone: DNSZone, instances: Sequence[Bind9Instance], primaries: tuple[Server, ...]
    ) -> SignedBy:
        """Say who signs a zone and have its keys made; PlanError when it must stay as it is being served."""
        policy = zone.spec.dnssec_policy
        if policy is None or not primaries:
            return SignedBy(primaries=primaries)
        known = zone.status.dnssec if zone.status is not None else None
        told = tuple(known.ds_records or ()) if known is not None else ()
        signer = signer_of(instances, primaries, known.signed_by if known is not None else "")
        if signer is None:
            return SignedBy(primaries=primaries)
        mine = [server for server in primaries if server.instance == signer.ref]
        rest = [server for server in primaries if server.instance != signer.ref]
        found = SignedBy(policy=policy, instance=signer.ref, primaries=(*mine, *rest))
        if not mine:
            text = f"{signer.name}, which signs it, has no address now; it is served as it was"
            return msgspec.structs.replace(found, primaries=(), reason="SignerAway", message=text)
        cluster = ctx.cache[Bind9Cluster].get(ObjectRef(signer.spec.cluster_ref, signer.namespace))
        keeping = keeping_for(signer, cluster)
        if keeping is None or keeping.policy != policy:
            return found
        found = msgspec.structs.replace(found, directory=key_directory(keeping))
        if keeping.place in ("volume", "disk"):
            return found
        plan = await self._plan(ctx, zone, signer, keeping, told)
        if not plan.reason:
            return msgspec.structs.replace(found, tags=plan.tags, hold=bool(told))
        if told:
            raise PlanError(plan.message, reason=plan.reason, field="spec.dnssecPolicy")
        return SignedBy(primaries=found.primaries, reason=plan.reason, message=plan.message)

    async def _plan(
        self, ctx: Context, zone: DNSZone, signer: Bind9Instance, keeping: Keeping, told: tuple[str, ...]
    ) -> KeyPlan:
        if keeping.place == "nowhere":
            text = "dnssec.signing.autoGenerate is false: name a Secret with keys in dnssec.signing.keysFrom.secretRef"
            return KeyPlan(reason="KeysMissing", message=f"{text}; it is not signed")
        plan = _look(ctx.cache, zone, signer, keeping, told)
        if not (plan.missing or plan.states):
            return plan
        ref = ObjectRef(KEYS_SECRET, signer.namespace)
        async with self._locks.setdefault(ref, asyncio.Lock()):
            with Snapshots(ctx.cache, user="dns zones") as fresh:  # others may have written while we waited
                plan, held = _look(fresh, zone, signer, keeping, told), fresh[Secret].get(ref)
            now = format_time(ctx.clock.time())
            files = {f"{key.field}.state": state_of(key, now) for key in plan.states}
            if plan.missing:
                try:
                    files = await asyncio.to_thread(_pair, zone_name(zone), keeping.algorithm, now)
                except FormatError as error:
                    return KeyPlan(reason="KeysInvalid", message=str(error))
            if files:
                problem = await _add(ctx, held, ref, files)
                if problem is not None:
                    return problem
            with Snapshots(ctx.cache, user="dns zones") as fresh:
                return _look(fresh, zone, signer, keeping, told)


def _pair(zone: bytes, algorithm: int, now: str) -> dict[str, str]:
    entry = make_key(zone, algorithm, now, entry=True)
    taken = {int(name.rsplit("_", 1)[1][:5]) for name in entry}
    return entry | make_key(zone, algorithm, now, entry=False, others=taken)


async def _add(ctx: Context, held: Secret | None, ref: ObjectRef, files: dict[str, str]) -> KeyPlan | None:
    """Put files into the Secret, if it is as it was read; says what is in the way."""
    try:
        if held is None:
            await ctx.create(keys_secret(ref.namespace, files), owner=None)
        else:
            mark = {"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version}
            data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
            await ctx.patch(held, {"metadata": mark, "data": data})
    except (AlreadyExists, Conflict):
        return KeyPlan(reason="KeysPending", message=f"Secret {ref} is being changed by others; it is looked at again")
    except Invalid as error:
        return KeyPlan(reason="KeysFull", message=f"Secret {ref} takes no more keys: {error}")
    return None


def _look(cache: Any, zone: DNSZone, signer: Bind9Instance, keeping: Keeping, told: tuple[str, ...]) -> KeyPlan:
    ours = cache[Secret].get(ObjectRef(KEYS_SECRET, signer.namespace))
    given = None
    if keeping.place == "given":
        held = cache[Secret].get(ObjectRef(keeping.secret, signer.namespace))
        given = held.data if held is not None else {}
    return plan_keys(
        zone_name(zone),
        keeping.algorithm,
        ours.data if ours is not None else {},
        given,
        generate=keeping.generate,
        known=told,
        where=f"{signer.namespace}/{keeping.secret}",
    )
