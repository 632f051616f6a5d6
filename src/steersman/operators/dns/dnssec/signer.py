"""The signer of a zone and its keys: chosen before the zone is published, and keys made where they are missing.

One primary signs, the others transfer from it. The signer stays the same while it is selected, even when it does not
answer: another one would serve the zone with other keys, which contradict the DS record of the parent. Keys are added
to one Secret of the namespace, field by field and only on the resourceVersion that was read, so no key is ever
overwritten.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.kube.api.errors import AlreadyExists, Conflict, Invalid
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_time
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.servers import Bind9Cluster
from steersman.operators.dns.bind.named_conf import keeping_for, without_effect
from steersman.operators.dns.bind.servers import Server, asked_catalog, unused_keys
from steersman.operators.dns.deploy.manifests import is_lasting
from steersman.operators.dns.dnssec.key_storage import KEYS_SECRET, key_condition, key_directory
from steersman.operators.dns.dnssec.keys import ALGORITHMS, KeyPlan, keys_in, make_key, plan_keys, state_of
from steersman.operators.dns.zone.soa import zone_name
from steersman.runtime.cluster import ClusterSnapshot
from steersman.runtime.reconcile.conditions import new_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.dns.api.servers import Bind9Instance
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.dnssec.key_storage import Keeping
    from steersman.runtime.reconcile.conditions import Condition
    from steersman.runtime.reconcile.context import Context


from typing import TYPE_CHECKING

from steersman.operators.dns.dnssec.keys import SIGNING, is_signed_with
from steersman.operators.dns.zone.rdata import DNSKEY

if TYPE_CHECKING:
    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.publish.zone_state import ServerCopy


class SignedBy(msgspec.Struct, frozen=True):
    """How a zone is signed."""

    policy: str | None = None  # None: unsigned
    instance: NamespacedName | None = None
    primaries: tuple[Server, ...] = ()  # the signer first
    directory: str = ""  # of keys; empty: the default of the server
    tags: frozenset[int] = frozenset()  # of the keys that must be served; empty: any keys that named made
    hold: bool = False  # the parent has a DS record: the zone must never be served unsigned
    reason: str = ""  # the problem, for a condition
    message: str = ""


def signer_of(instances: Sequence[Bind9Instance], primaries: Sequence[Server], known: str) -> Bind9Instance | None:
    """The instance that signs: the previous one, else the first with a server, else the first."""
    able = [instance for instance in instances if instance.spec.role == "primary"]
    here = {server.instance for server in primaries}
    before = [instance for instance in able if str(instance.ref) == known]
    return next(iter([*before, *(instance for instance in able if instance.ref in here), *able]), None)


def keys_secret(namespace: str, files: dict[str, str]) -> Secret:
    """The Secret with the signing keys of a namespace. It has no owner: keys survive zones and servers."""
    meta = ObjectMeta(name=KEYS_SECRET, namespace=namespace, labels={"app": "bind9"})
    return Secret(metadata=meta, type="Opaque", data={name: text.encode() for name, text in files.items()})


# -- instances ---------------------------------------------------------------------------------------------------------

SIGNING_CONDITIONS: Final = frozenset({"Ignored", "SigningKeys"})


def signing_conditions(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[Condition]:
    """The conditions of an instance about signing keys, and about fields that have no effect."""
    generation = instance.metadata.generation
    fields, texts = without_effect(instance, cluster), []
    if fields:
        texts.append(
            f"{', '.join(fields)}: an external server uses the keys in its own key-directory; put them there, or "
            "remove spec.endpoints to have the server managed"
        )
    if cluster is not None and (unused := unused_keys(instance, cluster)):
        texts.append(
            f"rndcSecretRefs of Bind9Cluster {cluster.name}: only the first is used, not {', '.join(unused)}; a server "
            "has one control key (set updateKey and transferKey of an instance for others)"
        )
    if not instance.spec.endpoints and (catalog := asked_catalog(instance, cluster)):
        texts.append(
            f"catalogZone {catalog}: only servers with endpoints take their zones from a catalog; each zone is added "
            "to these pods over their control channel"
        )
    rows = [new_condition("Ignored", True, "NoEffect", "; ".join(texts), generation=generation)] if texts else []
    if fields:
        return rows
    try:
        keeping = keeping_for(instance, cluster)
    except PlanError:
        return rows  # the condition Ready reports it
    if keeping is None:
        return rows
    fine, reason, text = key_condition(keeping, lasting=is_lasting(instance, cluster))
    return [*rows, new_condition("SigningKeys", fine, reason, text, generation=generation)]


async def keep_signing_keys(
    ctx: Context, instance: Bind9Instance, keeping: Keeping | None, zones: Sequence[DNSZone]
) -> None:
    """Create the Secret that pods mount; PlanError when its keys have another algorithm than configured.

    A lost Secret is not created again while a zone has DS records: pods that still have the keys would lose them.
    """
    if keeping is None or not keeping.by_us:
        return
    held = ctx.cache[Secret].get(NamespacedName(KEYS_SECRET, instance.namespace))
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
                    f"{zone.spec.zone_name} has keys of {ALGORITHMS[others.pop()]}, and keys in a Secret are not "
                    "replaced: restore that algorithm, or first remove dnssecPolicy from the zone and its keys from "
                    f"Secret {KEYS_SECRET}",
                    reason="ConfigurationInvalid",
                    field="spec.config.dnssec.signing.algorithm",
                )


# -- zones -------------------------------------------------------------------------------------------------------------


class Signers:
    """See the module."""

    def __init__(self) -> None:
        self._locks: dict[NamespacedName, asyncio.Lock] = {}  # one writer for each Secret

    async def prepare(
        self, ctx: Context, zone: DNSZone, instances: Sequence[Bind9Instance], primaries: tuple[Server, ...]
    ) -> SignedBy:
        """Choose the signer of a zone and make missing keys; PlanError when the zone must stay as it is served."""
        policy = zone.spec.dnssec_policy
        if policy is None or not primaries:
            return SignedBy(primaries=primaries)
        known = zone.status.dnssec if zone.status is not None else None
        reported = tuple(known.ds_records or ()) if known is not None else ()
        signer = signer_of(instances, primaries, known.signed_by if known is not None else "")
        if signer is None:
            return SignedBy(primaries=primaries)
        mine = [server for server in primaries if server.instance == signer.ref]
        rest = [server for server in primaries if server.instance != signer.ref]
        found = SignedBy(policy=policy, instance=signer.ref, primaries=(*mine, *rest))
        if not mine:
            text = f"the signer {signer.name} has no running server; the zone is served unchanged"
            return msgspec.structs.replace(found, primaries=(), reason="SignerAway", message=text)
        cluster = ctx.cache[Bind9Cluster].get(NamespacedName(signer.spec.cluster_ref, signer.namespace))
        keeping = keeping_for(signer, cluster)
        if keeping is None or keeping.policy != policy:
            return found
        found = msgspec.structs.replace(found, directory=key_directory(keeping))
        if keeping.place in ("volume", "disk"):
            return found
        plan = await self._plan(ctx, zone, signer, keeping, reported)
        if not plan.reason:
            return msgspec.structs.replace(found, tags=plan.tags, hold=bool(reported))
        if reported:
            raise PlanError(plan.message, reason=plan.reason, field="spec.dnssecPolicy")
        return SignedBy(primaries=found.primaries, reason=plan.reason, message=plan.message)

    async def _plan(
        self, ctx: Context, zone: DNSZone, signer: Bind9Instance, keeping: Keeping, reported: tuple[str, ...]
    ) -> KeyPlan:
        if keeping.place == "nowhere":
            text = "dnssec.signing.autoGenerate is false: name a Secret with keys in dnssec.signing.keysFrom.secretRef"
            return KeyPlan(reason="KeysMissing", message=f"{text}; the zone is not signed")
        plan = _read_plan(ctx.cache, zone, signer, keeping, reported)
        if not (plan.missing or plan.states):
            return plan
        ref = NamespacedName(KEYS_SECRET, signer.namespace)
        async with self._locks.setdefault(ref, asyncio.Lock()):
            with ClusterSnapshot(
                ctx.cache, user="dns zones"
            ) as fresh:  # other zones may have written while this one waited for the lock
                plan, held = _read_plan(fresh, zone, signer, keeping, reported), fresh[Secret].get(ref)
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
            with ClusterSnapshot(ctx.cache, user="dns zones") as fresh:
                return _read_plan(fresh, zone, signer, keeping, reported)


def _pair(zone: bytes, algorithm: int, now: str) -> dict[str, str]:
    entry = make_key(zone, algorithm, now, entry=True)
    taken = {int(name.rsplit("_", 1)[1][:5]) for name in entry}
    return entry | make_key(zone, algorithm, now, entry=False, others=taken)


async def _add(ctx: Context, held: Secret | None, ref: NamespacedName, files: dict[str, str]) -> KeyPlan | None:
    """Add files to the Secret at the resourceVersion that was read; returns the problem, if any."""
    try:
        if held is None:
            await ctx.create(keys_secret(ref.namespace, files), owner=None)
        elif held.labels.get("app") != "bind9" and not held.data:  # the cache stores only the fields of keys
            text = f"Secret {ref} exists without signing keys: rename it, or label it app=bind9 to store them there"
            return KeyPlan(reason="NameConflict", message=text)
        else:
            mark = {"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version}
            data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
            await ctx.patch(held, {"metadata": mark, "data": data})
    except (AlreadyExists, Conflict):
        return KeyPlan(reason="KeysPending", message=f"Secret {ref} was changed by another client; retrying")
    except Invalid as error:
        return KeyPlan(reason="KeysFull", message=f"Secret {ref} cannot store more keys: {error}")
    return None


def _read_plan(
    cache: Any, zone: DNSZone, signer: Bind9Instance, keeping: Keeping, reported: tuple[str, ...]
) -> KeyPlan:
    ours = cache[Secret].get(NamespacedName(KEYS_SECRET, signer.namespace))
    given = None
    if keeping.place == "given":
        held = cache[Secret].get(NamespacedName(keeping.secret, signer.namespace))
        given = held.data if held is not None else {}
    return plan_keys(
        zone_name(zone),
        keeping.algorithm,
        ours.data if ours is not None else {},
        given,
        generate=keeping.generate,
        known=reported,
        where=f"{signer.namespace}/{keeping.secret}",
    )


async def see_signed(driver: Driver, zone: bytes, copy: ServerCopy, tags: frozenset[int]) -> bool:
    """Whether a copy is completely signed with these keys; if not, have the server load its keys. No tags: any keys."""
    if tags and not is_signed_with(tags, await driver.values(zone, DNSKEY), await driver.values(zone, SIGNING)):
        copy.signed = frozenset()
        copy.unsigned += 1
        await driver.load_keys(zone)
        return False
    copy.signed, copy.unsigned = tags, 0
    return True
