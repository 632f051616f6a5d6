"""`steersman manifests FILE` and `steersman chart FILE`: servers and Helm accept them, and their rights suffice."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import steersman as sm
from steersman.cli.install.manifests import installation_of
from steersman.cli.main import _run
from steersman.cli.python_files import load_python
from steersman.cli.run import command as run_command
from steersman.kube.api.types.rbac import Role
from steersman.testing import client_as, eventually, running

EXAMPLES = Path(__file__).parents[2] / "examples"
WEBHOOKS = sm.Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)


def manifests(namespace, example, **options):
    options = {"name": None, "image": None, "namespaces": [namespace], **options}
    return installation_of([str(EXAMPLES / example)], namespace=namespace, **options).manifests()


def container_of(objects):
    (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]["containers"][0]


async def test_an_installed_operator_works_with_the_rights_and_the_lease_it_is_given(cluster, client, namespace):
    objects = manifests(namespace, "webapp.py")
    for obj in objects:
        await client.apply(obj)
    example = load_python(str(EXAMPLES / "webapp.py"))
    async with client_as(cluster, "webapp", namespace=namespace) as account:
        elector = sm.LeaderElector(sm.LeaseLock(account, "webapp", namespace))
        async with running(account, example.webapp.within([namespace]), elector=elector):
            metadata = sm.ObjectMeta(name="shop", namespace=namespace)
            await client.create(example.WebApp(metadata=metadata, spec=example.WebApp.Spec(image="shop:1")))
            live = await eventually(lambda: client.get(sm.Deployment, "shop", namespace=namespace))
            assert live.metadata.owner_references[0].kind == "WebApp"


async def test_webhooks_get_their_configuration_and_the_way_to_them(cluster, client, namespace):
    name = f"database-{namespace}"
    objects = manifests(namespace, "database.py", name=name)
    try:
        for obj in objects:
            for webhook in obj.get("webhooks", ()):  # other tests make databases too
                webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            await client.apply(obj)
        (webhook,) = (await client.get(WEBHOOKS, name))["webhooks"]
        service = await client.get(sm.Service, name, namespace=namespace)
        assert webhook["clientConfig"]["service"]["name"] == name
        assert [port.target_port for port in service.spec.ports if port.port == 443] == ["webhooks"]
        container = container_of(objects)
        assert {"name": "webhooks", "containerPort": 9443} in container["ports"]
        run_command.make_context("run", [str(EXAMPLES / "database.py"), *container["args"][2:]])
        assert container["args"][3:5] == ["--lease", f"{namespace}/{name}"]
    finally:
        await client.delete(WEBHOOKS, name)


@pytest.mark.parametrize("example", ["webapp.py", "database.py"])
async def test_helm_makes_the_same_objects_of_the_chart(embedded, helm, tmp_path, example):
    chart, name = tmp_path / "chart", example.removesuffix(".py")
    arguments = ["chart", str(EXAMPLES / example), "-d", str(chart)]
    assert _run(arguments) == 0
    linted = await helm("lint", "--strict", str(chart))
    assert "0 chart(s) failed" in linted.out
    shown = await helm("template", name, str(chart), "--namespace", "ops", "--include-crds")
    rendered = [obj for obj in yaml.safe_load_all(shown.out) if obj]

    def key(obj):
        return obj["kind"], obj["metadata"]["name"]

    expected = [obj for obj in manifests("ops", example, namespaces=[]) if obj["kind"] != "Namespace"]
    checksum = "checksum/source"
    for obj in (*rendered, *expected):
        if obj["kind"] == "Deployment":
            assert obj["spec"]["template"]["metadata"]["annotations"].pop(checksum)
    assert sorted(rendered, key=key) == sorted(expected, key=key)


async def test_helm_installs_the_chart_and_the_release_decides_names_and_replicas(
    embedded, client, namespace, helm, tmp_path
):
    chart = tmp_path / "chart"
    assert _run(["chart", str(EXAMPLES / "webapp.py"), "-d", str(chart)]) == 0
    options = ["--set", "replicas=1,image.tag=7,resources.limits.memory=1Gi"]
    await helm("install", "mine", str(chart), "--namespace", namespace, *options)
    live = await client.get(sm.Deployment, "mine", namespace=namespace)
    assert live.spec.replicas == 1
    (container,) = live.spec.template.spec.containers
    assert container.image == "steersman:7"
    lease = await client.get(Role, "mine-lease", namespace=namespace)
    assert lease.rules[1].resource_names == ["mine"]
