"""A definition becomes a page that says what `kubectl explain` shows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from steersman.crd import Ge, Le, ListMap, ListSet, Pattern, crd_manifest
from steersman.crd.reference import reference_page
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import Resource, Struct


class Hook(Struct):
    """One request."""

    name: str
    """Name of the hook."""
    url: Annotated[str, Pattern("^https?://")]
    """Where the request goes."""


class SiteSpec(Struct):
    """The desired site."""

    RULES: ClassVar = (("self.size < 9 || self.mode == 'big'", "size: 9 and more need mode big"),)

    size: Annotated[int, Ge(1), Le(99)] = 3
    """How many
    pages there are."""
    mode: Literal["small", "big"]
    """How it is served."""
    hooks: Annotated[list[Hook] | None, ListMap("name")] = None
    """Requests after a change."""
    tags: Annotated[list[str] | None, ListSet()] = None
    """Words to find it by."""


class Site(
    Resource,
    group="example.org",
    version="v1",
    short_names=("si",),
    columns=(PrinterColumn(name="Size", json_path=".spec.size"), PrinterColumn(name="Why", json_path=".m", priority=1)),
):
    """A web site."""

    spec: SiteSpec


def test_a_page_has_facts_rules_and_a_table_for_every_object():
    assert (
        reference_page(crd_manifest(Site))
        == """\
# Site

A web site.

|  |  |
| --- | --- |
| API version | `example.org/v1` |
| scope | a namespace |
| names for kubectl | `sites`, `si` |
| columns | Size, Age |
| columns with `-o wide` | Why |

## spec

The desired site.

- size: 9 and more need mode big

| field | type | description |
| --- | --- | --- |
| `size` | integer | How many pages there are. 1 to 99. Default: `3`. |
| `mode` | string | **Required.** How it is served. One of `big`, `small`. |
| [`hooks`](#spechooks) | list of object | Requests after a change. Unique by `name`. |
| `tags` | list of string | Words to find it by. Without duplicates. |

### spec.hooks[]

One request.

| field | type | description |
| --- | --- | --- |
| `name` | string | **Required.** Name of the hook. |
| `url` | string | **Required.** Where the request goes. Matches `^https?://`. |
"""
    )


def test_served_versions_have_sections_of_their_own_newest_first():
    class Old(Resource, group="example.org", version="v1beta1", kind="Site"):
        """An old web site."""

        spec: Hook

    page = reference_page(crd_manifest(Old, Site))
    assert [line for line in page.splitlines() if line.startswith("##")] == [
        "## v1 spec",
        "### v1 spec.hooks[]",
        "## v1beta1 spec",
    ]
    assert "[`hooks`](#v1-spechooks)" in page
    assert "| API version | `example.org/v1`, `example.org/v1beta1` |" in page
