"""Write what chart and kustomize base take from the package: rules, definitions, manifests, schema and README of the
values.

python tools/generate_chart.py            # write
A test calls `generated()` and compares, so a chart that is behind the code fails.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec
import yaml

from steersman.cli.config import load_settings
from steersman.cli.install.manifests import InstallOptions
from steersman.crd import crd_manifest
from steersman.operators import OPERATORS, load_operator, permissions_of
from steersman.runtime.rbac import rule_manifest

sys.path.insert(0, str(Path(__file__).parent))  # tools are scripts, not a package
from dashboard import dashboard

CHART = Path(__file__).parents[1] / "charts" / "steersman"
BASE = "../../deploy/kustomize/base/steersman.yaml"


def generated() -> dict[str, str]:
    """Every generated file by its path, seen from the chart."""
    defaults = load_settings(None).sections
    made = {
        "README.md": readme((CHART / "values.yaml").read_text()),
        "values.schema.json": values_schema((CHART / "values.schema.json").read_text()),
        "files/dashboards/steersman.json": dashboard(),
    }
    base = InstallOptions(operators=[(load_operator("reload"), defaults["reload"])], settings={})
    made[BASE] = "---\n".join(dumped(manifest) for manifest in base.manifests())
    for name in OPERATORS:
        operator = load_operator(name)
        rights = permissions_of([(operator, defaults.get(name))])
        rules = {
            "namespace": [rule_manifest(rule) for rule in rights.namespace],
            "cluster": [rule_manifest(rule) for rule in rights.cluster],
            "own": [rule_manifest(rule) for rule in rights.own],
        }
        made[f"files/rules/{name}.yaml"] = dumped(rules)
        for kind in operator.kinds:
            path = f"files/crds/{name}/{kind.KIND.plural}.yaml"
            made[path] = dumped(crd_manifest(kind))
    return made


def dumped(manifest: object) -> str:
    """YAML; PyYAML's C library is many times as quick as its Python code."""
    text: str = yaml.dump(manifest, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    return text


def values_schema(known: str) -> str:
    """The schema of the values, with the section of every operator as its typed configuration is."""
    schema, definitions = json.loads(known), {}
    for name in OPERATORS:
        shape = load_operator(name).config
        (section,), parts = msgspec.json.schema_components([shape], ref_template="#/definitions/{name}")
        definitions |= parts
        schema["properties"]["config"]["properties"][name] = section
    for part in definitions.values():
        if "properties" in part:
            part["additionalProperties"] = False  # a misspelt setting fails before anything is installed
    schema["definitions"] = dict(sorted(definitions.items()))
    return json.dumps(schema, indent=2, default=str) + "\n"


def readme(values: str) -> str:
    """The chart's README: how to install it, and a row per value with the comment above it."""
    rows = "\n".join(f"| `{name}` | {default} | {text} |" for name, default, text in documented(values))
    return f"""# steersman

Installs the operators of Steersman. [What they do](../../README.md).

There is no public image. [Build one](../../docs/installing.md#the-image), push it to a registry that the cluster can
reach, and name it:

```
helm install steersman charts/steersman --namespace steersman --create-namespace \\
  --set image.repository=registry.example.org/steersman
```

The definitions of custom kinds are templates: an upgrade upgrades them, and an uninstall keeps them. If they exist
already, add `--take-ownership`. `steersman manifests --image IMAGE` prints the same objects without Helm.

| value | default | what it does |
|---|---|---|
{rows}
"""


def documented(values: str) -> list[tuple[str, str, str]]:
    """(name, default, comment) of every leaf, in the order of the file."""
    found: list[tuple[str, str, str]] = []
    comment: list[str] = []
    path: list[str] = []
    for line in values.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            if not stripped.startswith("# config:"):
                comment.append(stripped.lstrip("# "))
            continue
        entry = re.match(r"( *)([A-Za-z]+):(?: (.*))?$", line)
        if entry is None:
            comment = []
            continue
        depth = len(entry[1]) // 2
        path = [*path[:depth], entry[2]]
        if entry[3] is not None:
            default = entry[3].replace("|", "\\|")
            found.append((".".join(path), f"`{default}`", " ".join(comment)))
        elif comment:
            found.append((".".join(path), "", " ".join(comment)))
        comment = []
    return found


def main() -> None:
    """Write them all, and remove definitions of kinds that are gone."""
    made = generated()
    for folder in ("files/rules", "files/crds"):
        for path in (CHART / folder).rglob("*.yaml"):
            if str(path.relative_to(CHART)) not in made:
                path.unlink()
    for name, text in made.items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(text)


if __name__ == "__main__":
    main()
