"""The reference of a kind as Markdown, made of its definition: what `kubectl explain` shows, on one page.

One section per object in the schema, with a table of its fields; an object inside another has a section of its own and
is linked from its row. Headings and tables are plain Markdown, so that repository browsers show them too. Pure.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from steersman.crd.findings import SERVER_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["reference_page"]

JSON = dict[str, Any]


def reference_page(manifest: JSON) -> str:
    """The page of one kind; served versions are described newest first."""
    spec = manifest["spec"]
    served = [version for version in reversed(spec["versions"]) if version["served"]]
    lines = [f"# {spec['names']['kind']}", "", _paragraph(served[0]["schema"]["openAPIV3Schema"]), ""]
    lines += _table(("", ""), _facts(spec, served))
    for version in served:
        lead = f"{version['name']} " if len(served) > 1 else ""
        for name, node in version["schema"]["openAPIV3Schema"].get("properties", {}).items():
            if name not in SERVER_FIELDS:
                lines += _sections(lead, name, node, level=2)
    return "\n".join(lines).rstrip() + "\n"


def _facts(spec: JSON, served: list[JSON]) -> list[tuple[str, str]]:
    names = spec["names"]
    columns = served[0].get("additionalPrinterColumns") or ()
    selectable = [row["jsonPath"].removeprefix(".") for row in served[0].get("selectableFields") or ()]
    deprecated = {
        version["name"]: version.get("deprecationWarning", "") for version in served if "deprecated" in version
    }
    facts = {
        "API version": ", ".join(f"`{spec['group']}/{version['name']}`" for version in served),
        "deprecated": "; ".join(f"`{name}` {text}".strip() for name, text in deprecated.items()),
        "scope": "a namespace" if spec["scope"] == "Namespaced" else "the cluster",
        "names for kubectl": _codes([names["plural"], *names.get("shortNames", ())]),
        "categories": _codes(names.get("categories", ())),
        "subresources": _codes(served[0].get("subresources") or ()),
        "columns": ", ".join(row["name"] for row in columns if not row.get("priority")),
        "columns with `-o wide`": ", ".join(row["name"] for row in columns if row.get("priority")),
        "field selectors": _codes(selectable),
    }
    return [(name, text) for name, text in facts.items() if text]


def _sections(lead: str, path: str, node: JSON, *, level: int) -> Iterator[str]:
    """The section of an object, then those of the objects in it."""
    path, node = _element(path, node)
    fields = node.get("properties")
    if not fields:
        return
    yield from ("", f"{'#' * level} {lead}{path}", "", _paragraph(node), "")
    if rules := [rule.get("message") or rule["rule"] for rule in node.get("x-kubernetes-validations") or ()]:
        yield from (*(f"- {text}" for text in rules), "")
    required = node.get("required") or ()
    yield from _table(
        ("field", "type", "description"),
        [
            (_named(lead, f"{path}.{name}", name, child), _type(child), _text(child, is_required=name in required))
            for name, child in fields.items()
        ],
    )
    for name, child in fields.items():
        yield from _sections(lead, f"{path}.{name}", child, level=3)


def _element(path: str, node: JSON) -> tuple[str, JSON]:
    """The object that a list or map holds, however deep; any other node as it is."""
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            return _element(path + step, node[key])
    return path, node


def _named(lead: str, path: str, name: str, node: JSON) -> str:
    path, inner = _element(path, node)
    if not inner.get("properties"):
        return f"`{name}`"
    anchor = re.sub(r"[^\w\- ]", "", f"{lead}{path}".lower()).replace(" ", "-")  # as repository browsers make them
    return f"[`{name}`](#{anchor})"


def _type(node: JSON) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if isinstance(node.get("items"), dict):
        return f"list of {_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"map of {_type(node['additionalProperties'])}"
    return str(node.get("type") or "any")


def _text(node: JSON, *, is_required: bool) -> str:
    inner = _element("", node)[1]
    parts = ["**Required.**" if is_required else "", _paragraph(node), *_constraints(node)]
    if inner is not node:
        parts += [f"Each: {text[0].lower()}{text[1:]}" for text in _constraints(inner)]
    if (default := node.get("default")) not in (None, {}, ""):
        parts.append(f"Default: {_code(default)}.")
    return " ".join(filter(None, parts))


def _constraints(node: JSON) -> list[str]:
    """What a value must keep to, one sentence each."""
    found = []
    if values := node.get("enum"):
        found.append(f"One of {_codes([value or json.dumps(value) for value in values])}.")
    if (form := node.get("format")) and form != "int64":
        found.append(f"Format: {form}.")
    found.append(_range(node.get("minimum"), node.get("maximum"), ""))
    found.append(_range(node.get("minLength"), node.get("maxLength"), " characters"))
    found.append(_range(node.get("minItems"), node.get("maxItems"), " items"))
    found.append(_range(node.get("minProperties"), node.get("maxProperties"), " entries"))
    if pattern := node.get("pattern"):
        found.append(f"Matches {_code(pattern)}.")
    if keys := node.get("x-kubernetes-list-map-keys"):
        found.append(f"Unique by {_codes(keys)}.")
    if node.get("x-kubernetes-list-type") == "set":
        found.append("Without duplicates.")
    if not node.get("properties"):
        texts = [rule.get("message") or rule["rule"] for rule in node.get("x-kubernetes-validations") or ()]
        found += [f"{text[0].upper()}{text[1:]}." for text in texts]
    return [text for text in found if text]


def _range(least: float | None, most: float | None, unit: str) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}{unit}."
    if least is not None:
        return f"At least {least}{unit}."
    return "" if most is None else f"At most {most}{unit}."


def _paragraph(node: JSON) -> str:
    return " ".join(str(node.get("description", "")).split())


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _codes(values: Any) -> str:
    return ", ".join(map(_code, values))


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [columns, tuple("---" for _ in columns), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
