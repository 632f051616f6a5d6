"""Access lists: named by name where a configuration has them, and refused where they could not be meant."""

from __future__ import annotations

import msgspec
import pytest

from steersman.errors import PlanError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.pods import Pod, PodStatus
from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance
from steersman.operators.dns.bind.named_conf import named_conf
from steersman.operators.dns.bind.servers import Keys, servers_of
from steersman.operators.dns.bind.zone_statements import primary_config
from steersman.operators.dns.wire.tsig import Key

ORG = b"\7example\3org\0"
KEY = Key("k", "hmac-sha256", b"secret")
KEYS = Keys(KEY, KEY, KEY)
POD = Pod(metadata=ObjectMeta(name="p"), status=PodStatus(phase="Running", pod_ip="10.0.0.9"))
LISTS = {"inside": ["192.0.2.0/24"], "ours": ["inside", "!10.0.0.1"]}


def made(kind, spec):
    return msgspec.convert({"metadata": {"name": "x", "namespace": "n"}, "spec": spec}, kind)


def cluster(acls, **config):
    return made(Bind9Cluster, {"acls": acls, "global": config})


def instance(**spec):
    return made(Bind9Instance, {"role": "primary", "clusterRef": "x", **spec})


def test_a_list_is_used_by_its_name_in_options_in_other_lists_and_in_zones():
    parent = cluster(LISTS, allowQuery=["ours", "!inside"], allowTransfer=["inside"])
    text = named_conf(instance(), parent)["named.conf"]
    assert "acl ours { inside; !10.0.0.1; };" in text
    assert "allow-query { ours; !inside; };" in text
    (server,) = servers_of(instance(), parent, KEYS, [POD])
    assert dict(primary_config(server, ORG, []))["allow-transfer"] == (("inside",), ("key", "k"))


@pytest.mark.parametrize(
    ("acls", "config", "field"),
    [
        (LISTS, {"allowQuery": ["outside"]}, "spec.config.allowQuery"),
        ({"a": ["b"], "b": ["! a"]}, {}, "spec.acls.a"),
        ({"a": ["a"]}, {}, "spec.acls.a"),
        ({"key": ["any"]}, {}, "spec.acls"),
    ],
)
def test_a_list_that_named_would_not_have_is_refused_with_the_name_of_the_field(acls, config, field):
    with pytest.raises(PlanError) as refused:
        named_conf(instance(), cluster(acls, **config))
    assert (refused.value.reason, refused.value.field) == ("ConfigurationInvalid", field)


@pytest.mark.parametrize("entry", ["a b", "any;", 'x"', "", "!", "1-a", "x" * 64])
def test_no_name_of_a_list_ends_a_statement(entry):
    with pytest.raises(msgspec.ValidationError):
        cluster(None, allowQuery=[entry])


@pytest.mark.parametrize("entry", ["dead", "....", "10.0.0.0/99", "inside"])
def test_a_setting_that_an_existing_server_cannot_take_is_reported_before_it_is_asked(entry):
    one = instance(endpoints=[{"address": "192.0.2.1"}], config={"allowTransfer": [entry]})
    with pytest.raises(PlanError) as refused:
        servers_of(one, cluster(LISTS), KEYS, ())
    assert (refused.value.reason, refused.value.field) == ("ConfigurationInvalid", "spec.config.allowTransfer")
    assert entry in str(refused.value)
