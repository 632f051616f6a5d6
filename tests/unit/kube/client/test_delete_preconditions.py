"""Deleting exactly the object that was read: every precondition travels, also when it is the only one."""

from __future__ import annotations

import pytest

from steersman.kube.api.types.core import ConfigMap
from tests.support.wire_server import reply


@pytest.mark.parametrize(
    ("options", "preconditions"),
    [
        ({"uid": "u"}, {"uid": "u"}),
        ({"resource_version": "7"}, {"resourceVersion": "7"}),
        ({}, None),
    ],
)
async def test_a_precondition_travels_also_when_it_is_the_only_one(wire, client, options, preconditions):
    server = await wire(reply(200, {"kind": "Status", "status": "Success"}))
    await client(server).delete(ConfigMap, "app", **options)
    assert server.requests[0].json.get("preconditions") == preconditions
