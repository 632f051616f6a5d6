"""Catalog zones: members by who is in them, and only where they belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import PlanError
from steersman.kube.objects import ObjectMeta
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.catalogconf import IN_OPTIONS, IN_ZONES, catalog_files, catalog_zone, kept_files
from steersman.operators.dns.catalogs import Catalogs, member_key, member_source
from steersman.operators.dns.fleet import catalog_of
from steersman.operators.dns.manifests import children_of
from steersman.operators.dns.namedconf import named_conf
from steersman.operators.dns.names import name_of, text_of
from steersman.operators.dns.rrsets import PTR
from steersman.operators.dns.serverkinds import (
    Bind9Cluster,
    Bind9Config,
    Bind9Instance,
    BindcarConfig,
    ClusterSpec,
    ConfigMapRefs,
    Storage,
)
from steersman.operators.dns.types import CATALOG
from steersman.operators.dns.zoneconfig import same_config
from steersman.operators.dns.zonetext import read_statements

ONE, TWO = ("dns", "one.test"), ("dns", "two.test")


def test_a_member_stands_under_a_label_of_its_own_below_zones():
    owner, kind = member_key(name_of("example.org"))
    label, rest = text_of(owner).split(".")
    assert (kind, rest, len(label)) == (PTR, "zones", 40)
    assert owner != member_key(name_of("example.net"))[0]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.frozensets(st.sampled_from([ONE, TWO])), st.sampled_from("ab")), max_size=20
    )
)
def test_catalogs_hold_what_was_said_last_and_news_are_exactly_what_changed(steps):
    catalogs, said = Catalogs(), {}
    for number, wanted, name in steps:
        ref, zone = ObjectRef(f"z{number}", "shop"), name_of(f"{name}{number}.test")
        before = {one: catalogs.members(one) for one in (ONE, TWO)}
        news = catalogs.put(ref, zone, wanted)
        said[ref] = (zone, wanted)
        assert news == {one for one in (ONE, TWO) if catalogs.members(one) != before[one]}
    for one in (ONE, TWO):
        rows = {member_source(ref): frozenset({zone}) for ref, (zone, wanted) in said.items() if one in wanted}
        assert {source: part.values for source, part in catalogs.members(one).items()} == rows


META = ObjectMeta(name="c", namespace="dns")
SOURCES = (("10.0.0.1", 5353), ("2001:db8::1", 53))


def made(role="secondary", catalog="Catalog.Test.", **spec):
    cluster = Bind9Cluster(metadata=META, spec=ClusterSpec(global_=Bind9Config(catalog_zone=catalog)))
    return Bind9Instance(metadata=META, spec=Bind9Instance.Spec(cluster_ref="c", role=role, **spec)), cluster


def children(instance, cluster, sources=SOURCES):
    catalog = catalog_of(instance, cluster)
    files = catalog_files(catalog, sources, "bindy-transfer") if catalog else {}
    return {one["kind"]: one for one in children_of(instance, cluster, catalog=files)}


def test_only_secondaries_have_a_catalog_in_their_configuration_and_other_primaries_are_no_other_configuration():
    assert "catalog" not in named_conf(*made("primary"))["named.conf"]
    text = named_conf(*made())["named.conf"]
    assert 'allow-transfer { key "bindy-transfer"; };' in text
    assert 'allow-notify { key "bindy-transfer"; };' in text
    one, other = children(*made()), children(*made(), sources=(("10.0.0.2", 5353),))
    assert one["Deployment"] == other["Deployment"]
    assert one["Deployment"]["spec"]["template"]["metadata"]["annotations"][CATALOG] == "catalog.test"
    assert one["ConfigMap"]["data"] != other["ConfigMap"]["data"]
    assert children(*made(catalog=""))["Deployment"] != one["Deployment"]


def test_the_files_of_a_catalog_say_what_a_server_that_has_read_them_shows():
    files = catalog_files("catalog.test", SOURCES, "t")
    (zone,) = read_statements(files[IN_ZONES])
    assert zone[:2] == ("zone", "catalog.test")
    assert same_config(zone[2], catalog_zone("catalog.test", SOURCES, "t"))
    assert not same_config(zone[2], catalog_zone("catalog.test", SOURCES[:1], "t"))
    called = (("10.0.0.1", "port", "5353", "key", "t"), ("2001:db8::1", "port", "53", "key", "t"))
    listed = ("zone", "catalog.test", "default-primaries", called, "min-update-interval", "1")
    assert read_statements(files[IN_OPTIONS]) == (("catalog-zones", (listed,)),)


def test_a_catalog_that_was_given_is_kept_while_nobody_is_there_to_fetch_it_from():
    files, nobody = catalog_files("catalog.test", SOURCES, "t"), catalog_files("catalog.test", (), "t")
    assert read_statements(nobody[IN_OPTIONS]) == read_statements(nobody[IN_ZONES]) == ()
    assert kept_files("catalog.test", {**files, "named.conf": "x"}) == files
    assert kept_files("other.test", files) == {}
    assert kept_files("catalog.test", nobody) == {}
    assert kept_files("catalog.test", {}) == {}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"driver": "bindcar", "bindcar_config": BindcarConfig(image="x")}, "catalogZone"),
        ({"config_map_refs": ConfigMapRefs(named_conf_options="mine")}, "configMapRefs"),
        ({"config_map_refs": ConfigMapRefs(named_conf="mine")}, "configMapRefs"),
    ],
)
def test_what_leaves_no_place_for_a_catalog_is_refused_and_says_which_field(spec, field):
    with pytest.raises(PlanError, match=field):
        named_conf(*made(**spec))
    named_conf(*made(catalog="", **spec))


def test_a_name_that_is_none_is_no_catalog():
    with pytest.raises(PlanError, match="catalogZone"):
        named_conf(*made(catalog=f"{'a' * 70}.test"))


def test_only_a_disk_that_outlives_pods_is_tidied():
    assert "initContainers" not in children(*made())["Deployment"]["spec"]["template"]["spec"]
    kept = made(storage=Storage(storage_type="persistentVolumeClaim"))
    (tidy,) = children(*kept)["Deployment"]["spec"]["template"]["spec"]["initContainers"]
    assert [row["name"] for row in tidy["volumeMounts"]] == ["zones"]
