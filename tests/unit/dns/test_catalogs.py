"""Catalog zones: members by who is in them, and only where they belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import PlanError
from steersman.kube.objects import ObjectMeta
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.catalogs import Catalogs, member_key, member_source
from steersman.operators.dns.namedconf import named_conf
from steersman.operators.dns.names import name_of, text_of
from steersman.operators.dns.rrsets import PTR
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Config, Bind9Instance, ClusterSpec

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


def test_a_server_that_is_made_here_does_not_take_a_catalog_and_says_which_field():
    meta = ObjectMeta(name="c", namespace="dns")
    cluster = Bind9Cluster(metadata=meta, spec=ClusterSpec(global_=Bind9Config(catalog_zone="catalog.test")))
    one, two = (
        Bind9Instance(metadata=meta, spec=Bind9Instance.Spec(cluster_ref="c", role=role))
        for role in ("primary", "secondary")
    )
    assert "catalog" not in named_conf(one, cluster)["named.conf"]
    with pytest.raises(PlanError, match="catalogZone"):
        named_conf(two, cluster)
