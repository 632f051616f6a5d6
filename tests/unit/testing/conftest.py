"""A Go toolchain that builds in no time."""

from __future__ import annotations

import os

import pytest

# Stands in for Go: notes how it was called, names two packages, "compiles" a script that prints its own name.
FAKE_GO = """#!/bin/sh
echo "$@" >> "{calls}"
case "$1" in
env) echo go1.99.0 ;;
list) echo "go: downloading example.org/dependency v1.0.0"; echo fmt; echo example.org/tool ;;
build)
    if [ -e broken.go ]; then echo "broken.go:1:1: expected 'package'"; exit 1; fi
    while [ "$1" != "-o" ]; do shift; done
    printf '#!/bin/sh\\nbasename "$0"\\n' > "$2"; chmod +x "$2"
    echo fmt; echo example.org/tool ;;
esac
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A `go` on PATH that notes its calls; returns them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"
    calls.write_text("")
    (folder / "go").write_text(FAKE_GO.format(calls=calls))
    (folder / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return lambda: [line.split()[0] for line in calls.read_text().splitlines()]
