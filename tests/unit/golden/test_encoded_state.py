"""What earlier releases left in clusters is read, and what is written is what they wrote.

A digest, a checksum or an encoding that differs restarts every workload, replaces every pod or forgets what is known,
in every cluster, at the upgrade. These texts are never recorded again: a change of one is a change of the format, and
needs a version of its own and a way to read the old one.
"""

from __future__ import annotations

import base64

import msgspec
import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.client.codec import codec_for
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.bind.zone_file import file_name
from steersman.operators.dns.deploy.manifests import children_of, template_of
from steersman.operators.dns.zone.catalog import member_key
from steersman.operators.dns.zone.names import name_of
from steersman.operators.hourglass.api.config import HardwareMap
from steersman.operators.hourglass.api.types import StoredPerformer
from steersman.operators.hourglass.api.validation import read_performer
from steersman.operators.hourglass.children.executor_children import keys_digest
from steersman.operators.hourglass.children.pod import pod_template
from steersman.operators.reload.actions.recreate_job import Intent, mark_of, stand_in
from steersman.operators.reload.api.annotations import NATIVE_ANNOTATIONS
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.planning.state import (
    Applied,
    AppliedSource,
    AppliedTotal,
    Past,
    read_state,
    total_of,
    write_state,
)
from steersman.operators.reload.sources.compare import canonical, format_compare_rules, parse_compare_rules
from steersman.operators.reload.sources.digest import (
    ConfigMapSource,
    SecretSource,
    edge_digest,
    names_digest,
    short_digest,
    source_transform,
)
from steersman.operators.toolset.render.layout import content_hash
from steersman.runtime.sharding.assignment import ShardAssignment, desired, join, slot_of

APPLIED = Applied(
    sources={
        "configmap/app": AppliedSource(digest="DIGEST", keys={"mode": "m", "level": "l"}),
        "secret/other/db": AppliedSource(digest="", use="abc"),
        "configmap/json": AppliedSource(digest="J", compare_rules="*.json=json"),
    },
    restarts=(1_700_000_000, 1_700_000_060),
    history=(
        Past(1_700_000_000, "configmap/app#mode", "available", 12),
        Past(1_700_000_060, "secret/db"),
    ),
    evict=1_700_000_000,
)
APPLIED_TEXT = (
    '{"v":1,"s":{"configmap/app":{"d":"DIGEST","k":{"level":"l","mode":"m"}},"configmap/json":{"d":"J","w":1},'
    '"secret/other/db":{"u":"abc"}},"r":[1700000000,1700000060],"h":[[1700000000,"configmap/app#mode","available",12],'
    '[1700000060,"secret/db","",null]],"e":1700000000,"w":["*.json=json"]}'
)
MANY = Applied(
    total=AppliedTotal(digest="d", use="u", count=900, compare_rules=("0-2,5",)),
    compare_rules=("*.json=json",),
    restarts=(1,),
)
MANY_TEXT = '{"v":1,"t":{"d":"d","u":"u","n":900,"w":["0-2,5"]},"r":[1],"w":["*.json=json"]}'


@pytest.mark.parametrize(("state", "text"), [(APPLIED, APPLIED_TEXT), (MANY, MANY_TEXT)], ids=["sources", "total"])
def test_applied_state_is_written_and_read_as_before(state, text):
    assert write_state(state) == text
    assert read_state(text).applied == state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('{"v":1}', Applied()),
        (
            '{"v":1,"s":{"configmap/app":{"d":"x"}},"r":[5]}',
            Applied(sources={"configmap/app": AppliedSource(digest="x")}, restarts=(5,)),
        ),
        ('{"v":1,"h":[[7]]}', Applied(history=(Past(7),))),
        ('{"v":1,"later":true}', Applied()),
    ],
)
def test_shorter_states_of_earlier_releases_are_read(text, state):
    assert read_state(text).applied == state


def test_a_total_over_many_sources_is_the_same_as_before():
    total, ways = total_of(
        {
            "configmap/a": AppliedSource(digest="x"),
            "configmap/b": AppliedSource(digest="y", compare_rules="*.json=json"),
        }
    )
    assert total == AppliedTotal(
        digest="820a93a894de5a226a666e86274f7d265f7ceb75cb9ae9feda9b966ef85af910",
        use="1ybH0H349Ja2",
        count=2,
        compare_rules=("1",),
    )
    assert ways == ("*.json=json",)


def read(cls, **body):
    wire = msgspec.json.encode({"metadata": {"name": "app", "namespace": "shop"}, **body})
    return source_transform(NATIVE_ANNOTATIONS, ())(codec_for(cls).object(wire))


def test_digests_of_sources_are_the_same_as_before():
    app = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
    secret = SourceRef(SourceKind.SECRET, "shop", "app")
    text = read(
        ConfigMapSource, data={"mode": "a", "level": "b"}, binaryData={"blob": base64.b64encode(b"\xff").decode()}
    )
    hidden = read(SecretSource, data={"password": base64.b64encode(b"hunter2").decode()})
    assert edge_digest(app, text.digests) == "CihEKcQDCAYNTDCuap_tyTaPzaqFHvtbqIR9mVZUd_s"
    assert edge_digest(app, text.digests, ["mode"]) == "69LSw0v2Ad-kbIABCC8Bt3NVU0Uoua_9L4VnkhfKwCc"
    assert edge_digest(secret, hidden.digests) == "bcIXopag6cHnrGYwoEYqQw3La68Zl-vrUYJsGHRIGaI"
    assert short_digest(app, "mode", text.digests["mode"]) == "FYe5DeSK4exU"
    assert names_digest(["b", "a"]) == "BHPvLcDTJKtl"


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        ("json", b'{"b": 1.0, "a": [true, null]}', b'{"a":[true,null],"b":1.0}'),
        ("yaml", b"b: 1\na: {c: x}\n", b'[{"a":{"c":"x"},"b":1}]'),
        ("properties", b"b = 1\n# no\na: 2\n", b'{"a":"2","b":"1"}'),
    ],
)
def test_the_canonical_form_of_a_value_is_the_same_as_before(form, value, text):
    assert canonical(form, value) == text


def test_comparison_rules_are_spelled_as_before():
    assert format_compare_rules(parse_compare_rules("stamp=ignore, *.json=json")) == "stamp=ignore,*.json=json"


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "migrate", "namespace": "shop", "uid": "u-1", "labels": {"a": "b"}},
    "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
}


def test_the_stand_in_of_a_job_and_its_mark_are_the_same_as_before():
    made = stand_in(JOB, "STATE", {"steersman.dev/restarted-at": "now"})
    assert made["metadata"]["name"] == "migrate-reload-a24a7f55"
    intent = made["metadata"]["annotations"]["steersman.dev/recreates"]
    assert intent == '{"name":"migrate","uid":"u-1","suspend":false}'
    assert msgspec.json.decode(intent, type=Intent) == Intent("migrate", "u-1")
    assert msgspec.json.encode(mark_of(made)).decode() == (
        '{"name":"migrate-reload-a24a7f55","digest":"9185c940295e636a53d3e6bb813d474ae1db3a48cba7f9dfc37882b4196b34d9"}'
    )


def test_the_shard_table_is_written_and_namespaces_fall_into_slots_as_before():
    table = join(ShardAssignment(owners=("a", "b")), "a", "1")
    text = '{"owners":["a","b"],"members":{"a":"1"}}'
    assert msgspec.json.encode(table).decode() == text
    assert msgspec.json.decode(text, type=ShardAssignment) == table
    assert [slot_of(name) for name in ("", "default", "shop")] == [20, 61, 61]
    assert desired(["a", "b", "c"], 8) == tuple("bbaacbbb")


def test_the_hash_of_a_toolset_is_the_same_as_before():
    assert content_hash({"b": "ü", "a": "1"}) == "da1f47fc4fb0127f636cdbbf9e2748f789d6a0cc2d8ea6ad80287cf412dbd189"


def test_the_template_of_a_performer_is_the_same_as_before():
    meta = ObjectMeta(name="p", namespace="ns", uid="u")
    read, problems = read_performer(StoredPerformer(metadata=meta, spec={"avsAddress": "0x1", "image": "avs:1"}))
    assert not problems
    template, problems = pod_template("p", read, HardwareMap())
    assert not problems
    assert template.hash == "fc432ff45c1ae8e45c00d0c14a407cfe798e6d59a6afb2fd9b8bb4c8b21592eb"
    assert keys_digest([("ecdsa", b"k")], "salt") == "2fca9ee1360af3207900fa6272c9b2ac278d94b71a2eccb2c44163d28ec6390c"


def test_the_pods_of_a_name_server_are_the_same_as_before():
    meta = ObjectMeta(name="ns1", namespace="dns", uid="u")
    instance = Bind9Instance(metadata=meta, spec=Bind9Instance.Spec(role="primary"))
    assert (
        template_of(children_of(instance, None)) == "6978f35dc4cc51137724821a6cc791f1e7eb9e7b38b7ee96bb2916b9382ae208"
    )


def test_zone_files_and_catalog_members_are_called_as_before():
    zone = name_of("Example.org")
    assert file_name(zone) == "example.org.zone"
    assert member_key(zone)[0].hex() == (
        "2834376163316134643933623631666666646234373632633138633965376431613662303436643333057a6f6e6573"
    )
