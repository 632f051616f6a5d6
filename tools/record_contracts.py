"""Record what other people and older releases rely on, as files that a test compares with the code.

python tools/record_contracts.py          # write tests/unit/golden/recorded, then read the difference before committing
A name or a field that is added is recorded by running this again. One that disappears or changes breaks users: a
dashboard, a manifest, a script. Where modules and classes are in the source plays no part in any of these files.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

import steersman
from steersman.cli.config import RunSettings
from steersman.cli.main import cli
from steersman.operators import OPERATORS, load_operator
from steersman.operators.toolset.http.openapi import document as toolset_openapi
from steersman.web.openapi import openapi as page_openapi

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
RECORDED: Final = ROOT / "tests" / "unit" / "golden" / "recorded"
SOURCE: Final = Path(steersman.__file__).parent
OURS: Final = ("cache", "cli", "kube", "operators", "runtime", "simulate", "web")  # what runs in a cluster

_KEY: Final = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]+/[A-Za-z0-9._-]*")  # of an annotation, a label or a finalizer
_METRIC: Final = re.compile(r"_?(counter|gauge|histogram|summary|info)(?:metricfamily)?", re.IGNORECASE)
_DECLARED: Final = re.compile(rf"\b{_METRIC.pattern}\(", re.IGNORECASE)
_METRIC_NAME: Final = re.compile(r"[a-z0-9*]+(?:_[a-z0-9*]+)+")
_NAMING: Final = {"properties", "paths", "responses"}  # whose keys are names, not words of the schema
_WORDS: Final = {"description", "summary", "title", "version"}  # for people to read, and free to change


def contracts() -> dict[str, str]:
    """Every recorded file by its name."""
    found = {
        "annotations": sorted(_annotations()),
        "metrics": sorted(_metrics()),
        "page-api": _inlined(page_openapi()),
        "toolset-api": _inlined(toolset_openapi()),
        "commands": _command(cli, click.Context(cli, info_name="steersman")),
        "settings": _settings(),
    }
    return {f"{name}.json": json.dumps(value, indent=1, sort_keys=True) + "\n" for name, value in found.items()}


@cache
def _trees(pattern: re.Pattern[str]) -> list[ast.Module]:
    """The modules in whose text the pattern occurs."""
    texts = (path.read_text() for folder in OURS for path in sorted((SOURCE / folder).rglob("*.py")))
    return [ast.parse(text) for text in texts if pattern.search(text)]


def _annotations() -> set[str]:
    """Whole strings that look like `example.org/name`: annotations, labels, finalizers, and groups with a version."""
    nodes = (node for tree in _trees(_KEY) for node in ast.walk(tree))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if _KEY.fullmatch(text)}


def _metrics() -> set[str]:
    """`kind name labels` of every metric that the source declares."""
    found = set()
    for tree in _trees(_DECLARED):
        for node, known in _calls(tree, {}):
            if not node.args:
                continue
            kind, name = _METRIC.fullmatch(node.func.id), _text(node.args[0], known)
            if kind is None or name is None or not _METRIC_NAME.fullmatch(name):
                continue
            lists = [*node.args[1:], *(word.value for word in node.keywords if word.arg == "labels")]
            labels = [_list(one, known) for one in lists if isinstance(one, ast.List | ast.Tuple | ast.Name)]
            named = ",".join(next((label for label in labels if label is not None), ()))
            found.add(f"{kind[1].lower()} {name} {named}".rstrip())
    return found


def _calls(scope: ast.AST, known: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Calls of plain names, each with the texts that its module and its function give to names."""
    known = known | _known_texts(scope)
    for node in _inside(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _calls(node, known)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node, known


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything in a scope; of functions inside it, only that they are there."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def _known_texts(scope: ast.AST) -> dict[str, Any]:
    """Names that are given a text, or a list of texts, at exactly one place of a scope."""
    given: dict[str, list[ast.expr]] = {}
    for node in _inside(scope):
        if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            given.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name):
                        given.setdefault(name.id, []).append(value)
    once = {name: values[0] for name, values in given.items() if len(values) == 1}
    texts = {name: value.value for name, value in once.items() if isinstance(value, ast.Constant)}
    return texts | {name: _list(value, texts) for name, value in once.items() if isinstance(value, ast.List)}


def _text(node: ast.expr, known: dict[str, Any]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and isinstance(known.get(node.id), str):
        return str(known[node.id])
    if isinstance(node, ast.JoinedStr):
        parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
        return "".join(_text(part, known) or "*" for part in parts)
    return None


def _list(node: ast.expr, known: dict[str, Any]) -> list[str] | None:
    if isinstance(node, ast.Name):
        value = known.get(node.id)
        return value if isinstance(value, list) else None
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    found: list[str] = []
    for part in node.elts:
        several = _list(part.value, known) if isinstance(part, ast.Starred) else None
        text = _text(part, known)
        found += several if several is not None else [text] if text is not None else []
    return found


def _inlined(document: dict[str, Any]) -> Any:
    """A document without words for people, and without the names of our types."""
    schemas = document.get("components", {}).get("schemas", {})

    def shown(value: Any, within: tuple[str, ...] = (), named: bool = False) -> Any:
        if isinstance(value, list):
            return [shown(item, within) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            return (
                {"again": len(within) - within.index(name)} if name in within else shown(schemas[name], (*within, name))
            )
        return {
            key: {} if key[:1] in "45" and "content" in one else shown(one, within, named=not named and key in _NAMING)
            for key, one in value.items()
            if named or not (key in _WORDS and isinstance(one, str))
        }

    return shown({key: value for key, value in document.items() if key not in {"components", "info"}})


def _settings() -> dict[str, Any]:
    """The configuration file: its own settings, and the section of each operator."""
    found = {"": _schema(RunSettings)}
    for name in sorted(OPERATORS):
        shape = load_operator(name).config
        if shape is not None:
            found[name] = _schema(shape)
    return found


def _schema(shape: Any) -> Any:
    schemas, components = msgspec.json.schema_components([shape], ref_template="#/components/schemas/{name}")
    return _inlined({"schema": schemas[0], "components": {"schemas": components}})["schema"]


def _command(command: click.Command, context: click.Context) -> dict[str, Any]:
    """Arguments, options and commands below; not what the help says of them, nor `--help`, which all have."""
    found: dict[str, Any] = {"parameters": [_parameter(parameter) for parameter in command.params]}
    if isinstance(command, click.Group):
        found["commands"] = {}
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found["commands"][name] = _command(below, click.Context(below, parent=context, info_name=name))
    return found


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    shown: dict[str, Any] = {"names": sorted([*parameter.opts, *parameter.secondary_opts])}
    if isinstance(parameter, click.Argument):
        shown["names"] = [parameter.human_readable_name]
    kind = parameter.type
    shown["type"] = sorted(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name
    for name in ("required", "multiple", "is_flag", "envvar", "nargs"):
        value = getattr(parameter, name, None)
        if value not in {None, False, 1}:
            shown[name] = value
    return shown


def main() -> None:
    """Write them all."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    for name, text in contracts().items():
        (RECORDED / name).write_text(text)


if __name__ == "__main__":
    main()
