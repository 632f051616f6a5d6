"""Source distributions of Python packages, with examples that their wheels leave out: fetched once, then kept.

The package index is the one that pip uses. What comes must have a hash of the lock file that names the package.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from pip._internal.models.index import PyPI

from steersman.testing.controlplane.binaries import BinariesError, building, builds_folder

__all__ = ["source_distribution"]

SECONDS = 120.0


def source_distribution(name: str, lock: Path) -> Path:
    """The unpacked sources of a package, in the version that a lock file names."""
    pinned = re.search(rf"^{re.escape(name)}==(\S+)((?:.*\\\n)+.*\n)", lock.read_text(), re.MULTILINE)
    assert pinned is not None, f"{lock} does not name {name}"
    version, hashes = pinned[1], set(re.findall(r"sha256:(\w+)", pinned[2]))
    unpacked = builds_folder() / f"{name}-{version}-sources"
    with building(unpacked.name):
        if not unpacked.is_dir():
            with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=f".{name}-") as scratch:
                try:
                    archive = _fetch(name, f"{name}-{version}.tar.gz")
                except (OSError, LookupError) as error:
                    raise BinariesError(f"the sources of {name} {version} cannot be fetched: {error}") from None
                if hashlib.sha256(archive).hexdigest() not in hashes:
                    raise BinariesError(f"the sources of {name} {version} do not have a hash of {lock.name}")
                with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                    tar.extractall(scratch, filter="data")
                (Path(scratch) / f"{name}-{version}").rename(unpacked)
    return unpacked


def _fetch(name: str, file: str) -> bytes:
    index = os.environ.get("PIP_INDEX_URL") or PyPI.simple_url
    page = urllib.request.Request(
        f"{index.rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"}
    )
    with urllib.request.urlopen(page, timeout=SECONDS) as answer:
        text, base = answer.read().decode(), answer.url
    links = re.findall(r"""["']([^"'\s]*/""" + re.escape(file) + r")(?=[\"'#])", text)
    if not links:
        raise LookupError(f"the package index does not have {file}")
    with urllib.request.urlopen(urllib.parse.urljoin(base, links[0]), timeout=SECONDS) as answer:
        body: bytes = answer.read()
    return body
