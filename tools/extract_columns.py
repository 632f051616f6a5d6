#!/usr/bin/env python3
"""Record the printed columns of the built-in resources: what `kubectl get` shows, and how each column is described.

    tools/extract_columns.py --server https://127.0.0.1:6443 --token TOKEN

An empty list already answers with its columns, so a fresh kube-apiserver is enough. The cells are computed by
`steersman.apiserver.printing.cells`; only names, types and descriptions are recorded.
"""

from __future__ import annotations

import argparse
import gzip
import json
import ssl
import sys
import urllib.request
from pathlib import Path

from steersman.apiserver.resources.kinds import BUILTINS

TARGET = Path(__file__).parent.parent / "src" / "steersman" / "apiserver" / "data" / "columns.json.gz"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def columns(server: str, path: str, token: str | None) -> list[dict[str, object]]:
    """The column definitions of one list. The server is one started for this, so its certificate is not checked."""
    request = urllib.request.Request(f"{server}{path}?limit=1&includeObject=None")  # noqa: S310 - the operator names it
    request.add_header("Accept", TABLE)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
        found: list[dict[str, object]] = json.load(answer)["columnDefinitions"]
        return found


def main() -> int:
    """Fetch and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--token")
    options = parser.parse_args()
    listed = [info for info in BUILTINS if "list" in info.verbs]
    found = {info.kind.qualified: columns(options.server, info.kind.path(), options.token) for info in listed}
    raw = json.dumps(found, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    TARGET.write_bytes(gzip.compress(raw, compresslevel=9, mtime=0))
    print(f"{TARGET.name}: {len(found)} resources, {TARGET.stat().st_size} bytes")  # noqa: T201 - a script that reports
    return 0


if __name__ == "__main__":
    sys.exit(main())
