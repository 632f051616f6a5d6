"""Write what chart and kustomize base take from the package: rules, definitions, manifests, the README of the values.

python tools/generate_chart.py            # write
A test calls `generated()` and compares, so a chart that is behind the code fails.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from steersman.cli.manifests import Installation
from steersman.cli.settings import load_settings
from steersman.crd import crd_manifest
from steersman.operators import OPERATORS, load_operator
from steersman.operators.rights import rights_of, rule_as_written

sys.path.insert(0, str(Path(__file__).parent))  # tools are scripts, not a package
from dashboard import dashboard

CHART = Path(__file__).parents[1] / "charts" / "steersman"
BASE = "../../deploy/kustomize/base/steersman.yaml"


def generated() -> dict[str, str]:
    """Every generated file by its path, seen from the chart."""
    defaults = load_settings(None).sections
    made = {
        "README.md": readme((CHART / "values.yaml").read_text()),
        "files/dashboards/steersman.json": dashboard(),
    }
    base = Installation(operators=[(load_operator("reload"), defaults["reload"])], settings={})
    made[BASE] = "---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in base.manifests())
    for name in OPERATORS:
        operator = load_operator(name)
        rights = rights_of([(operator, defaults.get(name))])
        rules = {
            "namespace": [rule_as_written(rule) for rule in rights.namespace],
            "cluster": [rule_as_written(rule) for rule in rights.cluster],
        }
        made[f"files/rules/{name}.yaml"] = yaml.safe_dump(rules, sort_keys=False)
        for kind in operator.kinds:
            path = f"files/crds/{name}/{kind.KIND.plural}.yaml"
            made[path] = yaml.safe_dump(crd_manifest(kind), sort_keys=False)
    return made


def readme(values: str) -> str:
    """The chart's README: how to install it, and a row per value with the comment above it."""
    rows = "\n".join(f"| `{name}` | {default} | {text} |" for name, default, text in documented(values))
    return f"""# steersman

Operators that keep a cluster on course. [What they do](../../README.md).

```
helm install steersman charts/steersman --namespace steersman --create-namespace
```

Definitions are templates, so an upgrade upgrades them; they stay when the release is uninstalled.
`steersman manifests` prints the same objects without Helm.

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
