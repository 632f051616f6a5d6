"""Every definition that `steersman crds` prints is taken by the API server, and stored as it was printed."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from steersman.cli.main import cli
from steersman.crd import drift
from steersman.kube.types.apiextensions import CustomResourceDefinition
from steersman.operators import OPERATORS
from steersman.testing import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITIONS = CustomResourceDefinition.KIND


@cache
def printed() -> dict[str, dict[str, Any]]:
    files = [str(path) for path in sorted(EXAMPLES.glob("*.py"))]
    found: dict[str, dict[str, Any]] = {}
    for arguments in (["crds"], ["crds", *files]):
        shown = CliRunner().invoke(cli, [*arguments, "-o", "json"], catch_exceptions=False).stdout
        found |= {item["metadata"]["name"]: item for item in json.loads(shown)["items"]}
    return found


def test_there_are_definitions_of_every_operator_that_has_kinds_and_of_the_examples():
    from steersman.operators import load_operator

    own = {kind.KIND.qualified for name in OPERATORS for kind in load_operator(name).kinds}
    assert own < printed().keys()
    assert {"webapps.example.org", "databases.example.org"} <= printed().keys()


def in_group_of(namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same in a group of the test's own, because others install the real ones."""
    moved = deepcopy(manifest)
    moved["spec"]["group"] = f"{namespace}.{manifest['spec']['group']}"
    moved["metadata"]["name"] = f"{moved['spec']['names']['plural']}.{moved['spec']['group']}"
    return moved


def with_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """What the server adds to a definition that does not say it."""
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    return {"conversion": {"strategy": "None"}, **spec, "names": names}


@pytest.mark.parametrize("name", sorted(printed()))
async def test_what_is_printed_is_what_is_stored(client, cluster, namespace, name):
    wanted = in_group_of(namespace, printed()[name])
    mine = wanted["metadata"]["name"]
    await client.create(wanted)
    try:

        async def established() -> dict[str, Any] | None:
            live = await client.get(DEFINITIONS, mine)
            states = {one["type"]: one["status"] for one in live.get("status", {}).get("conditions") or ()}
            return live if states.get("Established") == "True" else None

        live: Any = await eventually(established)
        assert live["spec"] == with_defaults(wanted["spec"])
        assert drift(live, wanted) == []
        assert [one["type"] for one in live["status"]["conditions"] if one["type"] == "NonStructuralSchema"] == []
    finally:
        await client.delete(DEFINITIONS, mine)
