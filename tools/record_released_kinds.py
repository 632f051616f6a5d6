"""Records the definitions of our kinds as released: `tests/unit/golden/released/definitions.json`.

Run it with every release, and never between releases: `tests/unit/crd/test_our_kinds.py` fails on a change that breaks
users of what is recorded. Descriptions are left out, because they may change at any time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from steersman.crd import crd_manifest
from steersman.operators import OPERATORS, load_operator

FILE = Path(__file__).parent.parent / "tests" / "unit" / "golden" / "released" / "definitions.json"


def without_descriptions(value: Any) -> Any:
    """The same without the texts; a field called `description` is not one of them."""
    if isinstance(value, list):
        return [without_descriptions(item) for item in value]
    if not isinstance(value, dict):
        return value
    texts = {"description"} if isinstance(value.get("description"), str) else set()
    return {key: without_descriptions(part) for key, part in value.items() if key not in texts}


if __name__ == "__main__":
    kinds = [kind for operator in sorted(OPERATORS) for kind in load_operator(operator).kinds]
    lines = [json.dumps(without_descriptions(crd_manifest(kind))) for kind in kinds]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
