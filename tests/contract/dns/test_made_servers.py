"""Servers that the operator makes: their objects on both API servers, and a configuration that named accepts."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import nullcontext

import pytest

from steersman.errors import FormatError
from steersman.kube.api.types import ConfigMap, Deployment, PodDisruptionBudget, Secret, Service
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.dnssec.keys import SHORTEST, seconds_of
from steersman.testing import RequestLog, eventually
from tests.support.dns.zones import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TRIGGER = "bindy.firestoned.io/reconcile-trigger"
SIGNING = {"signing": {"enabled": True, "policy": "bindy-default", "nsec3": True}}


@pytest.fixture
def site(cluster, client, dns_kinds, namespace, named):
    return Site(client, namespace, [])


async def test_a_cluster_becomes_instances_and_they_become_what_pods_need_and_then_nothing_is_written(site, tmp_path):
    config = {"allowQuery": ["any", "!192.0.2.1"], "forwarders": ["192.0.2.9"], "recursion": False, "dnssec": SIGNING}
    spec = {
        "primary": {"replicas": 1, "labels": {"tier": "gold"}, "allowTransfer": ["10.0.0.0/8", "inside"]},
        "secondary": {"replicas": 1},
        "acls": {"inside": ["192.0.2.0/24"]},
        "global": config,
        "storage": {"storageType": "persistentVolumeClaim"},
    }
    spec["primary"]["allowTransfer"] = ["10.0.0.0/8"]
    await site.apply("Bind9Cluster", "c", spec)
    async with site.running() as manager:

        async def made():
            await site.client.get(Deployment, "c-primary-0", namespace=site.namespace)
            return await site.client.get(PodDisruptionBudget, "c-secondary-0", namespace=site.namespace)

        await eventually(made, "the objects of both instances", timeout=120)
        deployment = await site.client.get(Deployment, "c-primary-0", namespace=site.namespace)
        pod = deployment.spec.template.spec
        assert deployment.spec.strategy.type == "Recreate"
        assert {volume.name for volume in pod.volumes} == {
            *("zones", "cache", "config", "keys", "transfer"),
            *("signing", "signing-made"),
        }
        service = await site.client.get(Service, "c-primary-0", namespace=site.namespace)
        assert {port.name for port in service.spec.ports} == {"dns-tcp", "dns-udp"}
        instance = await site.client.get(Bind9Instance, "c-primary-0", namespace=site.namespace)
        assert instance.labels["tier"] == "gold"

        async def reached():  # b24
            found = await site.client.get(Bind9Instance, "c-primary-0", namespace=site.namespace)
            return service.spec.cluster_ip and found.status and found.status.service_address == service.spec.cluster_ip

        await eventually(reached, "its status says where its Service is", timeout=120)
        secret = await site.client.get(Secret, "c-primary-0-rndc-key", namespace=site.namespace)
        shared = await site.client.get(Secret, "bind9-transfer-key", namespace=site.namespace)
        files = (await site.client.get(ConfigMap, "c-primary-0-config", namespace=site.namespace)).data
        _check(files, secret, shared, tmp_path)
        await eventually(lambda: site.is_ready("Bind9Instance", "c-primary-0", "NotReady"), timeout=120)
        await eventually(lambda: site.is_ready("Bind9Cluster", "c", "NotReady"), timeout=120)
        tally = manager.runner("dns-instances").tally
        await eventually(lambda: tally.active == 0 and not len(manager.runner("dns-instances").queue), timeout=120)

        async def quiet():
            with RequestLog(site.client) as log:
                seen = tally.results["requeue_after"]
                patch = {"metadata": {"annotations": {TRIGGER: f"look {seen}"}}}
                await site.client.patch(Bind9Instance, "c-primary-0", patch, namespace=site.namespace)
                await eventually(lambda: tally.results["requeue_after"] > seen, timeout=120)
            assert len(log.writes) == 1, log.writes  # ours
            return True

        # What was under way may still be written; after that, a look writes nothing.
        await eventually(quiet, "a look without a write", timeout=300)
        spec["secondary"]["replicas"] = 0
        await site.apply("Bind9Cluster", "c", spec)
        await eventually(lambda: site.gone("Bind9Instance", "c-secondary-0"), timeout=120)
        await site.delete("Bind9Cluster", "c")
        await eventually(lambda: site.gone("Bind9Cluster", "c"), timeout=120)
        assert await site.gone("Bind9Instance", "c-primary-0")


def _check(files, secret, shared, folder):
    """named-checkconf, with the files where they would be."""
    text = files["named.conf"]
    (folder / "keys.conf").write_bytes(secret.data["keys.conf"])
    (folder / "transfer.key").write_bytes(shared.data["transfer.key"])
    for place in ("zones", "cache"):
        (folder / place).mkdir()
    text = text.replace("/etc/bind/keys/", f"{folder}/").replace("/etc/bind/transfer/", f"{folder}/")
    text = text.replace("/var/lib/bind", f"{folder}/zones").replace("/var/cache/bind", f"{folder}/cache")
    (folder / "named.conf").write_text(text)
    found = _asked(folder / "named.conf")
    assert found.returncode == 0, found.stdout + text


def _asked(file):
    program = str(shutil.which("named-checkconf", path="/usr/bin:/usr/sbin"))
    return subprocess.run([program, str(file)], capture_output=True, text=True, check=False)


LIFETIMES = [  # of which key, how long, and whether named starts with it
    *((key, text, True) for key in SHORTEST for text in ("unlimited", "0", "4w2d", "p30d", "P30W", "P1YT12H", "30D")),
    *((key, str(seconds), True) for key, seconds in SHORTEST.items()),
    *((key, str(seconds - 1), False) for key, seconds in SHORTEST.items()),
    *(("ksk", text, False) for text in ("banana", "UNLIMITED", "P1Y2M3W", "99999999w", "1y", "1h")),
]


@pytest.mark.parametrize(("key", "text", "good"), LIFETIMES)
def test_lifetimes_of_keys_are_taken_exactly_when_named_takes_them(key, text, good, tmp_path):
    lives = {"ksk": "unlimited", "zsk": "unlimited", key: text}
    keys = " ".join(f"{one} lifetime {life} algorithm 13;" for one, life in lives.items())
    (tmp_path / "named.conf").write_text(f'dnssec-policy "x" {{ keys {{ {keys} }}; }};\n')
    assert (_asked(tmp_path / "named.conf").returncode == 0) is good
    with nullcontext() if good else pytest.raises(FormatError):
        seconds_of(text, key)


async def test_what_the_api_server_refuses_of_an_object_is_reported_by_its_requester(site):
    disk = {"storageType": "persistentVolumeClaim", "persistentVolumeClaim": {"size": "big"}}
    await site.apply("Bind9Instance", "disk", {"clusterRef": "", "role": "primary", "storage": disk})
    await site.apply("Bind9Instance", "parent", {"clusterRef": "no such", "role": "primary"})
    await site.apply("Bind9Cluster", "labels", {"primary": {"replicas": 1, "labels": {"no label": "x"}}})
    said = {
        ("Bind9Instance", "disk"): ("ConfigurationInvalid", "spec.storage.persistentVolumeClaim.size"),
        ("Bind9Instance", "parent"): ("ConfigurationInvalid", "no such"),
        ("Bind9Cluster", "labels"): ("ConfigurationInvalid", "no label"),
    }
    async with site.running():
        for (kind, name), (reason, word) in said.items():
            await eventually(lambda k=kind, n=name, r=reason: site.is_ready(k, n, r), f"{name} says it", timeout=120)
            assert word in (await site.ready(kind, name))[2]
