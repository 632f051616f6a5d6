from __future__ import annotations

import pytest


async def test_a_namespace_of_its_own_exists_during_a_test(real, namespace, kubectl):
    output = await kubectl("get", "namespace", namespace, "-o", "name")
    assert output.out == f"namespace/{namespace}\n"
