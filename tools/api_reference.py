"""The reference of public Python names, as Markdown: signatures and docstrings of what modules list in `__all__`.

The modules are those that the names of `import steersman as sm` come from, and a few more. Our docstrings are Markdown,
except for indented blocks, which are code or drawings.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import typing
from pathlib import Path

import msgspec

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "src" / "steersman"
NOTE = "<!-- Generated from the docstrings by tools/generate_docs.py. -->"
TITLES = {
    "kube": "`steersman.kube`: the client, and the data it carries",
    "cache": "`steersman.cache`: list and watch, kept as a consistent store",
    "crd": "`steersman.crd`: kinds from Python types",
    "runtime": "`steersman.runtime`: controllers, reconcilers, the manager",
    "testing": "`steersman.testing`: for tests of operators",
    "errors": "Errors, the clock and text",
}
MORE = (  # that the names of `sm` do not lead to
    *("steersman.kube.api.durations", "steersman.kube.api.errors"),
    *("steersman.kube.client.pod_streams", "steersman.kube.transport.server_warnings"),
    *("steersman.runtime.reconcile.plan_errors", "steersman.runtime.controller.field_handlers"),
    *(
        "steersman.cache.interfaces",
        "steersman.cache.factory",
        "steersman.cache.list_watch_state",
        "steersman.cache.store",
    ),
    *("steersman.crd.schema", "steersman.crd.diff"),
    *("steersman.crd.findings", "steersman.crd.compatibility", "steersman.crd.reference"),
    *("steersman.runtime.sharding.assignment", "steersman.runtime.observability.readiness"),
    *("steersman.runtime.http.authentication", "steersman.runtime.http.outbound"),
    *("steersman.runtime.workloads", "steersman.runtime.rbac"),
    *("steersman.testing.plugin", "steersman.testing.controller_session", "steersman.testing.request_log"),
    *("steersman.testing.clock", "steersman.testing.waiting", "steersman.testing.service_accounts"),
    *("steersman.testing.fault_proxy", "steersman.testing.controlplane.launcher"),
)
TYPES = "steersman.kube.api.types"


def api_pages() -> dict[str, str]:
    """The pages by file name: every public name in one table, and one page per package."""
    public = public_names()
    modules = sorted({*public.values(), *MORE} - {name for name in public.values() if name.startswith(TYPES)})
    pages: dict[str, list[str]] = {page: [] for page in TITLES}
    for module in modules:
        if module.startswith("steersman."):
            pages[_page_of(module)].append(module)
    made = {"names.md": _names(public)}
    for page, listed in pages.items():
        made[f"{page}.md"] = "\n".join([f"# {TITLES[page]}\n\n{NOTE}\n", *map(_module, listed)])
    return made


def public_names() -> dict[str, str]:
    """name -> module, of `import steersman as sm`."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    return {
        alias.name: str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def _page_of(module: str) -> str:
    part = module.partition(".")[2].partition(".")[0]
    return part if part in TITLES and module != "steersman.kube.api.errors" else "errors"


def _names(public: dict[str, str]) -> str:
    rows = []
    for name in sorted(public, key=str.lower):
        module = public[name]
        value = getattr(importlib.import_module(module), name)
        page = "built-in-kinds" if module.startswith(TYPES) else _page_of(module)
        link = f"[`sm.{name}`]({page}.md#{name.lower()})" if module.startswith("steersman.") else f"`sm.{name}`"
        rows.append(f"| {link} | {_first_sentence(value)} |")
    head = f"# Every public name\n\n{NOTE}\n\nThese are the names of `import steersman as sm`.\n"
    return "\n".join([head, "| name | what it is |", "|---|---|", *rows, ""])


def _first_sentence(value: object) -> str:
    if inspect.isclass(value):
        text = value.__dict__.get("__doc__") or f"A `{value.__bases__[0].__name__}`."
    elif inspect.isroutine(value):
        text = inspect.getdoc(value) or ""
    else:
        text = f"A `{type(value).__name__}`."
    return re.split(r"(?<=[.:])\s", " ".join(text.split("\n\n")[0].split()))[0].replace("|", "\\|")


def _module(name: str) -> str:
    module = importlib.import_module(name)
    parts = [f"## `{name}`\n\n{_markdown(module.__doc__ or '')}\n"]
    for public in getattr(module, "__all__", ()):
        value = getattr(module, public)
        if inspect.isclass(value):
            parts += _class(public, value)
        elif inspect.isroutine(value):
            text = _markdown(inspect.getdoc(value) or "")
            parts.append(f"### {public}\n\n```text\n{_wrapped(public, value)}\n```\n\n{text}\n")
        elif not isinstance(value, typing.TypeVar):
            parts.append(f"### {public}\n\nA value of type `{type(value).__name__}`.\n")
    return "\n".join(parts)


def _class(name: str, value: type) -> Iterator[str]:
    text = _markdown(inspect.cleandoc(value.__dict__.get("__doc__") or ""))
    bases = ", ".join(base.__name__ for base in value.__bases__ if base not in (object, msgspec.Struct, typing.Generic))
    yield f"### {name}\n\n```text\nclass {name}{f'({bases})' if bases else ''}\n```\n\n{text}\n"
    if issubclass(value, msgspec.Struct) and (fields := _fields(value)):
        yield fields
    for member, found in vars(value).items():
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if member.startswith("_"):
            continue
        if isinstance(function, property):
            yield f"- **`{member}`**: {_short(inspect.getdoc(function) or '')}\n"
        elif inspect.isfunction(function):
            yield f"- **`{_signature(member, function)}`**\n\n{_indented(_markdown(inspect.getdoc(function) or ''))}\n"


def _fields(shape: type[msgspec.Struct]) -> str:
    declared = [base for base in reversed(shape.__mro__) if base is shape or base.__module__.startswith(TYPES)]
    hints = {name: _readable(hint) for base in declared for name, hint in inspect.get_annotations(base).items()}
    rows = [
        f"| `{field.name}` | `{hints[field.name]}` | {_default(field)} |"
        for field in msgspec.structs.fields(shape)
        if field.name in hints
    ]
    return "\n".join(["| field | type | default |", "|---|---|---|", *rows, ""]) if rows else ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
    if isinstance(value, str | int | float | bool | None):
        return f"`{value!r}`"
    return {dict: "`{}`", list: "`[]`", set: "`set()`"}.get(value, "") if isinstance(value, type) else ""  # type: ignore[call-overload]


def _readable(hint: object) -> str:
    text = (
        hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
    )
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text).replace("|", "\\|")


def _signature(name: str, function: object) -> str:
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    kept = [
        parameter.replace(annotation=_bare(parameter.annotation), default=_shown(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=kept, return_annotation=_bare(signature.return_annotation)))
    text = re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text))
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}{name}{text}"


def _wrapped(name: str, function: object) -> str:
    """The signature, with one parameter on a line when it is long."""
    shown = _signature(name, function)
    if len(shown) <= 100:
        return shown
    opening, closing = shown.index("("), shown.rindex(") -> ") if ") -> " in shown else shown.rindex(")")
    parts, depth, start = [], 0, opening + 1
    for place in range(opening + 1, closing):
        depth += shown[place] in "([{"
        depth -= shown[place] in ")]}"
        if shown[place] == "," and depth == 0:
            parts.append(shown[start : place + 1].strip())
            start = place + 1
    parts.append(f"{shown[start:closing].strip()},")
    return "\n".join([shown[: opening + 1], *(f"    {part}" for part in parts), shown[closing:]])


class _Text(str):
    """An annotation as it is written in the source."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(default: object) -> object:
    """A default as it is printed: only values that every machine and every run prints alike."""
    plain = default is inspect.Parameter.empty or isinstance(default, str | int | float | bool | None)
    return default if plain or default in ((), frozenset()) else _Text("...")


def _bare(annotation: object) -> object:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _short(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _markdown(text: str) -> str:
    """A docstring with its indented and interactive blocks fenced, and without headings."""
    parts: list[str] = []
    for block in re.split(r"\n{2,}", inspect.cleandoc(text)):
        lines = block.splitlines()
        if not lines:
            continue
        split = next((number for number, line in enumerate(lines) if line.startswith((">>> ", "    "))), len(lines))
        if re.match(r"\s*([-*]|\d+\.) ", lines[0]):
            split = len(lines)
        if prose := lines[:split]:
            parts.append("\n".join(line.replace("<", "&lt;") if "`" not in line else line for line in prose))
        if code := lines[split:]:
            tick = "pycon" if code[0].startswith(">>> ") else "text"
            shown = textwrap.dedent("\n".join(code))
            if parts and parts[-1].startswith(f"```{tick}\n") and not prose:
                parts[-1] = parts[-1].removesuffix("\n```") + f"\n\n{shown}\n```"
            else:
                parts.append(f"```{tick}\n{shown}\n```")
    return "\n\n".join(parts)


def kinds_page() -> str:
    """The built-in kinds, with the fields that our structs have."""
    head = f"""# Built-in kinds

{NOTE}

The kinds of Kubernetes that controllers use most, as slim structs: they have only the fields below. Other fields
of an object are not decoded, and a patch or an apply keeps them. Kinds that `sm` does not have are in
`{TYPES}`; for any other kind, [declare the fields that you need](../concepts/crds.md).
"""
    parts = [head]
    for path in sorted((PACKAGE / "kube" / "api" / "types").glob("*.py")):
        if path.stem == "__init__":
            continue
        module = importlib.import_module(f"{TYPES}.{path.stem}")
        parts.append(f"## `{TYPES}.{path.stem}`\n\n{_markdown(module.__doc__ or '')}\n")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, msgspec.Struct):
                kind = getattr(value, "KIND", None)
                served = f"`{kind.api_version}`, kind `{kind.kind}`. " if kind is not None else ""
                parts.append(f"### {name}\n\n{served}{_short(inspect.cleandoc(value.__dict__.get('__doc__') or ''))}\n")
                if fields := _fields(value):
                    parts.append(fields)
    return "\n".join(parts)
