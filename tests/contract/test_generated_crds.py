"""Every definition that `steersman crds` prints is taken by the API server, and stored as it was printed; every rule in
them accepts what it is to accept and rejects what it is to reject."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from click.testing import CliRunner

import steersman as sm
from steersman.cli.main import cli
from steersman.crd import crd_manifest, drift
from steersman.kube.api.types.apiextensions import CustomResourceDefinition
from steersman.operators import OPERATORS, load_operator
from steersman.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITIONS = CustomResourceDefinition.KIND
NAMES = [kind.KIND.qualified for operator in OPERATORS for kind in load_operator(operator).kinds] + [
    "backups.example.org",
    "databases.example.org",
    "sites.example.org",
    "webapps.example.org",
]


@cache
def printed() -> dict[str, dict[str, Any]]:
    files = [str(path) for path in sorted(EXAMPLES.glob("*.py"))]
    found: dict[str, dict[str, Any]] = {}
    for arguments in (["crds"], ["crds", *files]):
        shown = CliRunner().invoke(cli, [*arguments, "-o", "json"], catch_exceptions=False).stdout
        found |= {item["metadata"]["name"]: item for item in json.loads(shown)["items"]}
    return found


def test_there_are_definitions_of_every_operator_that_has_kinds_and_of_the_examples():
    assert sorted(printed()) == sorted(NAMES)


def in_group_of(namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same in a group of the test's own, because others install the real ones."""
    moved = deepcopy(manifest)
    moved["spec"]["group"] = f"{namespace}.{manifest['spec']['group']}"
    moved["metadata"]["name"] = f"{moved['spec']['names']['plural']}.{moved['spec']['group']}"
    return moved


def with_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """What the server adds to a definition that does not say it."""
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    return {"conversion": {"strategy": "None"}, **spec, "names": names}


@pytest.mark.parametrize("name", NAMES)
async def test_what_is_printed_is_what_is_stored(client, cluster, namespace, name):
    wanted = in_group_of(namespace, printed()[name])
    mine = wanted["metadata"]["name"]
    await client.create(wanted)
    try:

        async def established() -> dict[str, Any] | None:
            live = await client.get(DEFINITIONS, mine)
            states = {
                condition["type"]: condition["status"] for condition in live.get("status", {}).get("conditions") or ()
            }
            return live if states.get("Established") == "True" else None

        live: Any = await eventually(established)
        assert live["spec"] == with_defaults(wanted["spec"])
        assert drift(live, wanted) == []
        assert [
            condition["type"]
            for condition in live["status"]["conditions"]
            if condition["type"] == "NonStructuralSchema"
        ] == []
    finally:
        await client.delete(DEFINITIONS, mine)


def rules(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Where the rules of a schema are, and their messages."""
    yield from ((path, rule["message"]) for rule in schema.get("x-kubernetes-validations") or ())
    for name, child in (schema.get("properties") or {}).items():
        yield from rules(child, f"{path}.{name}" if path else name)
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), dict):
            yield from rules(child, f"{path}[0]" if key == "items" else f"{path}[key]")


SOA = {"primaryNs": "ns.example.org.", "adminEmail": "admin.example.org.", "refresh": 9, "retry": 9, "expire": 99}
ZONE = {"zoneName": "example.org", "soaRecord": {**SOA, "negativeTtl": 9}}
VOLUME, SECRET = {"persistentVolume": {"size": "1Gi"}}, {"secretRef": {"name": "bindy-keys"}}
SERVER = {"role": "primary", "endpoints": [{"address": "192.0.2.1"}]}
SELECTED, UNSELECTED = [{"key": "a", "operator": "In", "values": ["b"]}], [{"key": "a", "operator": "In"}]
# Per part of a spec that several kinds have: the beginning of the message, what is accepted and what is rejected.
SIGNING = [
    ("policy:", {"policy": "mine"}, {"policy": "none"}),
    ("autoGenerate:", {"autoGenerate": True, "keysFrom": VOLUME}, {"autoGenerate": False, "keysFrom": VOLUME}),
    ("keysFrom.secretRef:", {"keysFrom": SECRET, "zskLifetime": "0"}, {"keysFrom": SECRET, "zskLifetime": "30d"}),
]
Case = tuple[str, str, str, Any, Any]  # resource, field, beginning of the message, accepted spec, rejected spec


def nested(path: str, value: Any) -> Any:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def cases() -> Iterator[Case]:
    more: dict[str, Any]
    for resource, base, more in (
        ("clusterbind9providers", "global.dnssec.signing", {}),
        ("bind9clusters", "global.dnssec.signing", {}),
        ("bind9instances", "config.dnssec.signing", {"role": "primary"}),
    ):
        for message, good, bad in SIGNING:
            yield resource, f"spec.{base}", message, {**more, **nested(base, good)}, {**more, **nested(base, bad)}
        keys = [{**more, **nested(f"{base}.keysFrom", value)} for value in (SECRET, {**SECRET, **VOLUME})]
        yield resource, f"spec.{base}.keysFrom", "keysFrom:", *keys
    for resource, field, more in (
        ("clusterbind9providers", "zonesFrom", {}),
        ("bind9clusters", "zonesFrom", {}),
        ("bind9instances", "zonesFrom", {"role": "primary"}),
        ("dnszones", "bind9InstancesFrom", ZONE),
        ("dnszones", "recordsFrom", ZONE),
    ):
        specs = [{**more, field: [{"selector": {"matchExpressions": value}}]} for value in (SELECTED, UNSELECTED)]
        yield resource, f"spec.{field}[0].selector.matchExpressions[0]", "values are required", *specs
    yield "bind9instances", "spec", "rndcKey:", {**SERVER, "clusterRef": "c"}, SERVER
    yield "dnszones", "spec", "zoneName: must be", ZONE, {**ZONE, "zoneName": "192.0.2.1"}
    www = {"name": "www"}
    yield "arecords", "spec", "ipv4Addresses:", {**www, "ipv4Addresses": ["192.0.2.1"]}, www
    yield "aaaarecords", "spec", "ipv6Addresses:", {**www, "ipv6Addresses": ["2001:db8::1"]}, www
    target = {"target": "a.example.org."}
    yield "cnamerecords", "spec", "name:", {**www, **target}, {"name": "@", **target}
    yield "cnamerecords", "spec", "target:", {**www, **target}, {**www, "target": "."}
    null = {**www, "mailServer": "."}
    yield "mxrecords", "spec", "mailServer:", {**null, "priority": 0}, {**null, "priority": 1}
    yield "txtrecords", "spec", "text:", {**www, "text": ["a"]}, www
    yield "nsrecords", "spec", "nameserver:", {**www, "nameserver": "a.example.org."}, {**www, "nameserver": "."}


BACKUP = {"source": "a", "target": "b", "schedule": "0 2 * * *"}
TRANSITIONS = {
    ("dnszones", "spec", "zoneName: cannot"): (ZONE, {**ZONE, "zoneName": "example.net"}),
    ("backups", "spec.source", "cannot be changed"): (BACKUP, {**BACKUP, "source": "c"}),
    ("backups", "spec.target", "cannot be changed"): (BACKUP, {**BACKUP, "target": "c"}),
}


def test_every_rule_has_an_object_that_it_accepts_and_one_that_it_rejects():
    own = {
        (plural, path, message)
        for name, manifest in printed().items()
        if (plural := name.partition(".")[0])
        for path, message in rules(manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    }
    shown = {case[:3] for case in cases()} | TRANSITIONS.keys()
    covered = {rule for rule in own for case in shown if rule[:2] == case[:2] and rule[2].startswith(case[2])}
    assert own - covered == set()
    assert len(own) == len(shown)


@pytest.mark.parametrize("resource", sorted({case[0] for case in [*cases(), *TRANSITIONS]}))
async def test_rules_accept_and_reject_on_both_servers(api, ns, install, resource):
    [printed_as] = [manifest for name, manifest in printed().items() if name.partition(".")[0] == resource]
    manifest = in_group_of(ns, printed_as)
    await install(api, manifest)
    spec = manifest["spec"]
    api_version = f"{spec['group']}/{spec['versions'][0]['name']}"
    path = ns.at(api_version, resource) if spec["scope"] == "Namespaced" else f"/apis/{api_version}/{resource}"
    kind = {"apiVersion": api_version, "kind": spec["names"]["kind"], "metadata": {"name": "x"}}
    for _, field, message, good, bad in (case for case in cases() if case[0] == resource):
        made = await api.post(path, {**kind, "spec": good}, dryRun="All")
        assert made.status == 201, made.body
        rejected = await api.post(path, {**kind, "spec": bad}, dryRun="All")
        assert [cause[:2] for cause in rejected.causes] == [("FieldValueInvalid", field)], rejected.body
        assert message in rejected.causes[0][2]
    for (_, field, message), (old, new) in (item for item in TRANSITIONS.items() if item[0][0] == resource):
        made = await api.post(path, {**kind, "metadata": {"generateName": "x-"}, "spec": old})
        assert (await api.put(f"{path}/{made.name}", made.body)).status == 200
        rejected = await api.put(f"{path}/{made.name}", {**made.body, "spec": new})
        assert [cause[:2] for cause in rejected.causes] == [("FieldValueInvalid", field)], rejected.body
        assert message in rejected.causes[0][2]


class DiskOld(sm.Resource, group="example.org", version="v1beta1", kind="Disk", deprecated="use v1"):
    """A disk, as it was written before."""

    spec: dict[str, Any] | None = None


class Mount(sm.Struct):
    """Where a disk is used."""

    path: str
    user: str = ""


class Disk(sm.Resource, group="example.org", version="v1", short_names=("dk",), categories=("storage",)):
    """A kind with every marker."""

    class Spec(sm.Struct):
        """What to make."""

        volume: Annotated[str, sm.Immutable(), sm.Selectable(), sm.Column("Volume", description="Its name.")]
        id: Annotated[str | None, sm.Format("uuid"), sm.Column("Id", priority=1)] = None
        mode: Literal["fast", "safe"] = "safe"
        hosts: Annotated[list[str] | None, sm.ListSet()] = None
        mounts: Annotated[list[Mount] | None, sm.ListMap("path")] = None
        options: Annotated[dict[str, str] | None, sm.Atomic()] = None
        template: Annotated[dict[str, Any] | None, sm.EmbeddedResource()] = None

    spec: Spec


def renamed(group: str, spec: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": f"{group}/{version}", "kind": "Disk", "metadata": {"name": "x"}, "spec": spec}


async def test_every_marker_does_on_a_server_what_it_says(api, ns, install):
    manifest = in_group_of(ns, crd_manifest(DiskOld, Disk))
    await install(api, manifest)
    group, table = manifest["spec"]["group"], {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    disks = ns.at(f"{group}/v1", "disks")

    async def cause(**spec: Any) -> tuple[str, ...]:
        answer = await api.post(disks, renamed(group, {"volume": "a", **spec}), dryRun="All")
        return next((cause[:2] for cause in answer.causes), ())

    assert await cause(id="x") == ("FieldValueTypeInvalid", "spec.id")
    assert await cause(mode="slow") == ("FieldValueNotSupported", "spec.mode")
    assert await cause(hosts=["a", "a"]) == ("FieldValueDuplicate", "spec.hosts[1]")
    assert await cause(mounts=[{"path": "/a"}, {"path": "/a"}]) == ("FieldValueDuplicate", "spec.mounts[1]")
    assert await cause(template={"apiVersion": "v1"}) == ("FieldValueRequired", "spec.template.kind")
    assert await cause(template={"apiVersion": "v1", "kind": "Pod", "any": 1}) == ()

    made = await api.post(disks, renamed(group, {"volume": "data", "mounts": [{"path": "/a"}]}))
    assert made.status == 201, made.body
    changed = await api.put(f"{disks}/x", {**made.body, "spec": {**made.body["spec"], "volume": "logs"}})
    assert [(cause[0], cause[1]) for cause in changed.causes] == [("FieldValueInvalid", "spec.volume")]
    assert "cannot be changed" in changed.causes[0][2]

    assert (await api.get(disks, fieldSelector="spec.volume=data")).names == ["x"]
    assert (await api.get(disks, fieldSelector="spec.volume=logs")).names == []

    shown = (await api.get(disks, headers=table)).body["columnDefinitions"]
    assert [(row["name"], row["priority"]) for row in shown] == [("Name", 0), ("Volume", 0), ("Id", 1), ("Age", 0)]

    resources = (await api.get(f"/apis/{group}/v1")).body["resources"]
    assert [(row["shortNames"], row["categories"]) for row in resources] == [(["dk"], ["storage"])]

    mine = {"volume": "data", "options": {"a": "1"}, "mounts": [{"path": "/a", "user": "me"}]}
    assert (await api.apply(f"{disks}/x", renamed(group, mine), manager="alpha", force=True)).status == 200
    other = await api.apply(f"{disks}/x", renamed(group, {"mounts": [{"path": "/b"}]}), manager="beta")
    assert [mount["path"] for mount in other.body["spec"]["mounts"]] == ["/a", "/b"]  # single items are owned
    atomic = await api.apply(f"{disks}/x", renamed(group, {"options": {"b": "2"}}), manager="beta")
    assert atomic.status == 409  # the whole map is owned

    old = await api.get(ns.at(f"{group}/v1beta1", "disks"))
    assert (old.warnings, (await api.get(disks)).warnings) == (("use v1",), ())
