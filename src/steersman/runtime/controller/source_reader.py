"""Which requests the functions of a controller make, read from their source. Nothing is run.

A function is followed statement by statement with what is known of each name (`inferred_values`). Calls of the
author's own functions are followed too: those of the same package, and of files in the same folder. Types of
arguments, fields and results count as they are written.

Invariant: a call on a context or a client is either an `ApiCall` with all its kinds, or one that says "unknown". A name
that is assigned in several branches is everything that was assigned to it.

Not here: which verbs a method needs (`api_verbs`), and what the runtime itself asks for (`permissions`).
"""

# ruff: noqa: N815  names of ast

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource
from steersman.runtime.controller.api_verbs import RETURN_THEMSELVES, UNRESTRICTED, verbs_of
from steersman.runtime.controller.inferred_values import (
    BoundValue,
    CacheValue,
    ClientValue,
    ClustersValue,
    ContextValue,
    InnerValue,
    InstanceValue,
    KindValue,
    KnownValue,
    MethodValue,
    ObjectValue,
    TupleValue,
    attribute_of,
    hints_of,
    items_of,
    joined,
    unbound,
    value_of,
    value_of_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["ApiCall", "requests_of"]

_SAME: Final = {"get", "list", "by_index", "items", "values", "pop", "copy"}  # attributes that lead to the objects
# functions that return what they are given
_TRANSPARENT: Final = {
    *("chain", "copy", "copy_of", "deepcopy", "enumerate", "filter", "frozenset", "gather", "iter", "list", "max"),
    *("min", "next", "replace", "reversed", "set", "sorted", "tuple", "zip"),
}


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that a line of a reconciler may make."""

    verbs: tuple[str, ...]  # empty: not known
    kinds: frozenset[Kind] | None  # None: not known
    subresource: str = ""
    cluster: str = ""
    where: str  # FILE:LINE
    call: str  # the source of the call

    def __str__(self) -> str:
        verbs = ", ".join(f'"{verb}"' for verb in self.verbs) or "…"
        return f"{self.where}: cannot tell what {self.call} needs; declare it: Controller.needs(rule(…, {verbs}))"


def requests_of(function: Any, kind: Kind | None, known: Iterable[Kind] = ()) -> list[ApiCall]:
    """The requests that `function(ctx, obj)` may make, where `kind` is that of `obj` (None: it is given a key).

    Manifests may be of the kinds that are `known`, or of any kind that a loaded class stands for.
    """
    reading = _Reading(known)
    reading.enter(value_of(function), [ContextValue(), None if kind is None else ObjectValue(frozenset({kind}))])
    return list(dict.fromkeys(reading.requests))


class _Reading:
    """One pass over a function and what it calls."""

    def __init__(self, known: Iterable[Kind]) -> None:
        self.requests: list[ApiCall] = []
        self.folder = Path()
        self.package = ""
        self.known: dict[Any, Kind] = {
            (kind.api_version, kind.kind): kind for kind in (*_loaded_kinds(Resource), *known)
        }
        self.results: dict[Any, Any] = {}

    def enter(self, function: Any, arguments: list[Any]) -> None:
        """Read a handler of a controller: a function, a method, a partial or an object that can be called."""
        function, first = unbound(function)
        self.package = str(getattr(function, "__module__", "")).partition(".")[0]
        source = _file_of(function)
        self.folder = Path(source).parent if source else Path("/nowhere")
        if self.call(function, [*first, *arguments], {}) is NotImplemented:
            name = getattr(function, "__qualname__", repr(function))
            self.requests.append(ApiCall(verbs=(), kinds=None, where=source or name, call=name))

    def is_followed(self, function: Any) -> bool:
        """Whether a function is the author's own."""
        if not isinstance(function, types.FunctionType):
            return False
        source = _file_of(function)
        same = function.__module__.partition(".")[0] == self.package
        return bool(source) and (same or Path(source).is_relative_to(self.folder))

    def call(self, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What a function returns, after reading it; NotImplemented when it cannot be read."""
        function = inspect.unwrap(function) if callable(function) else function
        if not self.is_followed(function) or (node := _parsed(function)) is None:
            return NotImplemented
        hints = hints_of(function)
        key = (function, *arguments, *sorted(keywords.items(), key=lambda item: item[0]))
        if key not in self.results:
            self.results[key] = None  # a function that calls itself
            frame = _Frame(self, _Scope(function), _file_of(function), function.__code__.co_firstlineno)
            self.results[key] = frame.run(node, arguments, keywords, hints)
        inferred, declared = self.results[key], value_of_type(hints.get("return"))
        if isinstance(inferred, ObjectValue) and inferred.is_complete:
            return inferred
        return declared if isinstance(declared, (ObjectValue, InstanceValue)) else inferred


class _Scope:
    """The names that a function has from outside."""

    def __init__(self, function: Any) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        self._closed = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        self._globals = function.__globals__

    def get(self, name: str) -> Any:
        for names in (self._closed, self._globals, vars(__import__("builtins"))):
            if name in names:
                return value_of(names[name])
        return None


class _Frame(ast.NodeVisitor):
    """A function that is read: its names and what they are. `visit` of an expression returns what is known of it."""

    def __init__(self, reading: _Reading, scope: Any, file: str, first_line: int) -> None:
        self._reading = reading
        self._scope = scope
        self.file = file
        self.line = first_line
        self._names: dict[str, Any] = {}
        self._returned: list[Any] = []
        self._depth = 0

    def get(self, name: str) -> Any:
        """What is known of a name."""
        return self._names[name] if name in self._names else self._scope.get(name)

    def run(self, node: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], hints: Mapping[str, Any]) -> Any:
        """Read the body with these arguments, and return what is known of the result."""
        parameters = [*node.args.posonlyargs, *node.args.args]
        for place, parameter in enumerate([*parameters, *node.args.kwonlyargs]):
            given = arguments[place] if place < min(len(arguments), len(parameters)) else keywords.get(parameter.arg)
            declared = value_of_type(hints.get(parameter.arg))
            self._names[parameter.arg] = given if given is not None else declared
        if node.args.vararg is not None:
            self._names[node.args.vararg.arg] = joined(arguments[len(parameters) :])
        if node.args.kwarg is not None:
            self._names[node.args.kwarg.arg] = None
        if isinstance(node, ast.Lambda):
            return self.visit(node.body)
        self._body(node.body, nested=False)
        return joined(self._returned)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _body(self, statements: Iterable[ast.stmt], *, nested: bool = True) -> None:
        self._depth += nested
        for statement in statements:
            self.visit(statement)
        self._depth -= nested

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.values if isinstance(value, TupleValue) else ()
            same = len(values) == len(target.elts)
            for place, element in enumerate(target.elts):
                self._assign(element, values[place] if same else items_of(value))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value)
        elif isinstance(target, ast.Name):
            before = [self._names[target.id]] if self._depth and target.id in self._names else []
            self._names[target.id] = joined([*before, value]) if before else value
        else:
            self.visit(target)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, joined([self.visit(node.target), self.visit(node.value)]))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._assign(node.target, items_of(self.visit(node.iter)))
        self._body([*node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        self._body([*node.body, *node.orelse])

    visit_While = visit_If

    def visit_Try(self, node: Any) -> None:
        self._body(node.body)
        for handler in node.handlers:
            self._body(handler.body)
        self._body([*node.orelse, *node.finalbody])

    visit_TryStar = visit_Try

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, value)
        self._body(node.body, nested=False)

    visit_AsyncWith = visit_With

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self._body(case.body)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._returned.append(self.visit(node.value))

    def visit_Yield(self, node: ast.Yield) -> None:
        if node.value is not None:
            self._returned.append(self.visit(node.value))

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._returned.append(self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names[node.name] = InnerValue(node, self)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names[node.name] = None

    # -- expressions ---------------------------------------------------------------------------------------------------

    def generic_visit(self, node: ast.AST) -> Any:
        """Read what is inside; nothing is known of the value."""
        for child in ast.iter_child_nodes(node):
            self.visit(child)
        return None

    def visit_Constant(self, node: ast.Constant) -> Any:
        return KnownValue(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        value = self.get(node.id)
        if isinstance(value, InnerValue):  # it may be called with whatever its arguments say
            self._inner(value, [], {})
        return value

    def visit_Await(self, node: ast.Await | ast.Starred) -> Any:
        return self.visit(node.value)

    visit_Starred = visit_Await

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.visit(node.value)
        self._assign(node.target, value)
        return value

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.visit(node.test)
        return joined([self.visit(node.body), self.visit(node.orelse)])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return joined([self.visit(value) for value in node.values])

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return joined([self.visit(node.left), self.visit(node.right)])

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._inner(InnerValue(node, self), [], {})
        return InnerValue(node, self)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return TupleValue(tuple(self.visit(element) for element in node.elts))

    def visit_List(self, node: ast.List | ast.Set) -> Any:
        return joined([items_of(self.visit(element)) for element in node.elts])

    visit_Set = visit_List

    def visit_Dict(self, node: ast.Dict) -> Any:
        values = [self.visit(value) for value in node.values]
        fields = {}
        for key, value in zip(node.keys, values, strict=True):
            name = None if key is None else self.visit(key)
            fields[name.value if isinstance(name, KnownValue) and isinstance(name.value, str) else None] = value
        texts = [fields.get(name) for name in ("apiVersion", "kind")]
        if all(text is not None for text in texts):
            api_version, name = (text.value if isinstance(text, KnownValue) else None for text in texts)
            kind = self._reading.known.get((api_version, name))
            return None if kind is None else ObjectValue(frozenset({kind}))
        whole = [value for key, value in zip(node.keys, values, strict=True) if key is None]
        objects = [value for value in values if isinstance(value, ObjectValue)]
        return joined(whole or objects) if objects else None

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Any:
        self._comprehension(node.generators)
        return items_of(self.visit(node.elt))

    visit_SetComp = visit_GeneratorExp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        self._comprehension(node.generators)
        self.visit(node.key)
        return self.visit(node.value)

    def _comprehension(self, generators: Iterable[ast.comprehension]) -> None:
        for generator in generators:
            self._assign(generator.target, items_of(self.visit(generator.iter)))
            for test in generator.ifs:
                self.visit(test)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, key = self.visit(node.value), self.visit(node.slice)
        if isinstance(value, CacheValue):
            return ObjectValue(key.kinds) if isinstance(key, KindValue) else None
        if isinstance(value, ClustersValue):
            return ContextValue(str(key.value)) if isinstance(key, KnownValue) else None
        if isinstance(value, TupleValue) and isinstance(key, KnownValue) and isinstance(key.value, int):
            return value.values[key.value] if -len(value.values) <= key.value < len(value.values) else None
        if isinstance(value, KnownValue):
            try:
                return value_of(value.value[key.value]) if isinstance(key, KnownValue) else items_of(value)
            except (TypeError, LookupError):
                return None
        return value

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value, name = self.visit(node.value), node.attr
        if isinstance(value, (ContextValue, ClientValue)):
            return self._member(value, name, node)
        if isinstance(value, ObjectValue):
            return value if name in _SAME else None
        if isinstance(value, InstanceValue):
            hint = hints_of(value.type).get(name)
            member = inspect.getattr_static(value.type, name, None)
            if hint is not None or not isinstance(member, types.FunctionType):
                return value_of_type(hint)
            return BoundValue(member, (value,))
        if isinstance(value, KnownValue):
            return attribute_of(value.value, name)
        return None

    def _member(self, value: ContextValue | ClientValue, name: str, node: ast.expr) -> Any:
        if isinstance(value, ContextValue):
            known = {"client": ClientValue(value.cluster), "cache": CacheValue(), "clusters": ClustersValue()}
            if name in known:
                return known[name]
            if name == "caches":
                self._unknown(node, (), value.cluster)
        return MethodValue(value, name)

    def visit_Call(self, node: ast.Call) -> Any:
        function = self.get(node.func.id) if isinstance(node.func, ast.Name) else self.visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        keywords = {word.arg: self.visit(word.value) for word in node.keywords if word.arg is not None}
        for word in node.keywords:
            if word.arg is None:
                self.visit(word.value)
        if isinstance(function, MethodValue):
            return self._request(function, node, arguments, keywords)
        if isinstance(function, InnerValue):
            return self._inner(function, arguments, keywords)
        if isinstance(function, KindValue):
            return ObjectValue(function.kinds)
        if isinstance(function, ObjectValue):
            return function
        return self._called(function, node, arguments, keywords)

    def _called(self, function: Any, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        called, first = unbound(function)
        result = self._reading.call(called, [*first, *arguments], keywords)
        if result is not NotImplemented:
            return result
        given = [*arguments, *keywords.values()]
        for value in given:
            if isinstance(value, (ContextValue, ClientValue)):
                self._unknown(node, (), value.cluster)  # what it does there cannot be read
        if isinstance(called, type):
            return value_of_type(called)
        if getattr(called, "__name__", None) in _TRANSPARENT:
            return joined(items_of(value) for value in given if not isinstance(value, (InnerValue, KnownValue)))
        return value_of_type(hints_of(called).get("return")) if callable(called) else None

    def _inner(self, function: InnerValue, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        frame = _Frame(self._reading, function.frame, function.frame.file, function.frame.line)
        key = (function.node, *arguments)
        results = self._reading.results
        if key not in results:
            results[key] = None
            hints = {
                argument.arg: _evaluated(argument.annotation, self)
                for argument in [*function.node.args.args, *function.node.args.kwonlyargs]
            }
            results[key] = frame.run(function.node, arguments, keywords, hints)
        return results[key]

    # -- requests ------------------------------------------------------------------------------------------------------

    def _request(self, method: MethodValue, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Note what a call on a context or a client asks for, and return what is known of its result."""
        name, cluster, is_client = method.name, method.of.cluster, isinstance(method.of, ClientValue)
        if name in RETURN_THEMSELVES:
            return method.of
        if name in UNRESTRICTED:
            return None
        if (needed := verbs_of(name, of_client=is_client)) is None:
            return self._unknown(node, (), cluster)
        verbs, subresource = needed.verbs, needed.subresource
        if needed.kind is not None:
            return self._note(node, verbs, ObjectValue(frozenset({needed.kind})), subresource, cluster)
        first = arguments[0] if arguments else keywords.get("obj", keywords.get("target"))
        first = ObjectValue(first.kinds) if isinstance(first, KindValue) else first
        if name == "scale" and (len(arguments) > 2 or "replicas" in keywords):
            verbs = ("patch",)
        if "subresource" in keywords:
            given = keywords["subresource"]
            if not isinstance(given, KnownValue):
                return self._unknown(node, verbs, cluster)
            subresource = given.value or ""
            verbs = ("patch",) if name == "apply" and subresource else verbs
        owner = keywords.get("owner", KnownValue(None))
        if not is_client and ("adopt" in keywords or not (isinstance(owner, KnownValue) and owner.value is None)):
            verbs = (*verbs, "list")  # whose an object is, is asked by its name
        return self._note(node, verbs, first, subresource, cluster)

    def _note(self, node: ast.expr, verbs: tuple[str, ...], on: Any, subresource: str, cluster: str) -> Any:
        on = items_of(on)
        if not isinstance(on, ObjectValue) or not on.is_complete:
            self._unknown(node, verbs, cluster, subresource)
        if isinstance(on, ObjectValue):
            self._add(node, verbs, on.kinds, cluster, subresource)
        return on

    def _unknown(self, node: ast.expr, verbs: tuple[str, ...], cluster: str, subresource: str = "") -> None:
        self._add(node, verbs, None, cluster, subresource)

    def _add(
        self, node: ast.expr, verbs: tuple[str, ...], kinds: frozenset[Kind] | None, cluster: str, subresource: str
    ) -> None:
        where = f"{self.file}:{self.line + node.lineno - 1}"
        made = ApiCall(
            verbs=verbs, kinds=kinds, subresource=subresource, cluster=cluster, where=where, call=ast.unparse(node)
        )
        self._reading.requests.append(made)


def _evaluated(annotation: ast.expr | None, frame: _Frame) -> Any:
    """The type that an annotation inside a function names, when it is a plain name."""
    value = None if annotation is None else frame.visit(annotation)
    return value.value if isinstance(value, KnownValue) and isinstance(value.value, type) else None


def _file_of(function: Any) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(function)) or ""
    except TypeError:
        return ""
    near = os.path.relpath(path) if path else ""
    return path if near.startswith("..") else near


def _parsed(function: Any) -> Any:
    """The definition of a function; None when its source cannot be had."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    found = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    return next(found, None)


def _loaded_kinds(parent: type[Any]) -> Iterator[Kind]:
    for found in parent.__subclasses__():
        if isinstance(vars(found).get("KIND"), Kind):
            yield found.KIND
        yield from _loaded_kinds(found)
