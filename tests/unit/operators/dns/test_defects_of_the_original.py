"""What the original gets wrong and what name servers make difficult, as far as pure functions can show it.

The number of each defect (b) and trap (t) is in the name of its test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from steersman.errors import PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.config import DnsOptions
from steersman.operators.dns.api.field_types import SecretRef
from steersman.operators.dns.api.records import CAARecord, MXRecord, TXTRecord
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Config,
    Bind9Instance,
    ClusterSpec,
    ConfigMapRefs,
    DnssecConfig,
    Image,
    RndcKey,
    RoleConfig,
    ServerEndpoint,
    Signing,
    Storage,
)
from steersman.operators.dns.api.zone import DNSZone, NameServer, SOARecord, ZoneStatus
from steersman.operators.dns.bind.named_conf import CONTROL_KEY, named_conf
from steersman.operators.dns.bind.servers import Keys, Server, allowed_transfers, key_ref_of, keys_of, servers_of
from steersman.operators.dns.bind.zone_statements import primary_config, same_config, secondary_config
from steersman.operators.dns.controllers.cluster import instances_of
from steersman.operators.dns.controllers.setup import KINDS, parts_of, rules_of
from steersman.operators.dns.deploy.manifests import children_of
from steersman.operators.dns.deploy.tsig_keys import control_keys, transfer_key
from steersman.operators.dns.dnssec.signer import signing_conditions
from steersman.operators.dns.inspect.offline import ZoneInspection
from steersman.operators.dns.wire.messages import RRsetChange, update_parts
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import CNAME, MX, NS, TXT, A, Contribution, RRset, contribution_of, value_text
from steersman.operators.dns.zone.selection import InstanceSelector
from steersman.operators.dns.zone.soa import own_contributions
from tests.support.dns.named import Named

ORG = name_of("example.org")
KEY = Key("k", "hmac-sha256", b"secret")
KEYS = Keys(KEY, KEY, KEY)
ROOT = Path(__file__).parents[4]


def meta(name, **more):
    return ObjectMeta(name=name, namespace="shop", uid=name, generation=1, **more)


def instance(name="i", role="primary", **spec):
    return Bind9Instance(metadata=meta(name), spec=Bind9Instance.Spec(role=role, **spec))


def cluster(**spec):
    return Bind9Cluster(metadata=meta("c"), spec=ClusterSpec(**spec))


def zone(**spec):
    soa = SOARecord(
        primary_ns="ns1.example.org.", admin_email="h@example.org", refresh=1, retry=1, expire=1, negative_ttl=1
    )
    return DNSZone(metadata=meta("z"), spec=DNSZone.Spec(**{"zone_name": "example.org", "soa_record": soa, **spec}))


def server(address="10.0.0.1", role="primary", name="0"):
    return Server(NamespacedName("i", "shop"), name, role, address, 53, 953, KEYS)


def deployment(one, parent=None):
    return next(child for child in children_of(one, parent) if child["kind"] == "Deployment")


def controllers():
    return parts_of(DnsOptions(), registry=CollectorRegistry()).controllers


def watched(controller, kind):
    made = {controller.name: controller for controller in controllers()}[controller]
    return [row for row in made.watched if row.kind == kind.KIND]


def test_b1_what_a_controller_writes_into_a_status_does_not_wake_it_again():
    before = zone()
    after = msgspec.structs.replace(before, status=ZoneStatus(serial=7))
    assert not any(row.when is None or row.when(before, after) for row in watched("dns-zones", DNSZone))
    renewed = msgspec.structs.replace(before, metadata=meta("z", labels={"a": "b"}))
    assert any(row.when(before, renewed) for row in watched("dns-zones", DNSZone))


def test_b2_a_zone_is_served_by_the_cluster_it_refers_to():
    parent = cluster()
    mine, other = instance("mine", cluster_ref="c"), instance("other", cluster_ref="d")
    cache = ZoneInspection({Bind9Instance: [mine, other], Bind9Cluster: [parent]})._cache
    choice = InstanceSelector(cache).of(zone(cluster_ref="c"))
    assert [chosen.name for chosen in choice.instances] == ["mine"]
    assert choice.methods == ("clusterRef",)


def test_b5_deleting_one_of_two_resources_at_a_name_leaves_the_other():
    draft = CompiledZone(ORG)
    for number in (1, 2):
        spec = MXRecord.Spec(name="@", priority=number, mail_server="mx.example.net.")
        draft.put_record(MXRecord(metadata=meta(f"m{number}"), spec=spec), f"mxrecord/m{number}")
    draft.settle()
    draft.drop("mxrecord/m1")
    draft.settle()
    assert {value_text(MX, value) for value in draft.rrsets[b"", MX].values} == {"2 mx.example.net."}


def test_b8_an_address_that_becomes_an_alias_is_deleted_before_the_alias_is_added_in_one_message():
    www = owner_of("www", ORG)
    changes = [
        RRsetChange((www, CNAME), None, RRset(60, frozenset({name_of("x.example.net")}))),
        RRsetChange((www, A), RRset(60, frozenset({bytes(4)})), None),
    ]
    removed, added = update_parts(changes)
    assert removed.startswith(www)
    assert int.from_bytes(removed[len(www) + 2 :][:2]) == A
    assert int.from_bytes(added[len(www) + 2 :][:2]) == CNAME


def test_b15_version_image_volumes_and_configuration_roll_the_pods():
    plain = deployment(instance())["spec"]["template"]
    others = [
        instance(version="9.20"),
        instance(image=Image(image="example.org/bind9:1", image_pull_secrets=["pull"])),
        instance(volumes=[{"name": "v", "emptyDir": {}}], volume_mounts=[{"name": "v", "mountPath": "/data/v"}]),
        instance(config=Bind9Config(recursion=True)),
    ]
    assert all(deployment(other)["spec"]["template"] != plain for other in others)


def test_b16_configuration_of_an_instance_and_of_its_role_counts_in_a_cluster():
    parent = cluster(primary=RoleConfig(allow_transfer=["10.0.0.0/8"]), global_=Bind9Config(forwarders=["192.0.2.9"]))
    one = instance(cluster_ref="c", config=Bind9Config(recursion=True))
    text = named_conf(one, parent)["named.conf"]
    assert "recursion yes;" in text
    assert "192.0.2.9" in text
    assert "allow-transfer { 10.0.0.0/8; }" in text
    assert allowed_transfers(instance(cluster_ref="c", config=Bind9Config(allow_transfer=[])), parent) == []


def test_b17_every_configuration_that_a_pod_mounts_exists():
    parent = cluster(config_map_refs=ConfigMapRefs(named_conf_zones="theirs"))
    made = {child["metadata"]["name"] for child in children_of(instance(), parent) if child["kind"] == "ConfigMap"}
    volumes = deployment(instance(), parent)["spec"]["template"]["spec"]["volumes"]
    sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources", [volume])]
    assert {source["configMap"]["name"] for source in sources if "configMap" in source} == made | {"theirs"}


def secret(data, name):
    return Secret(metadata=meta(name), data={field: text.encode() for field, text in data.items()})


def test_b18_a_key_that_a_user_manages_is_the_one_that_servers_and_operator_use():
    one = instance(rndc_key=RndcKey(secret_ref=SecretRef(name="theirs")))
    assert key_ref_of(one, None).name == "theirs"
    given = Key("their-key", "hmac-sha512", b"theirs")
    data, _, _ = control_keys(None, one.spec.rndc_key, 0.0, given=given, make=lambda: "b3Vycw==")
    secrets = {
        NamespacedName("i-rndc-key", "shop"): secret(data, "i-rndc-key"),
        NamespacedName("bind9-transfer-key", "shop"): secret(transfer_key(None), "bind9-transfer-key"),
    }
    assert keys_of(one, None, secrets).control == given
    assert f'key "{CONTROL_KEY}" {{ algorithm hmac-sha512; secret "dGhlaXJz"; }};' in data["keys.conf"]
    assert f'keys {{ "{CONTROL_KEY}"; }}' in named_conf(one, None)["named.conf"]


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "hmac-sha512"])
def test_b19_a_new_key_keeps_the_one_before_it_whatever_its_algorithm(algorithm):
    first, notes, _ = control_keys(None, RndcKey(auto_rotate=True), 0.0, make=lambda: "b2xk")
    held = secret(first, "i-rndc-key")
    held.metadata.annotations = notes
    later = 721 * 3600.0
    data, _, fresh = control_keys(held, RndcKey(auto_rotate=True, algorithm=algorithm), later, make=lambda: "bmV3")
    assert fresh
    secrets = {
        NamespacedName("i-rndc-key", "shop"): secret(data, "i-rndc-key"),
        NamespacedName("bind9-transfer-key", "shop"): secret(transfer_key(None), "bind9-transfer-key"),
    }
    keys = keys_of(instance(), None, secrets)
    assert keys.control == Key(CONTROL_KEY, algorithm, b"new")
    assert keys.previous == Key(CONTROL_KEY, "hmac-sha256", b"old")
    assert keys.previous_update.secret == b"old"


def test_b20_no_replicas_are_no_instances():
    assert instances_of(cluster(primary=RoleConfig(replicas=0), secondary=RoleConfig(replicas=0))) == []


def test_b21_every_object_that_is_made_belongs_to_its_instance():
    made = {(child["kind"], child["metadata"]["name"]) for child in children_of(instance(cluster_ref="c"), cluster())}
    assert ("ConfigMap", "i-config") in made
    assert not [name for _, name in made if not name.startswith("i")]


def test_b24_lists_storage_and_signing_that_are_declared_have_an_effect():
    signing = Signing(enabled=True, policy="mine", nsec3=True, nsec3_salt="aabb", ksk_lifetime="P1Y")
    parent = cluster(
        acls={"inside": ["192.0.2.0/24"]},
        global_=Bind9Config(dnssec=DnssecConfig(signing=signing)),
        storage=Storage(storage_type="persistentVolumeClaim"),
    )
    text = named_conf(instance(), parent)["named.conf"]
    assert "acl inside { 192.0.2.0/24; };" in text
    assert 'dnssec-policy "mine"' in text
    assert "salt-length 2" in text
    assert "ksk lifetime P1Y" in text
    assert "PersistentVolumeClaim" in {child["kind"] for child in children_of(instance(), parent)}


def test_b24_the_servers_that_a_secondary_has_as_primaries_are_where_it_fetches():
    place = [ServerEndpoint(address="10.0.0.2")]
    for told, wanted in (
        (["192.0.2.1", "2001:db8::1"], [("192.0.2.1", "53"), ("2001:db8::1", "53")]),
        (None, [("10.0.0.1", "53")]),
    ):
        one = instance(role="secondary", primary_servers=told, endpoints=place)
        (found,) = servers_of(one, None, KEYS, ())
        rows = dict(row for row in secondary_config(found, ORG, [server()]) if row[0] == "primaries")["primaries"]
        assert [(row[0], row[2]) for row in rows] == wanted
        assert {row[4] for row in rows} == {KEY.name}


def test_b24_the_keys_of_a_cluster_hold_for_instances_that_name_none():
    parent = cluster(rndc_secret_refs=[SecretRef(name="shared"), SecretRef(name="other")])
    assert key_ref_of(instance(), parent).name == "shared"
    own = instance(rndc_secret_ref=SecretRef(name="own"))
    assert key_ref_of(own, parent).name == "own"
    parent.spec.global_ = Bind9Config(rndc_secret_ref=SecretRef(name="global"))
    assert key_ref_of(instance(), parent).name == "global"


def test_b24_of_several_keys_of_a_cluster_those_that_come_to_nothing_are_named():
    parent = cluster(rndc_secret_refs=[SecretRef(name="shared"), SecretRef(name="other"), SecretRef(name="third")])
    (row,) = signing_conditions(instance(), parent)
    assert (row.type, row.status, row.reason) == ("Ignored", "True", "NoEffect")
    assert "rndcSecretRefs" in row.message
    assert "other, third" in row.message
    assert signing_conditions(instance(rndc_secret_ref=SecretRef(name="own")), parent) == []
    parent.spec.rndc_secret_refs = parent.spec.rndc_secret_refs[:1]
    assert signing_conditions(instance(), parent) == []


def test_b26_keys_can_be_written_wherever_instances_are():
    rule = next(rule for rule in rules_of(None) if "secrets" in rule.resources)
    assert {"create", "patch"} <= set(rule.verbs)


@pytest.mark.parametrize("flags", [0, 1, 128, 255])
def test_b27_flags_tags_and_parameters_of_a_caa_record_are_served_as_they_are(flags):
    spec = CAARecord.Spec(name="@", flags=flags, tag="issuemail", value="ca.example.net; policy=ev")
    (value,) = contribution_of(CAARecord(metadata=meta("c"), spec=spec), "caarecord/c", ORG).values
    assert value[:2] == bytes([flags, 9])
    assert value[2:] == b"issuemail" + b"ca.example.net; policy=ev"


def test_b29_nothing_asks_for_endpoints():
    assert not [rule for rule in rules_of(None) if "endpoints" in (rule.resources or ())]
    kinds = {row.kind.kind for controller in controllers() for row in controller.watched}
    assert "Endpoints" not in kinds
    assert "Pod" in kinds


def test_b30_examples_of_the_documentation_are_objects_of_our_kinds_and_reasons_in_it_are_in_the_code():
    page = (ROOT / "docs/dns.md").read_text()
    kinds = {kind.KIND.kind: kind for kind in KINDS}
    seen = set()
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        for body in yaml.safe_load_all(block):
            if isinstance(body, dict) and body.get("kind") in kinds:
                made: Any = msgspec.convert(body, kinds[body["kind"]])
                known = {field.encode_name for field in msgspec.structs.fields(type(made.spec))}
                assert set(body["spec"]) <= known
                seen.add(body["kind"])
    assert {"Bind9Instance", "DNSZone", "ARecord"} <= seen
    code = "".join(path.read_text() for path in (ROOT / "src/steersman/operators/dns").rglob("*.py"))
    reasons = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]+)+)`", page)) - set(kinds)
    assert not [reason for reason in reasons if f'"{reason}"' not in code]


def test_b32_name_servers_and_their_addresses_come_from_the_zone_and_never_from_pods():
    told = zone(name_servers=[NameServer(hostname="ns1.example.org.", ipv4_address="192.0.2.53")])
    assert own_contributions(told, ORG, ["10.0.0.1"]) == own_contributions(told, ORG, ["10.0.0.2", "10.0.0.3"])
    first = own_contributions(zone(), ORG, ["10.0.0.2", "10.0.0.1"])
    assert first == own_contributions(zone(), ORG, ["10.0.0.1", "10.0.0.2"])


def test_t1_a_name_server_of_the_zone_without_an_address_is_held_back():
    draft = CompiledZone(ORG)
    hosts = {name_of("ns1.example.org"), name_of("ns2.example.org"), name_of("ns.example.net")}
    draft.put(
        ZONE,
        Contribution(ZONE, (b"", NS), None, frozenset(hosts)),
        Contribution(ZONE, (owner_of("ns1", ORG), A), None, frozenset({bytes(4)})),
    )
    draft.settle()
    assert draft.rrsets[b"", NS].values == hosts - {name_of("ns2.example.org")}
    assert draft.held[b"", NS][ZONE].reason == "MissingAddress"


def test_t4_name_servers_of_the_zone_are_added_before_old_ones_are_removed_one_by_one():
    old, new = name_of("ns1.example.net"), name_of("ns2.example.net")
    change = RRsetChange((b"", NS), RRset(60, frozenset({old})), RRset(60, frozenset({new})))
    added, removed = update_parts([change])
    assert added.endswith(new)
    assert removed.endswith(old)
    assert int.from_bytes(removed[4:6]) == 254  # this value, not all of them


def test_t10_policies_that_named_has_itself_are_refused_and_both_keys_have_one_algorithm():
    for name in ("default", "insecure", "none"):
        signing = DnssecConfig(signing=Signing(enabled=True, policy=name))
        with pytest.raises(PlanError, match="built-in policy"):
            named_conf(instance(config=Bind9Config(dnssec=signing)), None)
    signing = DnssecConfig(signing=Signing(enabled=True, algorithm="ED25519"))
    text = named_conf(instance(config=Bind9Config(dnssec=signing)), None)["named.conf"]
    assert text.count("algorithm ed25519") == 2


def test_t11_named_runs_in_the_foreground_with_its_logging():
    (container,) = deployment(instance())["spec"]["template"]["spec"]["containers"]
    assert "-f" in container["args"]
    assert "-g" not in container["args"]


def test_t14_servers_of_tests_share_an_address_and_never_a_port(tmp_path):
    servers = [Named(tmp_path / str(number)) for number in range(4)]
    try:
        assert {one.address for one in servers} == {"127.0.0.1"}
        assert len({port for one in servers for port in (one.dns_port, one.rndc_port)}) == 8
    finally:
        for one in servers:
            one.release()


@pytest.mark.parametrize("size", [0, 255, 256, 700])
def test_t15_a_text_of_any_length_is_split_into_strings_that_fit(size):
    spec = TXTRecord.Spec(name="t", text=["x" * size])
    (value,) = contribution_of(TXTRecord(metadata=meta("t"), spec=spec), "txtrecord/t", ORG).values
    assert len(value) == size + max(1, -(-size // 255))
    assert value_text(TXT, value).replace('" "', "") == '"' + "x" * size + '"'


def test_t17_zones_say_nothing_about_forwarders_so_that_they_can_be_changed_later():
    one = server()
    words = {row[0] for row in (*primary_config(one, ORG, []), *secondary_config(one, ORG, [one]))}
    assert "forwarders" not in words


def test_b4_the_configuration_of_a_secondary_follows_the_address_of_its_primary():
    old, new = (
        secondary_config(server("10.0.0.9", "secondary"), ORG, [server(where)]) for where in ("10.0.0.1", "10.0.0.2")
    )
    assert not same_config(old, new)
    assert "10.0.0.2" in str(new)
