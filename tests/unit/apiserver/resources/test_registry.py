from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.resources.registry import Registry, condition

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:00Z"


def definition(
    plural: str = "widgets", kind: str = "Widget", group: str = "example.org", **names: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", **names},
            "versions": [version("v1", storage=True)],
        },
        "status": {"storedVersions": ["v1"]},
    }


def version(name: str, *, storage: bool = False, served: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object"}},
        **more,
    }


def test_a_definition_is_served_once_its_names_are_accepted() -> None:
    registry = Registry()
    outcome = registry.install(definition(shortNames=["wd"]), now=NOW)
    assert [condition({"status": s}, "Established")["status"] for s in outcome.statuses] == ["False", "True"]  # type: ignore[index]
    assert outcome.statuses[-1] == {
        "storedVersions": ["v1"],
        "acceptedNames": {
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": NOW,
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": NOW,
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
    }
    assert registry.lookup("example.org", "v1", "widgets") is outcome.resources[0]
    assert registry.by_kind("example.org", "v1", "Widget") is outcome.resources[0]


def test_installing_the_same_definition_again_writes_nothing() -> None:
    registry = Registry()
    first = registry.install(definition(), now=NOW)
    assert registry.install(first.definition, now=LATER).statuses == ()


@pytest.mark.parametrize(
    ("second", "reason", "message"),
    [
        (definition("gadgets", "Widget"), "ListKindConflict", '"WidgetList" is already in use'),
        (
            definition("gadgets", "Widget", listKind="GadgetList", singular="gadget"),
            "KindConflict",
            '"Widget" is already in use',
        ),
        (definition("gadgets", "Gadget", singular="widget"), "SingularConflict", '"widget" is already in use'),
        (definition("gadgets", "Gadget", shortNames=["x", "wd"]), "ShortNamesConflict", '"wd" is already in use'),
        (
            definition("gadgets", "Gadget", shortNames=["widgets", "wd"]),
            "ShortNamesConflict",
            '["widgets" is already in use, "wd" is already in use]',
        ),
    ],
)
def test_a_name_taken_in_the_group_keeps_a_definition_from_being_served(
    second: dict[str, Any], reason: str, message: str
) -> None:
    registry = Registry()
    registry.install(definition(shortNames=["wd"]), now=NOW)
    outcome = registry.install(second, now=NOW)
    assert outcome.resources == ()
    naming = condition(outcome.definition, "NamesAccepted")
    assert naming is not None
    assert (naming["status"], naming["reason"], naming["message"]) == ("False", reason, message)
    established = condition(outcome.definition, "Established")
    assert established is not None
    assert (established["status"], established["reason"]) == ("False", "NotAccepted")


def test_names_in_another_group_do_not_conflict() -> None:
    registry = Registry()
    registry.install(definition(), now=NOW)
    assert registry.install(definition(group="other.org"), now=NOW).resources


def test_removing_a_definition_gives_its_names_to_the_one_that_waited() -> None:
    registry = Registry()
    registry.install(definition(shortNames=["wd"]), now=NOW)
    waiting = definition("gadgets", "Gadget", shortNames=["wd"])
    registry.install(waiting, now=NOW)
    outcomes = registry.uninstall("widgets.example.org", now=LATER)
    assert [outcome.name for outcome in outcomes] == ["gadgets.example.org"]
    assert registry.lookup("example.org", "v1", "widgets") is None
    assert registry.lookup("example.org", "v1", "gadgets") is not None


def test_the_revision_rises_whenever_what_is_served_changes() -> None:
    registry = Registry()
    seen = [registry.revision]
    registry.install(definition(), now=NOW)
    seen.append(registry.revision)
    registry.uninstall("widgets.example.org", now=NOW)
    seen.append(registry.revision)
    assert seen == sorted(set(seen))


def test_only_served_versions_are_served_and_all_share_the_storage_version() -> None:
    crd = definition()
    crd["spec"]["versions"] = [
        version("v1alpha1", served=False),
        version("v1beta1", deprecated=True),
        version("v2", storage=True),
        version("v1", deprecated=True, deprecationWarning="use v2, please"),
    ]
    registry = Registry()
    resources = registry.install(crd, now=NOW).resources
    assert {info.kind.version: info.deprecation for info in resources} == {
        "v1beta1": "example.org/v1beta1 Widget is deprecated; use example.org/v2 Widget",
        "v2": None,
        "v1": "use v2, please",
    }
    assert {info.storage.version for info in resources} == {"v2"}
    assert [info.kind.version for info in registry.versions(resources[0])] == ["v2", "v1", "v1beta1"]


def test_a_terminating_definition_takes_no_new_objects() -> None:
    registry = Registry()
    crd = registry.install(definition(), now=NOW).definition
    status = {**crd["status"], "conditions": [*crd["status"]["conditions"], {"type": "Terminating", "status": "True"}]}
    (info,) = registry.install({**crd, "status": status}, now=NOW).resources
    assert info.verbs == ("delete", "deletecollection", "get", "list", "watch")


def test_a_custom_resources_generation_follows_everything_but_metadata_and_status() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["subresources"] = {"status": {}}
    (info,) = Registry().install(crd, now=NOW).resources
    old = {"metadata": {"generation": 2}, "spec": {"a": 1}, "status": {}, "other": 1}
    assert info.next_generation(old, {**old, "status": {"ready": True}, "metadata": {"labels": {}}}) == 2
    assert info.next_generation(old, {**old, "other": 2}) == 3
