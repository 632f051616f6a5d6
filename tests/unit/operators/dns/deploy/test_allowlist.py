"""What an instance may mount, read, run and open without an administrator's word; all else is refused by name."""

from __future__ import annotations

import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.config import DnsConfig, DnsOptions
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Config,
    Bind9Instance,
    BindcarConfig,
    ClusterBind9Provider,
    ClusterSpec,
    DnssecConfig,
    Image,
    KeySource,
    PersistentClaim,
    ProviderSpec,
    RoleConfig,
    RoleService,
    ServerEndpoint,
    Signing,
    Storage,
)
from steersman.operators.dns.controllers.cluster import instances_of
from steersman.operators.dns.deploy.allowlist import SERVICE_FIELDS, refusals_of, shown

SIDECAR = "internetsystemsconsortium/bind9:9.20"


def instance(**spec):
    return Bind9Instance(
        metadata=ObjectMeta(name="ns1", namespace="shop"), spec=Bind9Instance.Spec(role="primary", **spec)
    )


def sidecar(**config):
    return {"driver": "bindcar", "bindcar_config": BindcarConfig(**{"image": SIDECAR, **config})}


def storage(claim):
    wanted = PersistentClaim(claim_name=claim)
    return Storage(storage_type="persistentVolumeClaim", persistent_volume_claim=wanted)


def signing(**volume):
    made = Signing(enabled=True, keys_from=KeySource(persistent_volume=volume))
    return Bind9Config(dnssec=DnssecConfig(signing=made))


def environment(name="BIND_X", **source):
    return [{"name": name, **source}]


def secret(name):
    return {"valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}


def refused(one, cluster=None, provider=None, **options):
    return [row.field for row in refusals_of(one, cluster, provider, DnsOptions(**options))]


ALLOWED = {
    "nothing": {},
    "an image of the list, whatever its tag": {
        "image": Image(image="docker.io/internetsystemsconsortium/bind9:9.20@sha256:00")
    },
    "a claim that is made for it": {"storage": storage("")},
    "a claim for name servers": {"storage": storage("bindy-zones")},
    "a new claim for keys": {"config": signing(storageClassName="fast", resources={"requests": {"storage": "1Gi"}})},
    "volumes": {
        "volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "secret": {"secretName": "bindy-tls", "items": []}},
            {"name": "c", "configMap": {"name": "bindy-files"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "bindy-logs"}},
        ]
    },
    "our sidecar": sidecar(args=["dns", "sidecar"], env_vars=environment(value="x")),
    "a Secret for name servers": sidecar(env_vars=environment(**secret("bindy-x"))),
    "facts of its own pod": sidecar(env_vars=environment(valueFrom={"fieldRef": {"fieldPath": "status.podIP"}})),
    "a sidecar that is not used": {"bindcar_config": BindcarConfig(image="evil")},
    "a server that exists": {"endpoints": [ServerEndpoint(address="192.0.2.1")], "image": Image(image="evil")},
}
REFUSED = {
    "spec.image.image": {"image": Image(image="evil.example/internetsystemsconsortium/bind9")},
    "spec.storage.persistentVolumeClaim.claimName": {"storage": storage("database")},
    "spec.config.dnssec.signing.keysFrom.persistentVolume.volumeName": {"config": signing(volumeName="pv-of-another")},
    "spec.config.dnssec.signing.keysFrom.persistentVolume.dataSource": {"config": signing(dataSource={"name": "x"})},
    "spec.volumes[0].secret.secretName": {"volumes": [{"name": "v", "secret": {"secretName": "db"}}]},
    "spec.volumes[0].configMap.name": {"volumes": [{"name": "v", "configMap": {"name": "x"}}]},
    "spec.volumes[0].persistentVolumeClaim.claimName": {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]
    },
    "spec.bindcarConfig.image": sidecar(image="evil"),
    "spec.bindcarConfig.args": sidecar(args=["sh", "-c", "cat /etc/bind/keys/*"]),
    "spec.bindcarConfig.envVars[0].valueFrom.secretKeyRef.name": sidecar(env_vars=environment(**secret("db"))),
    "spec.bindcarConfig.envVars[0].valueFrom.configMapKeyRef.name": sidecar(
        env_vars=environment(valueFrom={"configMapKeyRef": {"name": "x", "key": "k"}})
    ),
    "spec.bindcarConfig.envVars[0].valueFrom.fileKeyRef": sidecar(env_vars=environment(valueFrom={"fileKeyRef": {}})),
    "spec.bindcarConfig.envVars[0].name": sidecar(env_vars=environment("LD_PRELOAD", value="x")),
}


@pytest.mark.parametrize("spec", ALLOWED.values(), ids=ALLOWED)
def test_what_is_on_the_list_needs_no_approval(spec):
    assert refused(instance(**spec)) == []


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_on_the_list_is_refused_by_name_with_the_setting_that_allows_it(field):
    one = instance(**REFUSED[field])
    assert refused(one) == [field]
    setting = "dns.allowedImages" if field.endswith("image") else "dns.trustedNamespaces"
    assert setting in shown(refusals_of(one, None, None, DnsOptions()))
    assert refused(one, trusted_namespaces=frozenset({"other"})) == [field]
    for trusted in ("shop", "*"):
        assert refused(one, trusted_namespaces=frozenset({trusted})) == []


def test_a_claim_that_is_named_like_one_of_ours_is_not_mounted_unseen():
    """Only a claim that is left to the operator is checked for its owner; one that is named is mounted as it is."""
    assert refused(instance(storage=storage("ns1-zones"))) == ["spec.storage.persistentVolumeClaim.claimName"]


@pytest.mark.parametrize(
    "kind",
    [
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "csi",
        "downwardAPI",
        "ephemeral",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "glusterfs",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "projected",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
        "somethingOfTomorrow",
    ],
)
def test_a_kind_of_volume_that_is_not_mentioned_is_refused(kind):
    assert refused(instance(volumes=[{"name": "v", kind: {}}])) == [f"spec.volumes[0].{kind}"]


def served(annotations=None, **spec):
    role = RoleConfig(replicas=1, service=RoleService(spec=spec or None, annotations=annotations))
    meta = ObjectMeta(name="c", namespace="shop")
    return Bind9Cluster(metadata=meta, spec=ClusterSpec(primary=role))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("externalIPs", ["10.0.0.1"]),
        ("loadBalancerIP", "10.0.0.1"),
        ("loadBalancerClass", "other"),
        ("externalName", "bank.example"),
        ("type", "ExternalName"),
        ("clusterIP", "10.96.0.10"),
        ("clusterIPs", ["10.96.0.10"]),
        ("somethingOfTomorrow", 1),
    ],
)
def test_a_service_takes_no_address_that_may_be_anothers(field, value):
    parent = served(**{field: value})
    (one,) = instances_of(parent)
    assert refused(one, parent) == [f"Bind9Cluster c spec.primary.service.spec.{field}"]


def test_a_service_gives_no_orders_to_other_controllers_and_may_be_reached_from_outside():
    parent = served({"external-dns.alpha.kubernetes.io/hostname": "bank.example"}, type="LoadBalancer")
    (one,) = instances_of(parent)
    field = "Bind9Cluster c spec.primary.service.annotations.external-dns.alpha.kubernetes.io/hostname"
    assert refused(one, parent) == [field]
    assert refused(one, served(type="NodePort", clusterIP="None", **dict.fromkeys(SERVICE_FIELDS, 1))) == []


def test_what_a_provider_says_is_an_administrators_setting_and_what_a_cluster_says_is_not():
    role = RoleConfig(replicas=1, service=RoleService(spec={"loadBalancerIP": "192.0.2.1"}))
    fields = {
        "primary": role,
        "image": Image(image="registry.example/named"),
        "global_": Bind9Config(bindcar_config=BindcarConfig(image="registry.example/car", args=["x"])),
        "driver": "bindcar",
    }
    provider = ClusterBind9Provider(metadata=ObjectMeta(name="c"), spec=ProviderSpec(namespace="shop", **fields))
    parent = Bind9Cluster(metadata=ObjectMeta(name="c", namespace="shop"), spec=ClusterSpec(**fields))
    (one,) = instances_of(parent)
    assert refused(one, parent, provider) == []
    assert len(refused(one, parent)) == 4
    parent.spec.image = Image(image="evil")
    assert refused(one, parent, provider) == ["Bind9Cluster c spec.image.image"]
    one.spec.image = Image(image="evil")
    assert refused(one, parent, provider) == ["spec.image.image"]


def test_images_are_named_without_tags_one_by_one_or_by_what_they_begin_with():
    one = instance(image=Image(image="registry.example:5000/dns/named:9.20"))
    for entry, wanted in {
        "registry.example:5000/dns/named": [],
        "registry.example:5000/dns/*": [],
        "*": [],
        "registry.example:5000/d/*": ["spec.image.image"],
        "dns/named": ["spec.image.image"],
    }.items():
        assert refused(one, allowed_images=(entry,)) == wanted, entry
    options = DnsConfig(allowed_images=("a/b",), trusted_namespaces=("dns",)).options()
    assert (options.allowed_images, options.trusted_namespaces) == (("a/b",), {"dns"})
