"""What `steersman.testing` offers, and that it is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import steersman.testing


def test_importing_the_plugin_imports_nothing_that_costs():
    program = (
        "import sys; before = set(sys.modules); import steersman.testing.plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.split('.')[0] in {'steersman', 'aiohttp'}))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "aiohttp" not in loaded
    assert [name for name in loaded if name.startswith("steersman.testing")] == [
        "steersman.testing",
        "steersman.testing.plugin",
    ]


@pytest.mark.parametrize("name", steersman.testing.__all__)
def test_every_public_name_is_there(name):
    assert getattr(steersman.testing, name) is not None


def test_public_names_are_listed_and_others_are_not_there():
    assert dir(steersman.testing) == sorted(steersman.testing.__all__)
    assert len(set(steersman.testing.__all__)) == len(steersman.testing.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = steersman.testing.nonsense  # type: ignore[attr-defined]


async def test_the_clock_fixture_is_virtual(steersman_clock):
    before = steersman_clock.time()
    await steersman_clock.advance(3600)
    assert steersman_clock.time() == before + 3600


def test_no_module_hides_what_the_package_offers():
    modules = {path.stem for path in Path(steersman.testing.__file__).parent.glob("*.py")}
    assert modules.isdisjoint(steersman.testing.__all__)
