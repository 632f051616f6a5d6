"""What is published beside a wheel: checksums, a bill of materials (CycloneDX) and a provenance statement (in-toto).

    python tools/release_files.py dist          # for every file in dist

The same input gives the same bytes: times come from SOURCE_DATE_EPOCH, the serial number from the content.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "image" / "requirements.lock"
OURS = "steersman"


def locked(text: str) -> list[tuple[str, str, list[str]]]:
    """(name, version, SHA-256 digests) of every pinned requirement."""
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        head = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", block)
        if head is not None:
            found.append((head[1], head[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", block)))
    return found


def bill_of_materials(moment: int) -> dict[str, Any]:
    """The packages that the image holds beside ours, with their licences and the digests they are pinned to."""
    version = importlib.metadata.version(OURS)
    components = [_component(*requirement) for requirement in locked(LOCK.read_text())]
    reference = f"pkg:pypi/{OURS}@{version}"
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": dt.datetime.fromtimestamp(moment, dt.UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": OURS,
                "version": version,
                "purl": reference,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    content = json.dumps(bill, sort_keys=True)
    return {**bill, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"}


def _component(name: str, version: str, digests: list[str]) -> dict[str, Any]:
    reference = f"pkg:pypi/{name}@{version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "properties": [{"name": "steersman:pinned:sha256", "value": digest} for digest in digests],
    }
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return component  # for another platform
    licence = about.get("License-Expression") or about.get("License") or ""
    if licence and "\n" not in licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def provenance(files: list[Path], moment: int) -> dict[str, Any]:
    """An in-toto statement: these files were made from this commit by this recipe."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest_of(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://github.com/pypa/hatch",
                "externalParameters": {"target": "wheel"},
                "resolvedDependencies": [
                    {"uri": f"pkg:pypi/{name}@{version}"} for name, version, _ in locked(LOCK.read_text())
                ]
                + [{"uri": "git+source", "digest": {"gitCommit": commit}}],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("GITHUB_WORKFLOW_REF", "local")},
                "metadata": {"startedOn": dt.datetime.fromtimestamp(moment, dt.UTC).isoformat()},
            },
        },
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(folder: Path, moment: int) -> None:
    """Write the three files into `folder`."""
    made = {"steersman.cdx.json", "provenance.json", "SHA256SUMS"}
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in made)
    (folder / "steersman.cdx.json").write_text(json.dumps(bill_of_materials(moment), indent=2) + "\n")
    (folder / "provenance.json").write_text(json.dumps(provenance(files, moment), indent=2) + "\n")
    (folder / "SHA256SUMS").write_text("".join(f"{digest_of(path)}  {path.name}\n" for path in files))


def main() -> None:
    """Write them where the command line says."""
    parser = argparse.ArgumentParser(description="Write what is published beside a wheel.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))


if __name__ == "__main__":
    main()
