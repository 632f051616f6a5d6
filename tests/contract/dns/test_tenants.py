"""What a tenant gets who may write the kinds of this operator in its own namespace, and nothing else anywhere."""

from __future__ import annotations

import base64
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta

import dns.rcode
import pytest
from aiohttp import web

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.apps import Deployment
from steersman.kube.api.types.core import ConfigMap, Event, Namespace, PersistentVolumeClaim, Secret, Service
from steersman.kube.api.types.policy import PodDisruptionBudget
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.dns.api.config import ADOPT, ALLOW_NAMESPACES, GROUP
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.testing import eventually
from tests.support.dns.zones import Site, ask, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RULES = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "update", "patch"]}]
KEY = {"stringData": {"key-name": "mine", "secret": base64.b64encode(b"m" * 32).decode()}}
NOWHERE = [{"selector": {"matchLabels": {"dns": "nowhere"}}}]
JSON, MERGE = ({"Content-Type": f"application/{form}"} for form in ("json", "merge-patch+json"))
OURS = "the-token-of-the-operator"


@pytest.fixture
async def tenant(cluster, client, dns_kinds):
    """A namespace whose people may write the kinds of this operator; on the real server, with exactly those rights."""
    name = f"younger-{uuid.uuid4().hex[:8]}"  # also by its name: objects made in the same second are as old
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    if not hasattr(cluster, "service_account"):  # the embedded server evaluates no rights
        yield Site(client, name, [])
        return
    account = await cluster.service_account("tenant", RULES, namespace=name)
    async with Client.connect(load_config(account)) as limited:
        with pytest.raises(Forbidden):
            await limited.list(Secret, namespace=name)
        yield Site(limited, name, [])


@pytest.fixture
async def operator(client, namespace):
    """Who runs the operator, with all rights."""
    return Site(client, namespace, [])


@asynccontextmanager
async def sidecar(shown):
    """A sidecar of the tenant's own making, which keeps what it is shown."""

    async def answer(request):
        shown.append(request.headers.get("Authorization"))
        return web.json_response({"error": "who are you?"}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


async def trap(tenant, port, name="trap", **spec):
    """An instance that sends the operator to an address of the tenant's."""
    wanted = {
        "clusterRef": "",
        "role": "primary",
        "driver": "bindcar",
        "bindcarConfig": {"port": port},
        "endpoints": [{"address": "127.0.0.1", "dnsPort": 1}],
        "rndcKey": {"secret": KEY},
        **spec,
    }
    await tenant.apply("Bind9Instance", name, wanted)


async def test_the_operators_token_goes_only_to_namespaces_that_an_administrator_names(operator, tenant, tmp_path):
    file, shown = tmp_path / "token", []
    file.write_text(OURS)
    async with sidecar(shown) as port:
        await trap(tenant, port)
        async with operator.running(namespaces=[tenant.namespace], bindcar_token_file=str(file)):
            await eventually(lambda: tenant.is_ready("Bind9Instance", "trap", "NotReady"), timeout=120)
            _, _, message = await tenant.ready("Bind9Instance", "trap")
        assert shown
        assert set(shown) == {None}
        assert "dns.bindcarTokenNamespaces" in message
        shown.clear()
        named = {"bindcar_token_namespaces": frozenset({tenant.namespace})}
        async with operator.running(namespaces=[tenant.namespace], bindcar_token_file=str(file), **named):
            await eventually(lambda: f"Bearer {OURS}" in shown, timeout=120)


async def test_the_token_of_an_instance_is_not_shown_to_the_address_of_another(operator, client, tenant):
    """The Secret that we made for one instance, named as the key of a server at the tenant's address."""
    shown = []
    victim = Site(client, tenant.namespace, [])
    sidecar_of_victim = {"image": "internetsystemsconsortium/bind9"}
    await victim.apply(
        "Bind9Instance", "good", {"role": "primary", "driver": "bindcar", "bindcarConfig": sidecar_of_victim}
    )

    async def made():
        held = await client.list(Secret, namespace=tenant.namespace)
        return any(one.name == "good-rndc-key" and one.data.get("token") for one in held.items)

    async with sidecar(shown) as port, operator.running(namespaces=[tenant.namespace]):
        await eventually(made, timeout=120)
        await trap(tenant, port, rndcKey={"secretRef": {"name": "good-rndc-key"}})
        await eventually(lambda: tenant.is_ready("Bind9Instance", "trap", "NotReady"), timeout=120)
    assert shown
    assert set(shown) == {None}


async def test_an_object_of_a_tenant_that_is_nested_too_deep_keeps_nothing_from_others(
    real, client, dns_kinds, namespace
):
    """On the real server only: the embedded one stores no object that deep."""
    account = await real.service_account("nesting", RULES, namespace=namespace)
    meta = f'{{"name": "deep", "namespace": "{namespace}"}}'
    spec = '{"role": "primary", "rndcKey": {"secret": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}}"
    kind = Bind9Instance.KIND
    body = f'{{"apiVersion": "{kind.api_version}", "kind": "{kind.kind}", "metadata": {meta}, "spec": {spec}}}'
    site = Site(client, namespace, [])
    async with Client.connect(load_config(account)) as limited:
        await limited.transport.request("POST", kind.path(namespace), body=body.encode(), headers=JSON)
        async with site.running():
            await site.apply("Bind9Instance", "other", {"role": "primary", "image": {"image": "evil.example/named"}})
            await eventually(lambda: site.is_ready("Bind9Instance", "other", "NotAllowed"), timeout=120)
            await limited.transport.request(
                "PATCH", kind.path(namespace, "deep"), body=b'{"spec":{"replicas":2}}', headers=MERGE
            )
            await site.apply("Bind9Instance", "later", {"role": "primary", "image": {"image": "evil.example/named"}})
            await eventually(lambda: site.is_ready("Bind9Instance", "later", "NotAllowed"), timeout=120)


@pytest.fixture
async def shared(client, dns_kinds, namespace, ns1):
    """A server that lets every namespace in, and the zone of a bank on it."""
    made = Site(client, namespace, [ns1])
    await made.instances()
    notes = {"metadata": {"annotations": {ALLOW_NAMESPACES: "*"}}}
    await client.patch(Bind9Instance, "primary-0", notes, namespace=namespace)
    await made.zone("bank.example")
    await made.record("A", "www", zone="bank.example", ipv4Addresses=["192.0.2.1"])
    return made


async def contested(site, name):
    """What a zone says of others that claim its names."""
    found = await site.get("DNSZone", name)
    rows = (found.status.conditions if found.status else None) or ()
    return next((row.message for row in rows if row.type == "Contested"), "")


async def test_a_tenant_cannot_answer_for_names_of_another_on_a_shared_server(shared, tenant, ns1):
    async with shared.running(namespaces=[tenant.namespace]):
        await eventually(lambda: shared.is_ready("DNSZone", "bank.example"), timeout=120)
        soa = {"primaryNs": "ns1.bank.example."}
        await tenant.zone("www.bank.example", "below", soa=soa)
        await tenant.record("A", "stolen", zone="below", owner="@", ipv4Addresses=["203.0.113.66"])
        await tenant.zone("example", "above")
        await tenant.zone("Bank.Example", "same")
        for name, reason in (("below", "ZoneOverlap"), ("above", "ZoneOverlap"), ("same", "DuplicateZone")):
            await eventually(lambda n=name, r=reason: tenant.is_ready("DNSZone", n, r), timeout=120)

        async def told():
            text = await contested(shared, "bank.example")
            return all(f"{tenant.namespace}/{name}" in text for name in ("below", "above", "same"))

        await eventually(told, "the victim says who claims its names", timeout=120)
        assert await shared.is_ready("DNSZone", "bank.example")
        assert await shared.answers("www.bank.example", "A", {"192.0.2.1"})
        assert (await ask(ns1, "example", "SOA")).rcode() == dns.rcode.REFUSED
        # The zone above gives the name to its own servers: now it is the tenant's.
        await shared.delete("A", "www")
        await shared.record("NS", "cut", zone="bank.example", owner="www", nameserver="ns1.bank.example.")
        await eventually(lambda: tenant.is_ready("DNSZone", "below"), timeout=120)
        assert await shared.answers("www.bank.example", "A", {"203.0.113.66"})

        async def no_longer():
            text = await contested(shared, "bank.example")
            return f"{tenant.namespace}/below" not in text and f"{tenant.namespace}/above" in text

        await eventually(no_longer, timeout=120)
        for name in ("above", "same"):  # what was refused goes, and nothing of the victim's with it
            await shared.client.delete(DNSZone, name, namespace=tenant.namespace)
            await eventually(lambda n=name: tenant.gone("DNSZone", n), timeout=120)
        assert await shared.answers("ns1.bank.example", "A", {"192.0.2.53"})


NATIVE = """$TTL 300
@ IN SOA ns1.corp.example. hostmaster.corp.example. 5 3600 600 604800 60
@ IN NS ns1.corp.example.
ns1 IN A 192.0.2.53
www IN A 192.0.2.80
"""


async def native(server):
    """A zone that the people of a server added by hand."""
    (server.zones / "theirs.db").write_text(NATIVE)
    rights = "allow-transfer { key operator; }; update-policy { grant operator zonesub ANY; };"
    await server.control(f'addzone corp.example {{ type primary; file "theirs.db"; {rights} }};')


@pytest.mark.parametrize("let_in", [True, False], ids=["let in", "not let in"])
async def test_a_tenants_claim_does_not_adopt_a_foreign_zone(shared, tenant, ns1, let_in):
    """An annotation and a status that the tenant wrote itself, about a zone on a server of another namespace."""
    await native(ns1)
    if not let_in:
        notes = {"metadata": {"annotations": {ALLOW_NAMESPACES: None}}}
        await shared.client.patch(Bind9Instance, "primary-0", notes, namespace=shared.namespace)
    quick = {"drift_period": timedelta(seconds=1), "deletion_grace": timedelta(seconds=1)}
    async with shared.running(namespaces=[tenant.namespace], **quick):
        await eventually(lambda: shared.is_ready("DNSZone", "bank.example"), timeout=120)
        await tenant.zone("corp.example", "mine", annotations={ADOPT: "true"})
        await tenant.record("A", "theirs", zone="mine", owner="www", ipv4Addresses=["192.0.2.80"])
        row = {"name": "primary-0", "namespace": shared.namespace, "status": "Configured", "serial": 5, "adopted": True}
        await eventually(lambda: _said(tenant, "mine"), timeout=120)
        before = await tenant.get("DNSZone", "mine")
        said = {"status": {"bind9Instances": [row | {"apiVersion": "v1", "kind": "Bind9Instance"}]}}
        await tenant.client.patch(DNSZone, "mine", said, namespace=tenant.namespace, subresource="status")
        await tenant.zone("corp.example", "mine", annotations={ADOPT: "true"}, bind9InstancesFrom=NOWHERE)

        async def seen():
            now = await tenant.get("DNSZone", "mine")
            return now.status.observed_generation > before.metadata.generation and not now.status.bind9_instances

        await eventually(seen, "the zone is on no server", timeout=120)
        assert await values(ns1, "ns1.corp.example", "A") == {"192.0.2.53"}
        if not let_in:
            assert await values(ns1, "www.corp.example", "A") == {"192.0.2.80"}


async def _said(site, name):
    return (await site.get("DNSZone", name)).status is not None


def foreign(kind, api, name, namespace, **body):
    """An object of other people, as they made it."""
    meta = {"name": name, "namespace": namespace, "labels": {"app": "shop"}}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **body}


TEMPLATE = {
    "metadata": {"labels": {"app": "shop"}},
    "spec": {"containers": [{"name": "shop", "image": "shop:1"}]},
}
SELECTOR = {"matchLabels": {"app": "shop"}}
FOREIGN = {
    Service: ("v1", "web", {"spec": {"ports": [{"port": 443}], "selector": {"app": "shop"}}}),
    ConfigMap: ("v1", "web-config", {"data": {"named.conf": "theirs"}}),
    Secret: ("v1", "web-rndc-key", {"data": {"token": "dGhlaXJz"}}),
    Deployment: ("apps/v1", "web", {"spec": {"selector": SELECTOR, "template": TEMPLATE}}),
    PodDisruptionBudget: ("policy/v1", "web", {"spec": {"selector": SELECTOR, "maxUnavailable": 3}}),
    PersistentVolumeClaim: (
        "v1",
        "web-zones",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}},
    ),
}


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.KIND.kind)
async def test_an_instance_named_like_an_object_of_others_neither_writes_nor_deletes_it(operator, client, tenant, kind):
    api, name, body = FOREIGN[kind]
    theirs = await client.apply(
        foreign(kind.KIND.kind, api, name, tenant.namespace, **body), field_manager="shop", force=True
    )

    async def now():
        return await client.get(kind.KIND, name, namespace=tenant.namespace)

    async with operator.running(namespaces=[tenant.namespace]):
        disk = {"storageType": "persistentVolumeClaim"}
        await tenant.apply("Bind9Instance", "web", {"role": "primary", "storage": disk})
        await eventually(lambda: tenant.is_ready("Bind9Instance", "web", "NameConflict"), timeout=120)
        _, _, message = await tenant.ready("Bind9Instance", "web")
        assert f"{kind.KIND.kind} {name} exists in namespace {tenant.namespace}" in message
        events = await client.list(Event, namespace=tenant.namespace)
        assert any(event.reason == "NameConflict" for event in events.items)
        others = [other for other in FOREIGN if other is not kind]
        made = {other: await client.list(other, namespace=tenant.namespace) for other in others}
        if kind in (Service, PodDisruptionBudget):  # the rest keeps working: pods do not depend on these
            assert len(made[Deployment].items) == 1
        if kind in (ConfigMap, Secret, PersistentVolumeClaim):  # and pods never run with what is not theirs
            assert made[Deployment].items == []
        await Site(client, tenant.namespace, []).delete("Bind9Instance", "web")
        await eventually(lambda: tenant.gone("Bind9Instance", "web"), timeout=120)
    after = await now()
    for part in ("spec", "data"):
        assert after.get(part) == theirs.get(part)
    for part in ("uid", "labels", "ownerReferences", "deletionTimestamp"):
        assert after["metadata"].get(part) == theirs["metadata"].get(part)
    assert {row["manager"] for row in after["metadata"]["managedFields"]}.isdisjoint({"steersman", "dns"})


async def test_a_cluster_does_not_take_over_an_instance_of_the_name_it_would_give(operator, client, tenant):
    spec = {"role": "secondary", "endpoints": [{"address": "127.0.0.1"}], "rndcKey": {"secret": KEY}}
    await Site(client, tenant.namespace, []).apply("Bind9Instance", "own-primary-0", spec)
    async with operator.running(namespaces=[tenant.namespace]):
        await tenant.apply("Bind9Cluster", "own", {"primary": {"replicas": 2}})
        await eventually(lambda: tenant.is_ready("Bind9Cluster", "own", "NameConflict"), timeout=120)
        assert (await tenant.get("Bind9Instance", "own-primary-0")).spec.role == "secondary"
        assert (await tenant.get("Bind9Instance", "own-primary-1")).spec.role == "primary"
        await Site(client, tenant.namespace, []).delete("Bind9Cluster", "own")
        await eventually(lambda: tenant.gone("Bind9Cluster", "own"), timeout=120)
        assert (await tenant.get("Bind9Instance", "own-primary-0")).spec.role == "secondary"


THEFTS = {
    "spec.bindcarConfig.envVars[0].valueFrom.secretKeyRef.name": {
        "driver": "bindcar",
        "bindcarConfig": {
            "image": "internetsystemsconsortium/bind9",
            "envVars": [{"name": "BIND_X", "valueFrom": {"secretKeyRef": {"name": "database", "key": "password"}}}],
        },
    },
    "spec.bindcarConfig.args": {
        "driver": "bindcar",
        "bindcarConfig": {"image": "internetsystemsconsortium/bind9", "args": ["cat", "/etc/bind/keys/keys.conf"]},
    },
    "spec.image.image": {"image": {"image": "evil.example/named"}},
    "spec.storage.persistentVolumeClaim.claimName": {
        "storage": {"storageType": "persistentVolumeClaim", "persistentVolumeClaim": {"claimName": "database"}}
    },
    "spec.volumes[0].hostPath": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
}


@pytest.mark.parametrize("field", THEFTS)
async def test_what_a_tenant_may_not_mount_or_run_the_operator_does_not_mount_or_run_for_it(
    operator, client, tenant, field
):
    await tenant.apply("Bind9Instance", "reader", {"role": "primary", **THEFTS[field]})
    async with operator.running(namespaces=[tenant.namespace]):
        await eventually(lambda: tenant.is_ready("Bind9Instance", "reader", "NotAllowed"), timeout=120)
        _, _, message = await tenant.ready("Bind9Instance", "reader")
        assert message.startswith(f"{field}: ")
        assert ("dns.allowedImages" if field.endswith("image") else "dns.trustedNamespaces") in message
        assert (await client.list(Deployment, namespace=tenant.namespace)).items == []
        events = await client.list(Event, namespace=tenant.namespace)
        assert any(event.reason == "NotAllowed" for event in events.items)


async def test_a_tenants_cluster_gets_no_foreign_address_through_its_service(operator, client, tenant):
    spec = {"primary": {"replicas": 1, "service": {"spec": {"externalIPs": ["10.96.0.1"]}}}}
    await tenant.apply("Bind9Cluster", "c", spec)
    async with operator.running(namespaces=[tenant.namespace]):
        await eventually(lambda: tenant.is_ready("Bind9Instance", "c-primary-0", "NotAllowed"), timeout=120)
        assert (await client.list(Service, namespace=tenant.namespace)).items == []

        async def told():
            found = await tenant.get("Bind9Cluster", "c")
            return [row.reason for row in (found.status.instances if found.status else None) or ()] == ["NotAllowed"]

        await eventually(told, timeout=120)


async def test_pods_that_run_are_left_as_they_are_when_a_field_is_no_longer_allowed(operator, client, tenant):
    await tenant.apply("Bind9Instance", "old", {"role": "primary", "image": {"image": "own.example/named:1"}})

    async def image():
        found = await client.get(Deployment.KIND, "old", namespace=tenant.namespace)
        return found["spec"]["template"]["spec"]["containers"][0]["image"]

    allowed = {"trusted_namespaces": frozenset({tenant.namespace})}
    async with operator.running(namespaces=[tenant.namespace], **allowed):
        assert await eventually(image, timeout=120) == "own.example/named:1"
    await tenant.apply("Bind9Instance", "old", {"role": "primary", "image": {"image": "own.example/named:2"}})
    async with operator.running(namespaces=[tenant.namespace]):
        await eventually(lambda: tenant.is_ready("Bind9Instance", "old", "NotAllowed"), timeout=120)
        assert await image() == "own.example/named:1"
    async with operator.running(namespaces=[tenant.namespace], allowed_images=("own.example/*",)):
        await eventually(lambda: _is(image, "own.example/named:2"), "it is allowed, and follows", timeout=120)


async def _is(fact, value):
    return await fact() == value
