"""Writes `docs/reference/kinds`: a page for every kind of our operators, and an index.

The pages are committed, so that they can be read in a repository browser; `tests/unit/docs/test_kind_reference.py`
fails when they are out of date. To change a text on them, change the docstring of the field and run this again.
"""

from __future__ import annotations

from pathlib import Path

from steersman.crd import crd_manifest
from steersman.crd.reference import reference_page
from steersman.operators import OPERATORS, load_operator

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "kinds"
INDEX = """# Kinds

Every kind that our operators define, with all of its fields. `kubectl explain KIND.spec` shows the same texts, and
`steersman crds FILE.py -o markdown` makes such a page of your own kinds.

| kind | operator | what it is |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made, rows = {}, ""
    for operator in sorted(OPERATORS):
        for kind in load_operator(operator).kinds:
            name, manifest = f"{kind.KIND.kind.lower()}.md", crd_manifest(kind)
            made[name] = reference_page(manifest)
            text = manifest["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["description"]
            rows += f"| [{kind.KIND.kind}]({name}) | {operator} | {text} |\n"
    return {"index.md": INDEX + rows, **made}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
