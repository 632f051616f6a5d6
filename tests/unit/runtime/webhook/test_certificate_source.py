"""Whom webhook configurations are told to trust."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from structlog.testing import capture_logs

from steersman.kube.api.errors import Invalid, NotFound
from steersman.kube.api.patches import apply_json_patch
from steersman.runtime.webhook.certificate_source import ATTEMPTS, CONFIGURATIONS, DEFINITIONS, ManagedCertificates

MUTATING, VALIDATING = CONFIGURATIONS


class Server:
    """A Secret and configurations, as a client finds them."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.held: dict[Any, dict[str, Any]] = {}
        self.patches: list[Any] = []
        self.rivals = 0  # how many patches somebody else is faster than

    async def get(self, kind: Any, _name: str, **_: Any) -> dict[str, Any]:
        found = self.held.get(kind) if kind in (*CONFIGURATIONS, DEFINITIONS) else self.secret
        if found is None:
            raise NotFound("not found", code=404)
        return found

    async def create(self, obj: dict[str, Any], **_: Any) -> None:
        self.secret = obj

    async def patch(self, kind: Any, _name: str, patch: list[dict[str, Any]], **_: Any) -> None:
        self.patches.append(patch)
        if self.rivals:
            self.rivals -= 1
            self.held[kind]["metadata"]["resourceVersion"] += "1"
        if patch[0]["value"] != self.held[kind]["metadata"]["resourceVersion"]:
            raise Invalid("the test failed", code=422)
        self.held[kind] = apply_json_patch(self.held[kind], patch)

    def bundles(self, kind: Any) -> list[str | None]:
        return [webhook["clientConfig"].get("caBundle") for webhook in self.held[kind]["webhooks"]]

    @property
    def trust(self) -> str:
        assert self.secret is not None
        return self.secret["data"]["trust.crt"]


def configuration(*configs: dict[str, Any]) -> dict[str, Any]:
    webhooks = [{"name": f"hook-{n}.example.org", "clientConfig": config} for n, config in enumerate(configs)]
    return {"metadata": {"name": "database", "resourceVersion": "1"}, "webhooks": webhooks}


def service(name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    return {"service": {"name": name, "namespace": namespace, "path": "/x"}, **fields}


@pytest.fixture
def server() -> Server:
    return Server()


def certificates(server: Any, clock: Any, name: str = "database.ops.svc") -> ManagedCertificates:
    return ManagedCertificates(
        server, namespace="ops", secret="hooks", names=[name], configuration="database", clock=clock
    )


@pytest.mark.parametrize(
    ("host", "config"),
    [
        ("database.ops.svc", service("database", "ops")),
        ("Hooks.Example.org", {"url": "https://hooks.example.org:9443/x"}),
        ("::1", {"url": "https://[::1]:9443/x"}),
    ],
)
async def test_webhooks_that_call_us_get_the_ca_bundle(server, clock, host, config):
    server.held[VALIDATING] = configuration(config)
    await certificates(server, clock, host).load()
    assert server.bundles(VALIDATING) == [server.trust]


async def test_webhooks_of_another_program_under_the_same_name_are_left_alone_and_named_once(server, clock):
    theirs = base64.b64encode(b"their authority").decode()
    server.held[MUTATING] = configuration(service("database", "other", caBundle=theirs))
    server.held[VALIDATING] = configuration(
        {"url": "https://elsewhere.example.org/x", "caBundle": theirs}, service("database", "ops")
    )
    ours = certificates(server, clock)
    with capture_logs() as logs:
        await ours.load()
        await ours.load()
    assert server.bundles(MUTATING) == [theirs]
    assert server.bundles(VALIDATING) == [theirs, server.trust]
    assert len(server.patches) == 1
    assert [line["calls"] for line in logs if "is not changed" in line["event"]] == [
        "database.other.svc",
        "elsewhere.example.org",
    ]


async def test_a_replica_that_lost_the_race_reads_again(server, clock):
    server.held[VALIDATING] = configuration(service("database", "ops"))
    server.rivals = 2
    await certificates(server, clock).load()
    assert server.bundles(VALIDATING) == [server.trust]
    assert len(server.patches) == 3


async def test_a_configuration_that_never_rests_is_an_error_and_no_loop(server, clock):
    server.held[VALIDATING] = configuration(service("database", "ops"))
    server.rivals = 100
    with pytest.raises(Invalid):
        await certificates(server, clock).load()
    assert len(server.patches) == ATTEMPTS


def definition(**conversion: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ropes.example.org", "resourceVersion": "1"}, "spec": {"conversion": conversion}}


@pytest.mark.parametrize(
    ("conversion", "injected"),
    [
        ({"strategy": "Webhook", "webhook": {"clientConfig": service("database", "ops")}}, True),
        ({"strategy": "Webhook", "webhook": {"clientConfig": service("database", "other")}}, False),
        ({"strategy": "None"}, False),
    ],
)
async def test_a_definition_whose_conversion_calls_us_gets_the_ca_bundle(server, clock, conversion, injected):
    server.held[DEFINITIONS] = definition(**conversion)
    await ManagedCertificates(
        server,
        namespace="ops",
        secret="hooks",
        names=["database.ops.svc"],
        definitions=["ropes.example.org"],
        clock=clock,
    ).load()
    config = server.held[DEFINITIONS]["spec"]["conversion"].get("webhook", {}).get("clientConfig", {})
    assert config.get("caBundle") == (server.trust if injected else None)
