"""What a ToolsetConfig changes, field by field; and whether a candidate takes part."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import ToolsetSection
from steersman.operators.toolset.api.crd import ToolsetConfig
from steersman.operators.toolset.reconcile.targets import find_targets

FILE = ToolsetSection().settings()


def config(name="c", namespace="n", created="2026-01-01T00:00:00Z", **spec):
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": spec}, ToolsetConfig)


def overlaid(**spec):
    found = find_targets(FILE, [config(**spec)])
    return found.settings[NamespacedName("kubernaut-toolset-config", "n")]


def test_every_field_of_a_toolsetconfig_has_an_effect():
    assert overlaid(discoveryInterval="10m").discovery_interval == 600
    assert overlaid(healthCheck={"enabled": False}).health.enabled is False
    assert overlaid(healthCheck={"timeout": "9s"}).health.timeout == 9
    assert overlaid(serviceTypes={"loki": {"enabled": False}}).types["loki"].enabled is False
    assert overlaid(serviceTypes={"loki": {"labels": {"a": "b"}}}).types["loki"].labels == "a=b"
    assert overlaid(serviceTypes={"loki": {"annotations": {"a/b": "c"}}}).types["loki"].annotations == {"a/b": "c"}
    assert overlaid(configMap={"preserveOverrides": False}).preserve_overrides is False
    named = find_targets(FILE, [config(configMap={"name": "other"})])
    assert NamespacedName("other", "n") in named.settings
    trusting = replace(FILE, trusted_namespaces=frozenset({"n"}))
    chosen = find_targets(trusting, [config(namespaces=["a"])])
    assert chosen.settings[NamespacedName(FILE.name, "n")].namespaces == frozenset({"a"})
    assert (
        NamespacedName("o", "m") in find_targets(trusting, [config(configMap={"name": "o", "namespace": "m"})]).settings
    )


def test_the_file_stays_beside_them_and_gives_way_where_both_name_the_same():
    same = config(namespace="kubernaut-system", discoveryInterval="10m")
    found = find_targets(FILE, [same])
    assert [setting.discovery_interval for setting in found.settings.values()] == [600]
    assert len(find_targets(FILE, [config()]).settings) == 2


def test_a_toolsetconfig_cannot_widen_what_the_file_allows():
    narrow = replace(FILE, namespaces=frozenset({"a", "b"}), trusted_namespaces=frozenset({"n"}))
    found = find_targets(narrow, [config(namespaces=["b", "c"])])
    assert found.settings[NamespacedName(FILE.name, "n")].namespaces == frozenset({"b"})


@pytest.mark.parametrize("asked", [None, [], ["*"], ["n"]])
def test_a_toolsetconfig_of_an_untrusted_namespace_sees_the_services_of_its_own_only(asked):
    spec = {} if asked is None else {"namespaces": asked}
    assert overlaid(**spec).namespaces == frozenset({"n"})
    trusting = replace(FILE, trusted_namespaces=frozenset({"n"}))
    everywhere = None if asked != ["n"] else frozenset({"n"})
    assert find_targets(trusting, [config(**spec)]).settings[NamespacedName(FILE.name, "n")].namespaces == everywhere
    beside = config(namespace=FILE.namespace)  # where all of it can be read anyway
    assert find_targets(FILE, [beside]).settings[NamespacedName(FILE.name, FILE.namespace)].namespaces is None


def test_a_toolsetconfig_of_an_untrusted_namespace_that_asks_for_another_is_refused():
    (claim,) = find_targets(FILE, [config(namespaces=["n", "other"])]).claims
    assert claim.reason == "UntrustedNamespace"
    assert "spec.namespaces: other" in claim.refusal


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "c" * 237, "configMap": {"name": ""}},
        {"discoveryInterval": "5s"},
        {"discoveryInterval": "2h"},
        {"discoveryInterval": "x"},
        {"healthCheck": {"timeout": "0s"}},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_with_its_field(spec):
    (claim,) = find_targets(replace(FILE, name=""), [config(**spec)]).claims
    assert claim.reason == "InvalidSpec"
    assert claim.refusal.startswith("spec.")
