"""Every migration as its report says it, step by step: nobody notices the change of program, nor the way back.

The objects are as the originals leave them. Files come from `steersman migrate from`, the installation from Helm with
these values, and the process runs with the settings, the account and the rights of that installation, no more.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from steersman.kube.api.types import ConfigMap, Deployment, Pod
from steersman.operators.hourglass.api.types import ADOPTED, TEMPLATE_HASH, StoredPerformer
from steersman.testing import eventually
from steersman.testing.controlplane.identities import kubeconfig
from steersman.testing.controlplane.processes import Child
from steersman.testing.programs import Program
from tests.support import hourglass
from tests.support.dns.zones import SOA, Site, serial, values
from tests.support.reload.originals import ORIGINALS, TIMES, put_source, put_workload, restart_workload
from tests.support.toolset.services import service

CHART = Path(__file__).parents[3] / "charts" / "steersman"
STEERSMAN = Path(sys.executable).with_name("steersman")
LONG = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# name -> image, arguments and variables of its Deployment
DEPLOYED = {
    "shipshape": ("example.org/helloworld-controller:1", (), {"WATCH_NAMESPACE": "NS", "APP_SELECTOR": "app=web"}),
    "xing": ("example.org/xing/k8s-deployment-restart-controller:1", ("-r", "1"), {}),
    "reloader": (
        "example.org/stakater/reloader:v1.4.0",
        ("--reload-strategy=env-vars",),
        {"KUBERNETES_NAMESPACE": "NS"},
    ),
    "wave": ("example.org/wave-k8s/wave:v0.5.0", ("--namespaces=NS",), {}),
    "bindy": ("example.org/firestoned/bindy:v0.4.0", (), {}),
    "hourglass": ("example.org/hourglass-operator:1", (), {}),
    "kubernaut": ("example.org/kubernaut/dynamic-toolset:1", (), {}),
}


class Move:
    """One migration in one namespace."""

    def __init__(self, server, client, namespace, helm, kubectl, folder):
        self.server, self.client, self.namespace = server, client, namespace
        self.helm, self.kubectl, self.folder = helm, kubectl, folder
        self.steersman = Program(STEERSMAN, helm.kubeconfig, home=folder)
        self.release = f"m{namespace[-6:]}"
        self.processes = []

    async def deploy(self, original):
        """The original's own Deployment; nothing here makes pods of it."""
        self.original = original
        image, arguments, environ = DEPLOYED[original]
        here = [word.replace("NS", self.namespace) for word in arguments]
        env = [{"name": name, "value": value.replace("NS", self.namespace)} for name, value in environ.items()]
        container = {"name": "main", "image": image, "args": here, "env": env}
        labels = {"app": "the-original"}
        await self.client.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "the-original", "namespace": self.namespace},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            }
        )

    async def report(self):
        """Step 1: the report, and the files."""
        self.values, self.config = str(self.folder / "values.yaml"), str(self.folder / "steersman.yaml")
        files = ("--values", self.values, "--config", self.config)
        said = await self.steersman("migrate", "from", self.original, "-n", self.namespace, *files, "-o", "json")
        self.said = json.loads(said.out)
        assert self.said["found"].startswith(f"deployment/the-original in {self.namespace}")
        return self.said

    async def check(self):
        """What would happen now, as the command says it, and its exit code."""
        said = await self.steersman(
            *("migrate", "check", self.original, "--config", self.config, "-n", self.namespace, "-o", "json"),
            check=False,
        )
        assert said.out, said.err
        return said.code, json.loads(said.out)

    async def follow(self, part, beginning):
        """The step of the report that begins so, literally."""
        step = next(line for line in self.said[part] if line.startswith(beginning))
        return await self.kubectl(*shlex.split(step, comments=True)[1:])

    def start(self, *options, account):
        """A process of ours; gives where it listens."""
        log = self.folder / f"log-{len(self.processes)}"
        home = {"KUBECONFIG": str(account), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        command = [STEERSMAN, "run", *options, "--listen", "127.0.0.1:0", "--log-format", "json"]
        self.processes.append(Child(command, log=log, environment=home))

        def port():
            assert self.processes[-1].exit_code is None, self.processes[-1].tail(20)
            found = re.search(r'"port": (\d+)', log.read_text())
            return found and f"http://127.0.0.1:{found[1]}"

        return eventually(port, "it listens", timeout=LONG)

    async def take_over(self):
        """Stop the original, install ours with the values that were written, and run it as what was installed."""
        await self.follow("steps", f"kubectl -n {self.namespace} scale")
        # other tests have definitions and workloads of their own in this cluster
        ours = ("--take-ownership", "--set", f"namespaces={{{self.namespace}}}")
        await self.helm("install", self.release, str(CHART), "-n", self.namespace, "-f", self.values, *ours)
        name = f"{self.release}-steersman"
        installed = await self.client.get(ConfigMap, name, namespace=self.namespace)
        settings = yaml.safe_load(installed.data["steersman.yaml"])
        (self.folder / "installed.yaml").write_text(yaml.safe_dump(settings))
        token = (await self.client.create_token(name, namespace=self.namespace)).token
        who = kubeconfig(
            self.server.url, self.server.ca_pem, name=name, user={"token": token}, namespace=self.namespace
        )
        (self.folder / "account").write_text(who)
        self.since = self.server.audit.mark()
        return await self.start("--config", str(self.folder / "installed.yaml"), account=self.folder / "account")

    async def go_back(self):
        """Stop ours; nothing it asked for was refused. Then start the original."""
        await self.processes[-1].stop(deadline=60)
        user = f"system:serviceaccount:{self.namespace}:{self.release}-steersman"
        asked = self.server.audit.entries(user=user, since=self.since)
        assert asked
        assert [f"{request.verb} {request.uri}" for request in asked if request.status in (401, 403)] == []
        await self.helm("uninstall", self.release, "-n", self.namespace)
        await self.follow("back", f"kubectl -n {self.namespace} scale")
        theirs = await self.client.get(Deployment, "the-original", namespace=self.namespace)
        assert theirs.spec.replicas == 1


@pytest.fixture
async def move(real, client, namespace, helm, kubectl, tmp_path):
    made = Move(real, client, namespace, helm, kubectl, tmp_path)
    yield made
    for process in made.processes:
        if process.exit_code is None:
            process.kill()
            await process.wait()
        print(process.tail(20))  # noqa: T201  # shown when the test fails


@pytest.mark.parametrize("program", ORIGINALS, ids=lambda one: one.dialect)
async def test_reload_controllers(move, client, namespace, program):
    original = program(namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a")
    await move.deploy(program.dialect)
    await move.report()

    async def web():
        return await client.get(Deployment, "web", namespace=namespace)

    # beside it: both decide the same
    shadow = await move.start(
        *("--config", move.config, "--shadow", "--namespace", namespace), account=move.helm.kubeconfig
    )
    await eventually(
        lambda: counted(shadow, r"reconcile_total\{controller=\"reload-deployments\",result=\"success\"\}")
    )
    await put_source(client, namespace, "b")
    await restart_workload(client, original, "b")

    async def agreed():
        said = await move.steersman("reload", "shadow", "--url", shadow, "-o", "json", check=False)
        assert json.loads(said.out)["counts"] == {"agreed": 1, "only ours": 0, "only theirs": 0}, said.out
        return said.code == 0

    await eventually(agreed, "they agreed", timeout=LONG)
    await move.processes[-1].stop(deadline=60)
    before = await web()
    assert "steersman.dev/applied" not in before.annotations  # a shadow writes nothing

    # in its place: nobody notices
    code, found = await move.check()
    assert (code, found["kept"], found["effects"]) == (0, 1, [])
    assert found["running"] == [f"deployment/the-original in {namespace}"]
    await move.take_over()

    async def adopted():
        return "steersman.dev/applied" in (await web()).annotations

    await eventually(adopted, "it is taken over", timeout=LONG)
    assert (await web()).spec.template == before.spec.template
    await put_source(client, namespace, "c")

    async def restarted():
        found = await web()
        marks = found.spec.template.metadata.annotations or {}
        wanted = {name: value for name, value in original.template("c").items() if name not in TIMES}
        assert marks.items() >= wanted.items()
        assert found.annotations.items() >= original.metadata("c").items()
        main = [{"name": one.name, "value": one.value} for one in found.spec.template.spec.containers[1].env or ()]
        assert main[1:] == original.variables("c")
        return found.spec.template != before.spec.template

    await eventually(restarted, "it restarts, with the marks that the original looks for", timeout=LONG)

    # and back: the original finds everything as it would have left it
    await move.go_back()
    assert await restarted()


async def test_what_would_restart_is_reported_before_anything_does(move, client, namespace):
    original = ORIGINALS[2](namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a")
    await move.deploy(original.dialect)
    await move.report()
    await put_source(client, namespace, "b")  # and the original does nothing about it
    code, found = await move.check()
    assert code == 3
    (effect,) = found["effects"]
    assert (effect["object"], effect["why"]) == ("deployment/web", "configmap/app")


async def test_bindy(move, client, dns_kinds, namespace, named):
    zone = f"{namespace}.example"
    async with named("ns1") as server:
        site = Site(client, namespace, [server])
        rndc(server, "addzone", zone)
        before = await serial(server, zone)
        await site.instances()
        await site.zone(zone)
        await site.record("A", "www", zone=zone, ipv4Addresses=["192.0.2.80"])
        for kind, name in (("DNSZone", zone), ("ARecord", "www")):
            finalizers = {"metadata": {"finalizers": [f"bindy.firestoned.io/{kind.lower()}-finalizer"]}}
            await client.patch(type(await site.get(kind, name)), name, finalizers, namespace=namespace)
        await move.deploy("bindy")
        await move.report()
        code, found = await move.check()
        (unknown,) = found["effects"]
        assert (code, unknown["effect"]) == (3, "cannot be compared on primary-0/0")
        rndc(server, "modzone", zone, f'allow-transfer {{ key "{server.key_name}"; }};')  # as that advises
        code, found = await move.check()
        assert (code, found["kept"], found["effects"]) == (0, 1, [])

        await move.take_over()
        await eventually(lambda: site.is_ready("DNSZone", zone), "it is taken over", timeout=LONG)
        await eventually(lambda: site.is_ready("ARecord", "www"), timeout=LONG)
        assert await serial(server, zone) == before
        assert await values(server, f"www.{zone}", "A") == {"192.0.2.80"}
        await site.record("A", "api", zone=zone, ipv4Addresses=["192.0.2.81"])
        await eventually(lambda: site.answers(f"api.{zone}", "A", {"192.0.2.81"}), timeout=LONG)
        assert await serial(server, zone) > before

        await move.go_back()
        for kind, name in (("DNSZone", zone), ("ARecord", "www"), ("ARecord", "api")):
            held = (await site.get(kind, name)).metadata.finalizers
            assert held == [f"bindy.firestoned.io/{kind.lower()}-finalizer"]  # one that the original knows
        assert await values(server, f"api.{zone}", "A") == {"192.0.2.81"}


async def test_hourglass(move, client, namespace):
    await hourglass.install(client)
    pods = {}
    for name, head in (("seed", False), ("head", True)):
        body = hourglass.performer(name, namespace)
        owner = await eventually(lambda body=body: client.create(body), "the kind is known to all", timeout=LONG)
        pods[name] = await hourglass.upstream_performer(client, owner, "none", head=head)
    owner = await client.create(hourglass.executor("e", namespace))
    await hourglass.upstream_executor(client, owner, "none")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    await client.create({**account, "metadata": {"name": "hourglass-executor", "namespace": namespace}})
    before = await client.get(Deployment, "e", namespace=namespace)
    await move.deploy("hourglass")
    await move.report()
    code, found = await move.check()
    assert (code, found["kept"], found["effects"]) == (0, 3, [])

    await move.take_over()

    async def adopted():
        for name, uid in pods.items():
            pod = await client.get(Pod, f"performer-{name}", namespace=namespace)
            assert TEMPLATE_HASH in pod.annotations
            assert pod.metadata.uid == uid
        return ADOPTED in (await client.get(Deployment, "e", namespace=namespace)).annotations

    await eventually(adopted, "they are taken over", timeout=LONG)

    await move.go_back()
    after = await client.get(Deployment, "e", namespace=namespace)
    assert after.spec.template == before.spec.template
    for name, uid in pods.items():
        pod = await client.get(Pod, f"performer-{name}", namespace=namespace)
        assert (pod.metadata.uid, pod.deleting) == (uid, False)
        assert pod.labels["hourglass.eigenlayer.io/performer"] == name  # what the original selects by
        owner = await client.get(StoredPerformer, name, namespace=namespace)
        assert "hourglass.eigenlayer.io/performer-finalizer" in owner.metadata.finalizers


async def test_kubernaut(move, client, namespace):
    name, skip = "kubernaut-toolset-config", {"toolset-health": "skip"}
    url = f"http://prometheus.{namespace}.svc.cluster.local:9090"
    header = "# Auto-generated, do not edit; use overrides.yaml\n"
    data = {
        "kubernetes-toolset.yaml": toolset("kubernetes", {"incluster": True, "namespaces": ["*"]}, header),
        "prometheus-toolset.yaml": toolset("prometheus", {"url": url, "timeout": "30s"}, header),
        "overrides.yaml": "grafana:   # ours, as we like it\n  enabled: false\n",
    }
    meta = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "dynamic-toolset"}}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    tools = {"namespace": namespace, "annotations": skip}
    await client.create(service("prometheus", labels={"app": "prometheus"}, ports=[9090], **tools))
    await move.deploy("kubernaut")
    await move.report()

    code, found = await move.check()  # it sees the Services of the whole cluster, those of other tests too
    assert found["kept"] == 2
    assert not [effect for effect in found["effects"] if any(key in effect["effect"] for key in data)]
    assert code == (3 if found["effects"] else 0)

    await move.take_over()
    await client.create(service("jaeger-query", labels={"app": "jaeger"}, ports=[16686], **tools))

    async def kept():
        live = (await client.get(ConfigMap, name, namespace=namespace)).data
        assert live["overrides.yaml"] == data["overrides.yaml"]
        for key in ("kubernetes-toolset.yaml", "prometheus-toolset.yaml"):
            assert yaml.safe_load(live[key]) == yaml.safe_load(data[key])
        return set(live) == {*data, "jaeger-toolset.yaml"}

    await eventually(kept, "it is taken over, and goes on", timeout=LONG)

    await move.go_back()
    assert await kept()


async def counted(url, series):
    """Whether a series of a process is above zero."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        found = re.search(rf"{series} ([\d.]+)", await answer.text())
        return found is not None and float(found[1]) > 0


def rndc(server, command, zone, statements=""):
    """A zone as bindy leaves it on a server: a file, and `addzone` with the key that may update it."""
    soa = f"ns1.{zone}. hostmaster.{zone}. (2026010107 {SOA['refresh']} {SOA['retry']} {SOA['expire']} 60)"
    if command == "addzone":
        (server.zones / f"{zone}.zone").write_text(
            f"$TTL 300\n@ IN SOA {soa}\n@ IN NS ns1.{zone}.\nns1 IN A 192.0.2.53\nwww IN A 192.0.2.80\n"
        )
    key = server.folder / "rndc.key"
    key.write_text(f'key "{server.key_name}" {{ algorithm hmac-sha256; secret "{server.secret}"; }};\n')
    update = f'allow-update {{ key "{server.key_name}"; }};'
    words = [command, zone, f'{{ type primary; file "{zone}.zone"; {update} {statements} }};']
    where = ["-s", "127.0.0.1", "-p", str(server.rndc_port), "-k", str(key)]
    subprocess.run(["rndc", *where, *words], check=True, capture_output=True, text=True)


def toolset(kind, config, header):
    return header + yaml.safe_dump({"toolset": kind, "enabled": True, "config": config}, sort_keys=False)
