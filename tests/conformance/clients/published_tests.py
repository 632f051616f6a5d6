"""The tests that a Python client publishes in its package, as they are: prints which of them passed.

    python published_tests.py PACKAGE MODULE…

They are written for a cluster. The module that tells them where it is (`PACKAGE.e2e_test.base`) is not published, so it
is made here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import types
import unittest
from typing import Any


def configuration(package: str) -> Any:
    """A new configuration for the server of KUBECONFIG."""
    client, config = (importlib.import_module(f"{package}.{name}") for name in ("client", "config"))
    made = client.Configuration()
    if inspect.iscoroutine(loading := config.load_kube_config(client_configuration=made)):
        asyncio.run(loading)
    return made


class Results(unittest.TextTestResult):
    """Also remembers what passed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.passed: list[str] = []

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802  # unittest's name
        super().addSuccess(test)
        self.passed.append(test.id())


def main(package: str, modules: list[str]) -> None:
    """Run the tests and print the names of those that passed, as JSON."""
    folder, base = (types.ModuleType(f"{package}.e2e_test{rest}") for rest in ("", ".base"))
    base.get_e2e_configuration = lambda: configuration(package)  # type: ignore[attr-defined]
    folder.base = base  # type: ignore[attr-defined]
    sys.modules |= {folder.__name__: folder, base.__name__: base}
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    outcome = unittest.TextTestRunner(resultclass=Results, verbosity=2).run(suite)
    print(json.dumps(sorted(outcome.passed)))  # noqa: T201  # its output


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
