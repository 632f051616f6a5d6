"""Warnings of the API server reach the log and the caller, on both servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

import steersman as sm
from tests.support.docs.pages import blocks_of


def with_unknown_field(name: str, namespace: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "dta": {"a": "b"}}


async def test_an_unknown_field_is_warned_of_once_in_the_log_and_every_time_to_the_caller(cluster, client, namespace):
    with capture_logs() as lines, sm.collect_warnings() as warnings:
        for name in ("one", "two"):
            await client.create(with_unknown_field(name, namespace))
    assert [(warning.text, warning.request) for warning in warnings] == [('unknown field "dta"', "POST configmaps")] * 2
    logged = [line for line in lines if line["event"] == "the API server warns"]
    assert [(line["warning"], line["request"]) for line in logged] == [('unknown field "dta"', "POST configmaps")]


async def test_the_example_of_the_documentation_works(cluster, client, namespace):
    page = Path(__file__).parents[2] / "docs" / "howto" / "index.md"
    (block,) = [block for block in blocks_of(page, page.parents[2]) if "collect_warnings" in block.text]
    shown: dict[str, Any] = {"sm": sm}
    exec(block.text, shown)
    assert await shown["create_strictly"](client, with_unknown_field("one", namespace)) == ['unknown field "dta"']
