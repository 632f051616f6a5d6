"""Programs of others: built once, whatever goes wrong is said in one line, and nothing half-built is kept."""

from __future__ import annotations

import pytest

from steersman.testing.controlplane.binaries import BinariesError
from tests.support.programs import crates
from tests.support.programs.crates import Crate

CRATE = Crate(name="tool", version="1.2.3", swagger=True)
CARGO = """#!/bin/sh
echo "$@" >> CALLS
case "$1" in --version) echo "cargo 9.9.9 (abc)"; exit;; esac
while [ $# -gt 0 ]; do [ "$1" = --root ] && root=$2; shift; done
test -s "${SWAGGER_UI_DOWNLOAD_URL#file://}" || exit 1
mkdir -p "$root/bin" && echo made > "$root/bin/tool"
END
"""


@pytest.fixture
def cargo(tmp_path, monkeypatch):
    """A cargo that notes what it is asked, and ends as it is told."""
    monkeypatch.setenv("STEERSMAN_CACHE", str(tmp_path / "cache"))
    calls = tmp_path / "calls"

    def make(end=""):
        program = tmp_path / "bin" / "cargo"
        program.parent.mkdir(exist_ok=True)
        program.write_text(CARGO.replace("CALLS", str(calls)).replace("END", end))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return calls

    return make


def test_a_crate_is_built_as_it_is_locked_and_only_once(cargo):
    calls = cargo()
    program = CRATE.build()
    assert program.read_text() == "made\n"
    assert program.parent.name == "tool-1.2.3-rust9.9.9"
    assert CRATE.build() == program == CRATE.built()
    (asked,) = [line for line in calls.read_text().splitlines() if line.startswith("install")]
    assert asked.startswith("install tool --version =1.2.3 --locked")


def test_a_build_that_fails_says_what_cargo_printed_and_leaves_nothing(cargo, tmp_path):
    cargo("echo no such crate; exit 101")
    with pytest.raises(BinariesError, match="no such crate"):
        CRATE.build()
    assert CRATE.built() is None
    assert [path.name for path in (tmp_path / "cache" / "programs").iterdir()] == ["tool.lock"]


def test_without_cargo_the_error_names_what_is_missing(cargo, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BinariesError, match="no `cargo` on PATH"):
        CRATE.build()
    assert crates.main() == 1
    assert "error: bindcar" in capsys.readouterr().err
