"""Who may call a sidecar, what it needs to start, and what an instance's pods get when they have one."""

from __future__ import annotations

import base64

import pytest

from steersman.cli.dns.sidecar import plan_of, sidecar
from steersman.errors import ConfigError, PlanError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.field_types import SecretRef
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Instance,
    BindcarConfig,
    ClusterSpec,
    RndcKey,
    RoleConfig,
)
from steersman.operators.dns.bind.servers import keys_of, servers_of
from steersman.operators.dns.controllers.cluster import instances_of
from steersman.operators.dns.deploy.manifests import children_of, template_of
from steersman.operators.dns.deploy.tsig_keys import control_keys
from steersman.operators.dns.sidecar.access import AllowedUsers
from steersman.operators.dns.sidecar.process import SidecarConfig
from steersman.operators.dns.wire.tsig import Key

KEY = Key("k", "hmac-sha256", b"s")
SECRET = base64.b64encode(b"secret").decode()
ACCOUNT = "system:serviceaccount:dns:steersman"


def instance(**spec):
    spec = {"role": "primary", **spec}
    return Bind9Instance(metadata=ObjectMeta(name="ns1", namespace="dns"), spec=Bind9Instance.Spec(**spec))


@pytest.mark.parametrize(
    ("allowed", "user", "may"),
    [
        (AllowedUsers(), ACCOUNT, True),
        (AllowedUsers(accounts=frozenset({ACCOUNT})), ACCOUNT, True),
        (AllowedUsers(accounts=frozenset({ACCOUNT})), f"{ACCOUNT}2", False),
        (AllowedUsers(accounts=frozenset({ACCOUNT})), "steersman", False),
        (AllowedUsers(namespaces=frozenset({"dns"})), ACCOUNT, True),
        (AllowedUsers(namespaces=frozenset({"dns"})), "system:serviceaccount:dns2:steersman", False),
        (AllowedUsers(namespaces=frozenset({"dns"})), "dns:steersman", False),
    ],
)
def test_lists_let_in_whom_they_name_and_no_client_with_a_similar_name(allowed, user, may):
    assert allowed.admit(user) is may


EVERY = ("0.0.0.0", 8080)
REVIEW = {"review": True, "listen": EVERY}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"token": "x"}, None),
        ({"open": True}, None),
        ({"token": "x", "listen": EVERY}, None),
        ({**REVIEW, "allowed": AllowedUsers(namespaces=frozenset({"dns"}))}, None),
        ({}, "--token-file"),
        ({"open": True, "listen": EVERY}, "--listen"),
        ({"open": True, "listen": ("::", 8080)}, "--listen"),
        (REVIEW, "--allow-service-account"),
        ({"token": "x", "key": None}, "--key-file"),
    ],
)
def test_nothing_that_is_open_to_the_world_starts(tmp_path, more, field):
    plan = SidecarConfig(**{"zone_dir": tmp_path, "key": KEY, **more})
    if field is None:
        plan.check()
        return
    with pytest.raises(ConfigError) as told:
        plan.check()
    assert told.value.field == field
    with pytest.raises(ConfigError, match="not a directory"):
        SidecarConfig(zone_dir=tmp_path / "none", key=KEY, token="x").check()


def test_the_variables_of_the_original_and_those_of_our_pods_are_understood(tmp_path, monkeypatch):
    for name, value in {
        "BIND_ZONE_DIR": str(tmp_path),
        "API_PORT": "9090",
        "RNDC_SERVER": "127.0.0.1:9530",
        "RNDC_SECRET": SECRET,
        "NSUPDATE_PORT": "5353",
        "NSUPDATE_KEY_NAME": "bindy-update",
        "NSUPDATE_ALGORITHM": "hmac-sha512",
        "NSUPDATE_SECRET": SECRET,
        "BIND_API_TOKEN": "t",
        "BIND_ALLOWED_NAMESPACES": "a, b",
        "KUBERNETES_SERVICE_HOST": "192.0.2.1",
    }.items():
        monkeypatch.setenv(name, value)
    plan = plan_of(sidecar.make_context("sidecar", []).params)
    plan.check()
    assert (plan.zone_dir, plan.listen, plan.control, plan.dns_port) == (
        tmp_path,
        ("0.0.0.0", 9090),
        ("127.0.0.1", 9530),
        5353,
    )
    assert (plan.key.algorithm, plan.signing_key.name, plan.signing_key.algorithm) == (
        "hmac-sha256",
        "bindy-update",
        "hmac-sha512",
    )
    assert plan.allowed.namespaces == {"a", "b"}
    assert "c2Vj" not in repr(plan)
    assert "'t'" not in repr(plan)


def test_pods_stay_as_they_are_unless_the_driver_is_bindcar():
    plain = children_of(instance(), None)
    told = children_of(instance(bindcar_config=BindcarConfig(image="x")), None)
    assert template_of(plain) == template_of(told)
    data, _, _ = control_keys(None, None, 0.0)
    assert "token" not in data
    with pytest.raises(PlanError) as missing:
        children_of(instance(driver="bindcar"), None)
    assert missing.value.field == "spec.bindcarConfig.image"


def test_a_sidecar_in_a_pod_has_zones_keys_and_a_token_and_no_way_to_the_cluster():
    config = BindcarConfig(image="registry.example/steersman:1", args=["dns", "sidecar"], port=9090)
    made = {child["kind"]: child for child in children_of(instance(driver="bindcar", bindcar_config=config), None)}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    named, api = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert (named["name"], api["args"]) == ("bind9", ["dns", "sidecar"])
    paths = {mount["name"]: mount["mountPath"] for mount in named["volumeMounts"]}
    assert all(paths[mount["name"]] == mount["mountPath"] for mount in api["volumeMounts"])  # both say the same name
    values = {row["name"]: row.get("value") or row["valueFrom"]["secretKeyRef"]["key"] for row in api["env"]}
    assert values["BIND_API_TOKEN"] == "token"
    assert values["BIND_ZONE_DIR"] == paths["zones"]
    ports = {port["name"]: port["targetPort"] for port in made["Service"]["spec"]["ports"]}
    assert ports["http"] == 9090


def test_the_token_of_an_instance_is_made_once_and_outlives_its_keys():
    first, notes, _ = control_keys(None, None, 0.0, sidecar=True)
    held = Secret(
        metadata=ObjectMeta(name="ns1-rndc-key", namespace="dns", annotations=notes),
        data={name: value.encode() for name, value in first.items()},
    )
    again, _, fresh = control_keys(held, None, 0.0, sidecar=True)
    assert (again, fresh) == (first, False)
    rotated = control_keys(
        Secret(metadata=held.metadata, data={"token": first["token"].encode()}), None, 0.0, sidecar=True
    )
    assert rotated[0]["token"] == first["token"]
    assert rotated[0]["secret"] != first["secret"]
    shared = Secret(data={"key-name": b"t", "secret": SECRET.encode()})
    secrets = {held.ref: held, type(held.ref)("bind9-transfer-key", "dns"): shared}
    keys = keys_of(instance(driver="bindcar"), None, secrets)
    assert keys.token == first["token"]
    assert keys.token not in repr(keys)


def test_the_token_of_a_sidecar_is_never_sent_as_the_name_of_a_key():
    """The name of a key travels in the clear, and who writes the instance chooses the address."""
    from steersman.operators.dns.api.servers import ServerEndpoint

    ref = SecretRef(name="theirs", key_name_key="token")
    trap = instance(endpoints=[ServerEndpoint(address="192.0.2.66")], rndc_key=RndcKey(secret_ref=ref))
    held = Secret(data={"key-name": b"k", "secret": SECRET.encode(), "token": b"opens-the-sidecar"})
    with pytest.raises(PlanError, match="token must be the name of the key"):
        keys_of(trap, None, {type(trap.ref)("theirs", "dns"): held})


def test_the_driver_and_its_port_come_from_the_instance_and_its_cluster():
    meta = ObjectMeta(name="c", namespace="dns")
    cluster = Bind9Cluster(metadata=meta, spec=ClusterSpec(primary=RoleConfig(replicas=1), driver="bindcar"))
    assert [one.spec.driver for one in instances_of(cluster)] == ["bindcar"]
    keys = keys_of(
        instance(endpoints=[], driver="bindcar"),
        None,
        {
            type(cluster.ref)("ns1-rndc-key", "dns"): Secret(
                data={name: value.encode() for name, value in control_keys(None, None, 0.0)[0].items()}
            ),
            type(cluster.ref)("bind9-transfer-key", "dns"): Secret(data={"key-name": b"t", "secret": SECRET.encode()}),
        },
    )
    from steersman.operators.dns.api.servers import ServerEndpoint

    def port(**spec):
        (server,) = servers_of(instance(endpoints=[ServerEndpoint(address="192.0.2.1")], **spec), None, keys, ())
        return server.api_port

    assert port() == 0
    assert port(bindcar_config=BindcarConfig(port=9090)) == 0
    assert port(driver="bindcar") == 8080
    assert port(driver="bindcar", bindcar_config=BindcarConfig(port=9090)) == 9090
