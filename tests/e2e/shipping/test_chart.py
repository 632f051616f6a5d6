"""The chart with the real Helm: it lints, it renders with every documented value, it installs, upgrades and goes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import steersman as sm
from steersman.cli.config import load_settings
from steersman.cli.install.manifests import InstallOptions
from steersman.kube.api.types.apiextensions import CustomResourceDefinition
from steersman.operators import load_operator
from steersman.testing import eventually

CHART = Path(__file__).parents[3] / "charts" / "steersman"

DEFINITION = "dnszones.bindy.firestoned.io"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VALUES = {
    "defaults": {},
    "every operator": {"operators": ["reload", "toolset", "hourglass", "dns"]},
    "a few namespaces": {"namespaces": ["shop", "stock"], "operators": ["reload", "dns"]},
    "monitoring": {
        "monitoring": {"serviceMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "prom"}}
    },
    "old names": {"monitoring": {"rules": True, "originals": ["shipshape"]}},
    "a pod monitor": {"monitoring": {"podMonitor": True}},
    "closed": {"networkPolicy": {"enabled": True, "apiServer": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}},
    "one replica": {"replicas": 1, "page": {"mode": "off"}},
    "a page by port-forward": {"page": {"mode": "local"}},
    "guarded": {
        "metrics": {"mode": "token"},
        "tls": {"secretName": "steersman-tls"},
        "monitoring": {"serviceMonitor": True},
        "networkPolicy": {"enabled": True},
    },
    "settings": {"config": {"reload": {"quietPeriod": "10s"}}, "logLevel": "debug"},
    "somewhere": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "high"},
    "pinned": {"image": {"repository": "example.org/steersman", "digest": "sha256:" + "0" * 64}},
    "its own account": {"serviceAccount": {"create": False, "name": "mine"}, "rbac": {"create": False}},
    "no definitions": {"crds": {"install": False}, "operators": ["dns"]},
}

BAD = {
    "an unknown operator": ({"operators": ["nix"]}, "/operators/0"),
    "no operator": ({"operators": []}, "/operators"),
    "an unknown value": ({"replica": 3}, "replica"),
    "a namespace that is none": ({"namespaces": ["Shop"]}, "/namespaces/0"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "/image/digest"),
    "both monitors": (
        {"monitoring": {"serviceMonitor": True, "podMonitor": True}},
        "choose serviceMonitor or podMonitor",
    ),
    "a pod monitor without a token": (
        {"monitoring": {"podMonitor": True}, "metrics": {"mode": "token"}},
        "choose serviceMonitor, a PodMonitor cannot send",
    ),
}


@pytest.fixture
def rendered(helm, tmp_path):
    async def render(values, check=True):
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return await helm("template", "demo", str(CHART), "--namespace", "ops", "--values", str(path), check=check)

    return render


async def test_it_lints(real, helm):
    await helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
async def test_it_renders_objects_with_unique_names(real, rendered, values):
    made = [obj for obj in yaml.safe_load_all((await rendered(values)).out) if obj]
    names = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in made]
    assert len(names) == len(set(names))
    assert "Deployment" in {kind for kind, _, _ in names}


@pytest.mark.parametrize(("values", "said"), BAD.values(), ids=BAD.keys())
async def test_values_that_make_no_sense_are_named(real, rendered, values, said):
    output = await rendered(values, check=False)
    assert output.code != 0
    assert said in output.err


async def test_rights_end_at_the_namespaces(real, rendered):
    made = [obj for obj in yaml.safe_load_all((await rendered(VALUES["a few namespaces"])).out) if obj]
    wide = [rule for obj in made if obj["kind"] == "ClusterRole" for rule in obj["rules"]]
    assert not any("secrets" in rule["resources"] or "configmaps" in rule["resources"] for rule in wide)
    roles = {obj["metadata"]["namespace"] for obj in made if obj["kind"] == "Role"}
    assert roles == {"ops", "shop", "stock"}


async def test_metrics_over_tls_with_tokens_are_scraped_that_way_and_probed_without(real, helm, rendered):
    made = objects((await rendered(VALUES["guarded"])).out)
    (endpoint,) = made["ServiceMonitor", "demo-steersman"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["bearerTokenFile"].rpartition("/")[2]) == ("https", "token")
    assert endpoint["tlsConfig"]["serverName"] == "demo-steersman.ops.svc"
    set_values = ["--set", "metrics.mode=token,tls.secretName=certs,page.mode=off"]
    chart = objects((await helm("template", "steersman", str(CHART), "--namespace", "steersman", *set_values)).out)
    options = InstallOptions(
        operators=[(load_operator("reload"), load_settings(None).sections["reload"])],
        settings={},
        image=chart["Deployment", "steersman"]["spec"]["template"]["spec"]["containers"][0]["image"],
        page="off",
        metrics="token",
        tls_secret="certs",
    )
    plain = objects(yaml.safe_dump_all(options.manifests()))
    plain.pop(("Namespace", "steersman"))
    assert chart == plain


async def test_it_installs_upgrades_and_goes_and_its_definitions_stay(real, helm, client, namespace):
    release = f"r{namespace[-6:]}"
    where = ["--namespace", namespace]
    await helm("install", release, str(CHART), "--take-ownership", *where)  # others may have left definitions
    live = await client.get(sm.Deployment, f"{release}-steersman", namespace=namespace)
    assert live.spec.replicas == 2
    await helm(
        "upgrade",
        release,
        str(CHART),
        "--take-ownership",
        *where,
        "--set",
        "replicas=1",
        "--set",
        "operators={reload,dns}",
    )
    live = await client.get(sm.Deployment, f"{release}-steersman", namespace=namespace)
    assert live.spec.replicas == 1
    assert (await client.get(CustomResourceDefinition, DEFINITION)).name == DEFINITION
    await helm("uninstall", release, *where)

    async def gone():
        try:
            await client.get(sm.Deployment, f"{release}-steersman", namespace=namespace)
        except sm.NotFound:
            return True
        return False

    await eventually(gone)
    assert (await client.get(CustomResourceDefinition, DEFINITION)).name == DEFINITION


async def test_plain_manifests_and_the_kustomize_base_are_what_the_chart_makes(real, helm, kubectl):
    chart = objects((await helm("template", "steersman", str(CHART), "--namespace", "steersman")).out)
    plain = objects((CHART.parents[1] / "deploy" / "kustomize" / "base" / "steersman.yaml").read_text())
    kustomized = objects((await kubectl("kustomize", str(CHART.parents[1] / "deploy" / "kustomize" / "base"))).out)
    assert kustomized == plain
    plain.pop(("Namespace", "steersman"))
    deployment = plain["Deployment", "steersman"]["spec"]["template"]["spec"]["containers"][0]
    deployment["image"] = chart["Deployment", "steersman"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert chart == plain


def objects(text):
    """By kind and name, without what only Helm writes."""
    found = {}
    for obj in yaml.safe_load_all(text):
        if not obj:
            continue
        for meta in (obj["metadata"], obj.get("spec", {}).get("template", {}).get("metadata", {})):
            meta.pop("labels", None)
            meta.pop("annotations", None)
        if obj["kind"] == "ConfigMap":
            obj["data"] = {name: yaml.safe_load(value) for name, value in obj["data"].items()}
        if "rules" in obj:
            obj["rules"] = sorted(obj["rules"], key=str)
        found[obj["kind"], obj["metadata"]["name"]] = obj
    return found
