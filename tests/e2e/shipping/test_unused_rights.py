"""dns, hourglass and toolset with exactly the rights that `steersman rbac` prints: none is refused, and none is idle.

The reload operator has the same test among its own. A right that this cannot show to be needed is named below with
the reason it is there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.kube.api.types import ConfigMap, Deployment
from steersman.operators import load_operator
from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
from steersman.operators.toolset.api.crd import ToolsetConfig
from steersman.testing import eventually
from steersman.testing.controlplane.identities import kubeconfig
from steersman.testing.controlplane.processes import Child
from steersman.testing.programs import Program
from tests.support import hourglass
from tests.support.dns.zones import Site
from tests.support.toolset.services import service

STEERSMAN = Path(sys.executable).with_name("steersman")
LONG = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ADMISSION = "asked by admission, where OwnerReferencesPermissionEnforcement guards blockOwnerDeletion"
REPEATED = "an Event that comes again is counted up"
GRANTED = "in the Role of executors, and nobody may grant what they do not have"
WIDE = "watched when the whole cluster is; here it is one namespace, so as not to disturb others"
# (resource, verb) -> why it cannot be seen in the audit log of these stories
UNSEEN = {
    "dns": {
        ("pods/status", "patch"): "a readiness gate: needs servers in pods (test_dns_pods.py)",
        ("bind9clusters/finalizers", "update"): ADMISSION,
        ("bind9instances/finalizers", "update"): ADMISSION,
        ("clusterbind9providers/finalizers", "update"): ADMISSION,
        ("events", "create"): "of drift and of new keys, of which there are none here (test_zones_served.py)",
        ("events", "patch"): REPEATED,
    },
    "hourglass": {
        ("hourglassexecutors/finalizers", "update"): ADMISSION,
        ("performers/finalizers", "update"): ADMISSION,
        ("performers", "get"): GRANTED,
        ("performers", "create"): GRANTED,
        ("performers", "update"): GRANTED,
        ("performers", "delete"): GRANTED,
        ("services", "get"): GRANTED,
        ("runtimeclasses", "watch"): WIDE,
        ("priorityclasses", "watch"): WIDE,
        ("pods", "get"): "asked when somebody else's pod has the name (test_hourglass_crashes.py)",
        ("endpointslices", "list"): "BlueGreen asks whether old pods are drained (test_performers_at_work.py)",
        ("events", "patch"): REPEATED,
    },
    "toolset": {
        ("configmaps", "delete"): "a part that is no longer needed goes (test_toolset_on_a_server.py)",
        ("events", "patch"): REPEATED,
    },
}


class Stage:
    """One namespace, and the operator in it with its own account."""

    def __init__(self, server, client, namespace, helm, folder):
        self.server, self.client, self.namespace, self.folder = server, client, namespace, folder
        self.steersman = Program(STEERSMAN, helm.kubeconfig, home=folder)
        self.program = None

    async def start(self, operator, **section):
        """Grant what is printed for these settings, and run with it; gives what was granted."""
        for kind in load_operator(operator).kinds:
            await self.client.apply(crd_manifest(kind), field_manager="test", force=True)
        config = self.folder / "steersman.yaml"
        settings = {"operators": [operator], "namespaces": [self.namespace], operator: section}
        config.write_text(yaml.safe_dump(settings))
        where = ("-n", self.namespace, "--namespaces", self.namespace, "--lease", "")
        printed = await self.steersman("rbac", "--config", str(config), *where, "-o", "json")
        manifests = json.loads(printed.out)["items"]
        for manifest in manifests:
            await self.client.create(manifest)
        token = (await self.client.create_token("steersman", namespace=self.namespace)).token
        account = self.folder / "account"
        who = {"token": token}
        account.write_text(kubeconfig(self.server.url, self.server.ca_pem, name="steersman", user=who))
        self.token, self.since = token, self.server.audit.mark()
        self.program = Child(
            [STEERSMAN, "run", "--config", str(config), "--listen", "127.0.0.1:0", "--log-format", "json"],
            log=self.folder / "log",
            environment={"KUBECONFIG": str(account), "PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )
        rules = [rule for manifest in manifests for rule in manifest.get("rules", ())]
        return {
            (resource, verb)
            for rule in rules
            for group in rule["apiGroups"]
            for resource in (f"{name}.{group}" if group == "events.k8s.io" else name for name in rule["resources"])
            for verb in rule["verbs"]
        }

    def url(self):
        found = re.search(r'"port": (\d+)', (self.folder / "log").read_text())
        return found and f"http://127.0.0.1:{found[1]}"

    def idle(self, operator, granted):
        """What was granted and not used, once nothing was refused."""
        asked = self.server.audit.entries(user=f"system:serviceaccount:{self.namespace}:steersman", since=self.since)
        assert [f"{request.verb} {request.uri}" for request in asked if request.status in (401, 403)] == []
        used = {
            (
                "/".join(filter(None, (request.resource, request.subresource)))
                + (f".{request.group}" if "events.k" in request.group else ""),
                request.verb,
            )
            for request in asked
        }
        # an apply that makes an object is a patch in the log, and needs the right to create
        used |= {(request.resource, "create") for request in asked if request.verb == "patch" and request.status == 201}
        # a server that streams its lists is not asked for one; older servers are
        return sorted(rule for rule in granted - used - UNSEEN[operator].keys() if rule[1] != "list")

    async def all_used(self, operator, granted):
        async def none_idle():
            assert self.program.exit_code is None, self.program.tail(20)
            assert not (idle := self.idle(operator, granted)), f"granted and not used: {idle}"
            return True

        await eventually(none_idle, timeout=LONG)
        assert granted >= UNSEEN[operator].keys()


@pytest.fixture
async def stage(real, client, namespace, helm, tmp_path):
    made = Stage(real, client, namespace, helm, tmp_path)
    yield made
    if made.program is not None:
        await made.program.stop(deadline=60)
        print(made.program.tail(30))  # noqa: T201  # shown when the test fails


async def test_dns(stage, client, dns_kinds, namespace, named):
    granted = await stage.start("dns", driftPeriod="2s", notReadyPeriod="1s")
    async with named("ns1") as server:
        site = Site(client, namespace, [server])
        await site.instances()
        zone = f"{namespace}.example"
        await site.zone(zone)
        records = {
            "A": {"ipv4Addresses": ["192.0.2.1"]},
            "AAAA": {"ipv6Addresses": ["2001:db8::1"]},
            "CNAME": {"target": f"a.{zone}."},
            "TXT": {"text": ["x"]},
            "MX": {"priority": 10, "mailServer": f"a.{zone}."},
            "NS": {"nameserver": "ns.example.net."},
            "SRV": {"priority": 1, "weight": 1, "port": 80, "target": f"a.{zone}."},
            "CAA": {"flags": 0, "tag": "issue", "value": "ca.example"},
        }
        for kind, spec in records.items():
            owner = "_x._tcp" if kind == "SRV" else None
            await site.record(kind, kind.lower(), zone=zone, owner=owner, **spec)
        for kind in records:
            await eventually(lambda kind=kind: site.is_ready(f"{kind}Record", kind.lower()), kind, timeout=LONG)
        made = {
            "primary": {"replicas": 1},
            "secondary": {"replicas": 1},
            "storage": {"storageType": "persistentVolumeClaim"},
        }
        await site.apply("Bind9Cluster", "c", made)
        await site.apply("ClusterBind9Provider", namespace, {"namespace": namespace, "primary": {"replicas": 1}})
        await eventually(lambda: client.get(Deployment, "c-secondary-0", namespace=namespace), timeout=LONG)
        await eventually(lambda: client.get(Deployment, f"{namespace}-primary-0", namespace=namespace), timeout=LONG)
        await site.apply("Bind9Cluster", "c", {**made, "secondary": {"replicas": 0}})  # one instance goes
        await client.delete(type(await site.get("ClusterBind9Provider", namespace)), namespace)
        for kind in records:
            await site.delete(f"{kind}Record", kind.lower())
        await site.delete("DNSZone", zone)
        await eventually(lambda: site.gone("DNSZone", zone), timeout=LONG)
        await stage.all_used("dns", granted)


async def test_hourglass(stage, client, namespace):
    await hourglass.install(client)
    budget = {"disruptionBudget": {"minAvailable": 1}}
    body = hourglass.performer("p", namespace, replicas=2, networkPolicy="ExecutorOnly", **budget)
    owner = await eventually(lambda: client.create(body), "the kind is known to all", timeout=LONG)
    await hourglass.upstream_performer(client, owner, "none", head=True)  # a pod to adopt
    await client.create(hourglass.performer("q", namespace))
    left = {"name": "f-config", "namespace": namespace, "labels": {"hourglass.eigenlayer.io/name": "f"}}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": left})  # of an earlier executor, to adopt
    granted = await stage.start("hourglass")
    for name in ("e", "f"):
        await client.create(hourglass.executor(name, namespace, **budget))
    for kind, name in ((StoredPerformer, "p"), (StoredExecutor, "e"), (StoredExecutor, "f")):

        async def told(kind=kind, name=name):
            return (await client.get(kind, name, namespace=namespace)).status  # in which it says what it made

        await eventually(told, timeout=LONG)
    await client.delete(StoredPerformer, "p", namespace=namespace)
    for name in ("e", "f"):  # with the last of them goes the account they share
        await client.delete(StoredExecutor, name, namespace=namespace)
    await stage.all_used("hourglass", granted)


async def test_toolset(stage, client, namespace):
    granted = await stage.start("toolset", namespace=namespace)
    name, skip = "kubernaut-toolset-config", {"toolset-health": "skip"}
    await client.create(
        service("grafana", namespace=namespace, labels={"app": "grafana"}, annotations=skip, ports=[80])
    )

    async def data():
        return (await client.get(ConfigMap, name, namespace=namespace)).data

    async def written():
        return "grafana-toolset.yaml" in await data()

    await eventually(written, timeout=LONG)
    url = await eventually(stage.url, timeout=LONG)
    asked = {"Authorization": f"Bearer {stage.token}"}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/services", headers=asked) as answer:
        assert answer.status == 403  # its own account may not ask it, but it was reviewed
    await client.patch(ConfigMap, name, {"data": {"overrides.yaml": "x: {}\n"}}, namespace=namespace)
    meta = {"name": "mine", "namespace": namespace}
    await client.apply({"apiVersion": "steersman.dev/v1alpha1", "kind": "ToolsetConfig", "metadata": meta, "spec": {}})
    await stage.all_used("toolset", granted)


async def test_a_toolsetconfig_may_name_another_configmap_with_more_than_eight_parts_where_the_settings_say_so(
    stage, client, namespace
):
    settings = {"configMaps": ["tools"], "maxParts": 12, "maxBytes": 5000, "healthCheck": {"enabled": False}}
    large = {"labels": {"app": "prometheus"}, "annotations": {"toolset-path": "/" + "x" * 1500}, "ports": [9090]}
    await stage.start("toolset", namespace=namespace, **settings)
    for number in range(10):
        await client.create(service(f"p{number:02}", namespace=namespace, **large))
    for name in ("tools", "others"):
        meta = {"name": name, "namespace": namespace}
        spec = {"configMap": {"name": name}}
        await client.apply(
            {"apiVersion": "steersman.dev/v1alpha1", "kind": "ToolsetConfig", "metadata": meta, "spec": spec}
        )

    async def split():
        data = (await client.get(ConfigMap, "tools", namespace=namespace)).data or {}
        rows = yaml.safe_load(data["index.yaml"])["parts"] if "index.yaml" in data else []
        parts = [(await client.get(ConfigMap, row["configMap"], namespace=namespace)).data for row in rows]
        return len(rows) > 8 and len({key for part in parts for key in part if key.startswith("prometheus")}) == 10

    await eventually(split, "all services are in more than eight parts", timeout=LONG)

    async def refused():
        status = (await client.get(ToolsetConfig, "others", namespace=namespace)).status
        return "toolset.configMaps" in status.conditions[0].message and status.phase == "Failing"

    await eventually(refused, "the name without rights is refused with the way out", timeout=LONG)
    url = await eventually(stage.url, timeout=LONG)

    async def ready():
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            return answer.status == 200

    # once the parts that were just made are watched: one name without rights is not a process that cannot work
    await eventually(ready, "the process is ready", timeout=LONG)
