"""The real program with exactly the rights that `steersman rbac` prints: nothing is refused, and no right is unused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from steersman.crd import crd_manifest
from steersman.kube.api.errors import AlreadyExists
from steersman.kube.api.types import Deployment
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.testing import eventually
from steersman.testing.controlplane.identities import kubeconfig

STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = """
operators: [reload]
leaderElect: true
lease: %s/steersman
reload:
  quietPeriod: 0s
  maxDelay: 0s
  budget: {restarts: 2}
  kinds: [Deployment]
  namespaces: [%s]
"""
BY_NAME = "  secretNames: [app]\n  configMapNames: [app]\n"


async def run(*arguments, home):
    process = await asyncio.create_subprocess_exec(
        STEERSMAN, *arguments, env={"PATH": "/usr/bin:/bin", "HOME": str(home)}, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def put(client, namespace, kind, value, name="app"):
    data = {"value": value} if kind == "ConfigMap" else {"value": b64encode(value.encode()).decode()}
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "data": data}
    await client.apply(body, field_manager="test", force=True)


def deployment(namespace, *secrets):
    sources = [{"configMapRef": {"name": "app"}}, *({"secretRef": {"name": name}} for name in ("app", *secrets))]
    container = {"name": "main", "image": "web:1", "envFrom": sources}
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def restarts(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    state = found.annotations.get("steersman.dev/applied")
    return None if state is None else len(json.loads(state).get("r", ()))


async def used_rights(log, user, since):
    """(group, resource with subresource, verb) of everything the user asked for, and what was refused."""
    asked = log.entries(user=user, since=since)
    used = {
        (
            request.group,
            f"{request.resource}/{request.subresource}" if request.subresource else request.resource,
            request.verb,
        )
        for request in asked
        if request.resource
    }
    return used, [f"{request.verb} {request.uri}" for request in asked if request.status in (401, 403)]


async def put_policy(client, namespace):
    for kind in (ReloadPolicy, ClusterReloadPolicy):
        with contextlib.suppress(AlreadyExists):
            await client.create(crd_manifest(kind))
    policy = {"apiVersion": "steersman.dev/v1alpha1", "kind": "ReloadPolicy", "spec": {"wave": 1}}
    meta = {"metadata": {"name": "calm", "namespace": namespace}}
    await eventually(lambda: client.create({**policy, **meta}), "policies are served", timeout=90)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("names", "knows"),
    [("", True), (BY_NAME, True), (BY_NAME, False)],
    ids=["lists", "names", "lists that are refused"],
)
async def test_the_program_runs_with_exactly_the_rights_that_rbac_prints(
    real, client, namespace, tmp_path, names, knows
):
    """`knows`: the program is told the names; otherwise it finds out that it may not list, and asks for them."""
    config = tmp_path / "steersman.yaml"
    config.write_text(CONFIG % (namespace, namespace) + names)
    printed = await run(
        *("rbac", "--config", str(config), "-n", namespace, "--namespaces", namespace, "-o", "json"), home=tmp_path
    )
    manifests = json.loads(printed)["items"]
    for manifest in manifests:
        await client.create(manifest)
    await put_policy(client, namespace)
    kinds = {(resource.kind.group, resource.kind.plural) for resource in await client.api_resources()}
    served = kinds | {(group, f"{plural}/status") for group, plural in kinds}
    token = await client.create_token("steersman", namespace=namespace)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(real.url, real.ca_pem, name="steersman", user={"token": token.token}))
    user = f"system:serviceaccount:{namespace}:steersman"
    since = real.audit.mark()
    await put(client, namespace, "ConfigMap", "0")
    await put(client, namespace, "Secret", "0")
    if names and knows:
        await put(client, namespace, "Secret", "0", name="hidden")
    await client.create(deployment(namespace, *(["hidden"] if names and knows else [])))
    if not knows:
        config.write_text(CONFIG % (namespace, namespace))
    log = (tmp_path / "log").open("wb")
    process = await asyncio.create_subprocess_exec(
        *(STEERSMAN, "run", "--config", str(config), "--kubeconfig", str(path), "--listen", "127.0.0.1:0"),
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=log,
    )
    try:
        await eventually(lambda: _is(restarts(client, namespace), 0), "it is seeded", timeout=90)
        for number in (1, 2):  # the same cause twice: an Event is counted up
            await put(client, namespace, "ConfigMap", str(number))
            await eventually(lambda number=number: _is(restarts(client, namespace), number), timeout=90)
        if not knows:
            _, refused = await used_rights(real.audit, user, since)
            assert refused
            assert all(
                "metadata.name" not in refusal and ("/secrets" in refusal or "/configmaps" in refusal)
                for refusal in refused
            )
            return
        await put(client, namespace, "ConfigMap", "3")  # beyond the budget: who writes it is read
        await put(client, namespace, "Secret", "3")

        granted = {
            (group, resource, verb)
            for manifest in manifests
            for rule in manifest.get("rules", ())
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

        async def all_used():
            used, refused = await used_rights(real.audit, user, since)
            assert not refused
            # a server that streams its lists is not asked for one; older servers are
            # and a right to a kind that this cluster does not have cannot be used
            idle = {rule for rule in granted - used if rule[2] != "list" and rule[:2] in served}
            assert not idle, f"granted and not used: {idle}"
            return True

        await eventually(all_used, "every right is used", timeout=120)
        used, refused = await used_rights(real.audit, user, since)
        assert (used - granted, refused) == (set(), [])
    finally:
        process.kill()
        await process.wait()
        log.close()
        print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails


async def _is(awaitable, value):
    return await awaitable == value
