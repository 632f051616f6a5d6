"""Catalog zones: members by who is in them, and only where they belong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Config,
    Bind9Instance,
    ClusterSpec,
    ServerEndpoint,
)
from steersman.operators.dns.bind.servers import catalog_of
from steersman.operators.dns.deploy.manifests import children_of
from steersman.operators.dns.dnssec.signer import signing_conditions
from steersman.operators.dns.zone.catalog import Catalogs, member_key, member_source
from steersman.operators.dns.zone.names import name_of, text_of
from steersman.operators.dns.zone.rdata import PTR

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
def test_catalogs_hold_what_was_declared_last_and_changes_are_exactly_what_changed(steps):
    catalogs, said = Catalogs(), {}
    for number, wanted, name in steps:
        ref, zone = NamespacedName(f"z{number}", "shop"), name_of(f"{name}{number}.test")
        before = {one: catalogs.members(one) for one in (ONE, TWO)}
        news = catalogs.put(ref, zone, wanted)
        said[ref] = (zone, wanted)
        assert news == {one for one in (ONE, TWO) if catalogs.members(one) != before[one]}
    for one in (ONE, TWO):
        rows = {member_source(ref): frozenset({zone}) for ref, (zone, wanted) in said.items() if one in wanted}
        assert {source: part.values for source, part in catalogs.members(one).items()} == rows


META = ObjectMeta(name="c", namespace="dns")


def made(role="secondary", **spec):
    cluster = Bind9Cluster(metadata=META, spec=ClusterSpec(global_=Bind9Config(catalog_zone="Catalog.Test.")))
    return Bind9Instance(metadata=META, spec=Bind9Instance.Spec(cluster_ref="c", role=role, **spec)), cluster


def test_only_external_secondaries_have_a_catalog():
    endpoints = [ServerEndpoint(address="192.0.2.1")]
    assert catalog_of(*made(endpoints=endpoints)) == "catalog.test"
    assert catalog_of(*made("primary", endpoints=endpoints)) == ""
    assert catalog_of(*made()) == ""


def test_a_catalog_for_pods_changes_nothing_and_the_instance_says_that_it_is_ignored():
    instance, cluster = made()
    without = Bind9Cluster(metadata=META, spec=ClusterSpec())
    assert children_of(instance, cluster) == children_of(instance, without)
    (row,) = signing_conditions(instance, cluster)
    assert (row.type, row.status, row.reason) == ("Ignored", "True", "NoEffect")
    assert "catalogZone catalog.test" in row.message
    assert signing_conditions(instance, without) == []
