"""Writes what pages of the documentation take from the code: the reference, and the parts between two comments.

    <!-- include: ../examples/webapp.py from LINE until TEXT -->   a file, or its part after a line and before a text
    <!-- list: start.md [0-9]*.md -->                              pages of this folder, with their first sentence
    <!-- names: *.md -->                                           the same, without the sentence
    <!-- end -->

Everything is committed, so that it can be read in a repository browser; `tests/unit/docs/test_generated_docs.py` fails
when it is out of date. To change a text, change the comment or docstring it comes from and run this again.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import typing
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "steersman"
sys.path.insert(0, str(Path(__file__).parent))  # tools are scripts, not a package
from api_reference import api_pages, kinds_page  # noqa: E402  # after the path

MARKED = re.compile(
    r"^<!-- (?P<what>include|list|names): (?P<argument>.*?) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
METRICS = {"Counter", "Gauge", "Histogram", "_counter", "_gauge"} | {
    f"{sort}MetricFamily" for sort in ("Counter", "Gauge", "Histogram")
}
ALIASES = "metric_aliases.py"  # the same numbers under the names of other programs


def generated() -> dict[Path, str]:
    """Every page with something generated, as it should be."""
    reference = DOCS / "reference"
    made = {reference / "configuration.md": configuration(), reference / "metrics.md": metrics()}
    made |= {reference / name: text for name, text in api_pages().items()}
    made[reference / "built-in-kinds.md"] = kinds_page()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if page not in made and MARKED.search(text):
            made[page] = MARKED.sub(lambda mark, page=page: _filled(mark, page), text)
    return made


# -- parts of pages --------------------------------------------------------------------------------------------------


def _filled(mark: re.Match[str], page: Path) -> str:
    what, argument = mark["what"], mark["argument"]
    part = _file(page.parent, argument) if what == "include" else _list(page, argument, sentences=what == "list")
    return f"<!-- {what}: {argument} -->\n\n{part}\n\n<!-- end -->"


def _file(folder: Path, argument: str) -> str:
    argument, _, end = argument.partition(" until ")
    name, _, start = argument.partition(" from ")
    text = (folder / name).read_text()
    if start:
        text = text.partition(f"{start}\n")[2]
    if end:
        text = text.partition(end)[0]
    return text.strip("\n") if name.endswith(".md") else f"```python\n{text.strip(chr(10))}\n```"


def _list(page: Path, pattern: str, *, sentences: bool) -> str:
    rows = []
    for path in (path for part in pattern.split() for path in sorted(page.parent.glob(part))):
        if path != page:
            title, _, rest = path.read_text().partition("\n")
            paragraph = " ".join(rest.strip().split("\n\n")[0].split()).removeprefix("**Invariant.** ")
            first = re.split(r"(?<=\.)\s", paragraph)[0]
            rows.append(f"- [{title.lstrip('# ')}]({path.name})" + (f": {first}" if sentences else ""))
    return "\n".join(rows)


# -- configuration ---------------------------------------------------------------------------------------------------


def configuration() -> str:
    """The keys of steersman.yaml."""
    from steersman.cli.config import RunSettings
    from steersman.operators import OPERATORS, load_operator

    head = """# Configuration

<!-- Generated from the types by tools/generate_docs.py. -->

`steersman run --config steersman.yaml` reads these keys; the chart has them below `config`. Flags take precedence over
the environment (`STEERSMAN_…`), and the environment over the file. Durations are strings such as `500ms` or `5m`.
An unknown key is an error that names its line.

## Every operator
"""
    parts = [head, _keys(RunSettings, "", leave_out={"sections"})]
    for name in sorted(OPERATORS):
        shape = load_operator(name).config
        if shape is not None:
            parts += [f"\n## {name}\n", _keys(shape, f"{name}.")]
    return "\n".join(parts) + "\n"


def _keys(shape: type[msgspec.Struct], prefix: str, leave_out: frozenset[str] | set[str] = frozenset()) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    rows += [f"| `{key}` | {default} | {text} |" for key, default, text in _rows(shape, prefix, leave_out)]
    return "\n".join(rows)


def _rows(
    shape: type[msgspec.Struct], prefix: str, leave_out: frozenset[str] | set[str] = frozenset()
) -> typing.Iterator[tuple[str, str, str]]:
    comments, types = _comments(shape), typing.get_type_hints(shape)
    for field in msgspec.structs.fields(shape):
        if field.name in leave_out:
            continue
        key, inner, several = f"{prefix}{field.encode_name}", _struct_in(types[field.name]), _several(types[field.name])
        text = comments.get(field.name, "")
        if choices := _choices(types[field.name]):
            text = f"{choices}{': ' if text else ''}{text}"
        default = _default(field, inner)
        if default or text:  # a section that is only its keys has neither
            yield key, default, re.sub(r"\bNone\b", "unset", text).replace("|", "\\|")
        if inner is not None and inner is not shape:
            yield from _rows(inner, f"{key}{several}.")


def _default(field: msgspec.structs.FieldInfo, inner: type | None) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        return "required"
    if inner is not None and isinstance(value, msgspec.Struct):
        return ""
    value = {True: "true", False: "false", None: "unset"}.get(value, value) if isinstance(value, bool | None) else value
    if isinstance(value, tuple | list | set | frozenset):
        return f"`[{', '.join(map(str, sorted(value) if isinstance(value, set | frozenset) else value))}]`"
    return '`""`' if value == "" else f"`{value}`"


def _struct_in(annotation: object) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    found = [_struct_in(part) for part in typing.get_args(annotation)]
    return next((part for part in found if part is not None), None)


def _several(annotation: object) -> str:
    origin = typing.get_origin(annotation)
    if origin in (tuple, list):
        return "[]"
    return ".NAME" if origin is dict else next(filter(None, map(_several, typing.get_args(annotation))), "")


def _choices(annotation: object) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    return ""


def _comments(shape: type) -> dict[str, str]:
    """What follows each field as a comment on its line."""
    path = Path(sys.modules[shape.__module__].__file__ or "")
    text = path.read_text()
    remarks = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and "noqa" not in token.string
    }
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == shape.__name__:
            for row in node.body:
                if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name):
                    lines = range(row.lineno, (row.end_lineno or row.lineno) + 1)
                    found[row.target.id] = " ".join(remarks[line] for line in lines if line in remarks)
    return found


# -- metrics ---------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """Every series, by the part of the program that reports it."""
    head = """# Metrics

<!-- Generated from the source by tools/generate_docs.py. -->

`steersman run` serves these at `/metrics`. Series of controllers, queues, requests and elections have the names that
controller-runtime and client-go use, so existing dashboards work. A [profile](../reload-dialects.md) adds the names of
the program that it replaces.
"""
    sections: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == ALIASES:
            continue
        for name, sort, labels, text in _series(path):
            place = path.relative_to(SOURCE).parts
            section = place[1] if place[0] == "operators" else "The runtime"
            if name.startswith("bindcar"):
                section = "The sidecar of name servers (`steersman dns sidecar`)"
            shown = ", ".join(f"`{label}`" for label in labels)
            sections.setdefault(section, []).append(f"| `{name}` | {sort} | {shown} | {text} |")
    parts = [head]
    for section in sorted(sections, key=lambda name: (name != "The runtime", name)):
        rows = sorted(set(sections[section]))
        parts.append(
            "\n".join([f"## {section}\n", "| metric | type | labels | meaning |", "|---|---|---|---|", *rows]) + "\n"
        )
    return "\n".join(parts)


def _series(path: Path) -> typing.Iterator[tuple[str, str, list[str], str]]:
    """(name, type, labels, help) of each metric that a module makes."""
    text = path.read_text()
    if not any(word in text for word in ("prometheus_client",)):
        return
    known: dict[str, object] = {}
    tree = ast.parse(text)
    passed_on = {  # calls in functions that make a family of what they are given
        call
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and call.args
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id in {argument.arg for argument in function.args.args}
    }
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.Call)]
    for node in sorted(
        nodes, key=lambda node: (node.lineno, not isinstance(node, ast.Assign | ast.AnnAssign | ast.For))
    ):
        if isinstance(node, ast.Assign):
            _remember(node.targets[0], node.value, known)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            _remember(node.target, node.value, known)
        elif isinstance(node, ast.For):
            choices = _value(node.iter, known)
            if isinstance(node.target, ast.Name) and isinstance(choices, list):
                known[node.target.id] = choices
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in METRICS and node not in passed_on:
            if len(node.args) < 2:
                continue
            name, meaning = _value(node.args[0], known), _value(node.args[1], known)
            named = next((word.value for word in node.keywords if word.arg in ("labels", "labelnames")), None)
            labels = _value(named if named is not None else node.args[2], known) if named or len(node.args) > 2 else []
            sort = node.func.id.lstrip("_").removesuffix("MetricFamily").lower()  # type: ignore[attr-defined]
            names = name if isinstance(name, list) else [name]
            meanings = meaning if isinstance(meaning, list) else [meaning] * len(names)
            for each, help_text in zip(names, meanings, strict=True):
                if not isinstance(each, str):
                    raise SystemExit(
                        f"error: {path.relative_to(ROOT)}:{node.lineno}: the name of this metric is not a constant"
                    )
                full = f"{each.removesuffix('_total')}_total" if sort == "counter" else each
                yield full, sort, [str(label) for label in labels or []], str(help_text).replace("<", "&lt;")  # type: ignore[union-attr]


def _remember(target: ast.expr, value: ast.expr, known: dict[str, object]) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, what in zip(target.elts, value.elts, strict=True):
            _remember(part, what, known)
    elif isinstance(target, ast.Name):
        found = _value(value, known)
        if found is not None or target.id not in known:
            known[target.id] = found


def _value(node: ast.expr, known: dict[str, object]) -> object:
    """The value of an expression made of constants; a list for one that depends on a loop over constants."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.List | ast.Tuple):
        found: list[object] = []
        for part in node.elts:
            value = _value(part.value if isinstance(part, ast.Starred) else part, known)
            found += value if isinstance(part, ast.Starred) and isinstance(value, list) else [value]
        return found
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            value = _value(part.value if isinstance(part, ast.FormattedValue) else part, known)
            choices = value if isinstance(value, list) else [value]
            if any(choice is None for choice in choices):
                return None
            texts = [f"{text}{choice}" for choice in choices for text in texts]
        return texts if len(texts) > 1 else texts[0]
    return None


def main() -> None:
    """Write them all."""
    for path, text in generated().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
