"""Which requests the functions of a controller make, read from their source. Nothing is run.

A function is followed statement by statement with what is known of each name: a context, a client, a kind, objects of
certain kinds, a value of a known type, or nothing. Calls of the author's own functions are followed too: those of the
same package, and of files in the same folder. Types of arguments, fields and results count as they are written.

Invariant: a call on a context or a client is either a `ApiCall` with all its kinds, or one that says "unknown". A name
that is assigned in several branches is everything that was assigned to it.

Not here: what the runtime itself asks for (`controller.permissions`).
"""

# ruff: noqa: N815  names of ast

from __future__ import annotations

import ast
import functools
import inspect
import os
import textwrap
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource
from steersman.kube.client.client import Client
from steersman.runtime.reconcile.blocking_context import BlockingContext
from steersman.runtime.reconcile.context import ClusterContext
from steersman.runtime.reconcile.daemon_context import DaemonContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["ApiCall", "requests_of"]

PODS: Final = Kind(version="v1", kind="Pod", plural="pods")
EVENTS: Final = Kind(version="v1", kind="Event", plural="events")
ACCOUNTS: Final = Kind(version="v1", kind="ServiceAccount", plural="serviceaccounts")

# name -> verbs, subresource; the first argument is the object or its kind
_ON_OBJECTS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "apply": (("create", "patch"), ""),
    "create": (("create",), ""),
    "patch": (("patch",), ""),
    "delete": (("delete",), ""),
}
_OF_CONTEXTS: Final = _ON_OBJECTS | {
    "status": (("patch",), "status"),
    "set_condition": (("patch",), "status"),
    "add_finalizer": (("patch",), ""),
    "remove_finalizer": (("patch",), ""),
}
_OF_CLIENTS: Final = _ON_OBJECTS | {
    "get": (("get",), ""),
    "list": (("list",), ""),
    "pages": (("list",), ""),
    "watch": (("watch",), ""),
    "replace": (("update",), ""),
    "update_with_retry": (("get", "update"), ""),
    "delete_collection": (("deletecollection",), ""),
}
# name -> verbs, kind, subresource; a stream is opened by GET, and newer servers ask for `create` as well
_ON_FIXED_KINDS: Final[dict[str, tuple[tuple[str, ...], Kind, str]]] = {
    "logs": (("get",), PODS, "log"),
    "follow_logs": (("get",), PODS, "log"),
    "exec": (("get", "create"), PODS, "exec"),
    "open_exec": (("get", "create"), PODS, "exec"),
    "port_forward": (("get", "create"), PODS, "portforward"),
    "evict": (("create",), PODS, "eviction"),
    "create_token": (("create",), ACCOUNTS, "token"),
    "event": (("create", "patch"), EVENTS, ""),
}
_OPEN_TO_ALL: Final = {"can_i", "server_version", "api_resources", "openapi", "effect", "sleep"}
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


# -- what is known of a value ------------------------------------------------------------------------------------------


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""


class _Client(msgspec.Struct, frozen=True):
    cluster: str = ""


class _Cache(msgspec.Struct, frozen=True):
    """`ctx.cache`."""


class _Clusters(msgspec.Struct, frozen=True):
    """`ctx.clusters`."""


class _Method(msgspec.Struct, frozen=True):
    """A method of a context or a client."""

    of: _Context | _Client
    name: str


class _Target(msgspec.Struct, frozen=True):
    """A kind, as a class or a Kind: one of these."""

    kinds: frozenset[Kind]


class _Object(msgspec.Struct, frozen=True):
    """An object, or several, of these kinds; others are possible when not all alternatives are known."""

    kinds: frozenset[Kind]
    is_complete: bool = True


class _Typed(msgspec.Struct, frozen=True):
    """An instance of a class, or several."""

    type: Any


class _Several(msgspec.Struct, frozen=True):
    """A tuple."""

    values: tuple[Any, ...]


class _Known(msgspec.Struct, frozen=True, eq=False):
    """This very value."""

    value: Any


class _Bound(msgspec.Struct, frozen=True, eq=False):
    """A function with its first arguments."""

    function: Any
    arguments: tuple[Any, ...]


class _Inner(msgspec.Struct, frozen=True, eq=False):
    """A function that is defined inside the one that is read."""

    node: Any
    frame: Any


_CONTEXTS: Final = (ClusterContext, BlockingContext, DaemonContext)


def _value_of(obj: Any) -> Any:
    """What is known of a value that exists."""
    if isinstance(obj, Kind):
        return _Target(frozenset({obj}))
    if isinstance(obj, type) and isinstance(kind := getattr(obj, "KIND", None), Kind):
        return _Target(frozenset({kind}))
    if isinstance(obj, Client):
        return _Client()
    return _Known(obj)


def _hinted(hint: Any) -> Any:
    """What is known of a value of this type; of a container, what is known of its items."""
    if isinstance(hint, type) and get_origin(hint) is None:
        if issubclass(hint, _CONTEXTS):
            return _Context()
        if issubclass(hint, Client):
            return _Client()
        if isinstance(kind := getattr(hint, "KIND", None), Kind):
            return _Object(frozenset({kind}))
        return None if hint.__module__ in {"builtins", "typing"} or hint is Resource else _Typed(hint)
    origin, options = get_origin(hint), [option for option in get_args(hint) if option not in (type(None), ...)]
    if origin is type:
        return None
    found = [_hinted(option) for option in options]
    if origin is tuple and ... not in get_args(hint):
        return _Several(tuple(found))
    if origin in (Union, types.UnionType):
        return _joined(found)
    return _joined([value for value in found if value is not None])


def _joined(values: Iterable[Any]) -> Any:
    """What is known of a value that is one of these."""
    found = []
    for value in values:
        if isinstance(value, _Several):
            found.append(_joined(value.values))
        elif not (isinstance(value, _Known) and value.value is None):
            found.append(value)
    objects = [value for value in found if isinstance(value, _Object)]
    if objects:
        kinds = frozenset[Kind]().union(*(value.kinds for value in objects))
        return _Object(kinds, len(objects) == len(found) and all(value.is_complete for value in objects))
    if found and all(isinstance(value, _Target) for value in found):
        return _Target(frozenset[Kind]().union(*(value.kinds for value in found)))
    return found[0] if found and all(value == found[0] for value in found) else None


def _items(value: Any) -> Any:
    """What is known of each item of a value."""
    if isinstance(value, _Several):
        return _joined(value.values)
    if isinstance(value, _Known) and isinstance(value.value, (list, tuple, set, frozenset, dict)):
        return _joined([_value_of(item) for item in value.value])
    return value


# -- reading -----------------------------------------------------------------------------------------------------------


def requests_of(function: Any, kind: Kind | None, known: Iterable[Kind] = ()) -> list[ApiCall]:
    """The requests that `function(ctx, obj)` may make, where `kind` is that of `obj` (None: it is given a key).

    Manifests may be of the kinds that are `known`, or of any kind that a loaded class stands for.
    """
    reading = _Reading(known)
    reading.enter(_value_of(function), [_Context(), None if kind is None else _Object(frozenset({kind}))])
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
        function, first = _unbound(function)
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
        hints = _hints_of(function)
        key = (function, *arguments, *sorted(keywords.items(), key=lambda item: item[0]))
        if key not in self.results:
            self.results[key] = None  # a function that calls itself
            frame = _Frame(self, _Scope(function), _file_of(function), function.__code__.co_firstlineno)
            self.results[key] = frame.run(node, arguments, keywords, hints)
        inferred, declared = self.results[key], _hinted(hints.get("return"))
        if isinstance(inferred, _Object) and inferred.is_complete:
            return inferred
        return declared if isinstance(declared, (_Object, _Typed)) else inferred


class _Scope:
    """The names that a function has from outside."""

    def __init__(self, function: Any) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        self._closed = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        self._globals = function.__globals__

    def get(self, name: str) -> Any:
        for names in (self._closed, self._globals, vars(__import__("builtins"))):
            if name in names:
                return _value_of(names[name])
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
            declared = _hinted(hints.get(parameter.arg))
            self._names[parameter.arg] = given if given is not None else declared
        if node.args.vararg is not None:
            self._names[node.args.vararg.arg] = _joined(arguments[len(parameters) :])
        if node.args.kwarg is not None:
            self._names[node.args.kwarg.arg] = None
        if isinstance(node, ast.Lambda):
            return self.visit(node.body)
        self._body(node.body, nested=False)
        return _joined(self._returned)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _body(self, statements: Iterable[ast.stmt], *, nested: bool = True) -> None:
        self._depth += nested
        for statement in statements:
            self.visit(statement)
        self._depth -= nested

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.values if isinstance(value, _Several) else ()
            same = len(values) == len(target.elts)
            for place, element in enumerate(target.elts):
                self._assign(element, values[place] if same else _items(value))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value)
        elif isinstance(target, ast.Name):
            before = [self._names[target.id]] if self._depth and target.id in self._names else []
            self._names[target.id] = _joined([*before, value]) if before else value
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
        self._assign(node.target, _joined([self.visit(node.target), self.visit(node.value)]))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._assign(node.target, _items(self.visit(node.iter)))
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
        self._names[node.name] = _Inner(node, self)

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
        return _Known(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        value = self.get(node.id)
        if isinstance(value, _Inner):  # it may be called with whatever its arguments say
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
        return _joined([self.visit(node.body), self.visit(node.orelse)])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return _joined([self.visit(value) for value in node.values])

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return _joined([self.visit(node.left), self.visit(node.right)])

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._inner(_Inner(node, self), [], {})
        return _Inner(node, self)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return _Several(tuple(self.visit(element) for element in node.elts))

    def visit_List(self, node: ast.List | ast.Set) -> Any:
        return _joined([_items(self.visit(element)) for element in node.elts])

    visit_Set = visit_List

    def visit_Dict(self, node: ast.Dict) -> Any:
        values = [self.visit(value) for value in node.values]
        fields = {}
        for key, value in zip(node.keys, values, strict=True):
            name = None if key is None else self.visit(key)
            fields[name.value if isinstance(name, _Known) and isinstance(name.value, str) else None] = value
        texts = [fields.get(name) for name in ("apiVersion", "kind")]
        if all(text is not None for text in texts):
            api_version, name = (text.value if isinstance(text, _Known) else None for text in texts)
            kind = self._reading.known.get((api_version, name))
            return None if kind is None else _Object(frozenset({kind}))
        whole = [value for key, value in zip(node.keys, values, strict=True) if key is None]
        objects = [value for value in values if isinstance(value, _Object)]
        return _joined(whole or objects) if objects else None

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Any:
        self._comprehension(node.generators)
        return _items(self.visit(node.elt))

    visit_SetComp = visit_GeneratorExp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        self._comprehension(node.generators)
        self.visit(node.key)
        return self.visit(node.value)

    def _comprehension(self, generators: Iterable[ast.comprehension]) -> None:
        for generator in generators:
            self._assign(generator.target, _items(self.visit(generator.iter)))
            for test in generator.ifs:
                self.visit(test)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, key = self.visit(node.value), self.visit(node.slice)
        if isinstance(value, _Cache):
            return _Object(key.kinds) if isinstance(key, _Target) else None
        if isinstance(value, _Clusters):
            return _Context(str(key.value)) if isinstance(key, _Known) else None
        if isinstance(value, _Several) and isinstance(key, _Known) and isinstance(key.value, int):
            return value.values[key.value] if -len(value.values) <= key.value < len(value.values) else None
        if isinstance(value, _Known):
            try:
                return _value_of(value.value[key.value]) if isinstance(key, _Known) else _items(value)
            except (TypeError, LookupError):
                return None
        return value

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value, name = self.visit(node.value), node.attr
        if isinstance(value, (_Context, _Client)):
            return self._member(value, name, node)
        if isinstance(value, _Object):
            return value if name in _SAME else None
        if isinstance(value, _Typed):
            hint = _hints_of(value.type).get(name)
            member = inspect.getattr_static(value.type, name, None)
            if hint is not None or not isinstance(member, types.FunctionType):
                return _hinted(hint)
            return _Bound(member, (value,))
        if isinstance(value, _Known):
            return _attribute(value.value, name)
        return None

    def _member(self, value: _Context | _Client, name: str, node: ast.expr) -> Any:
        if isinstance(value, _Context):
            known = {"client": _Client(value.cluster), "cache": _Cache(), "clusters": _Clusters()}
            if name in known:
                return known[name]
            if name == "caches":
                self._unknown(node, (), value.cluster)
        return _Method(value, name)

    def visit_Call(self, node: ast.Call) -> Any:
        function = self.get(node.func.id) if isinstance(node.func, ast.Name) else self.visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        keywords = {word.arg: self.visit(word.value) for word in node.keywords if word.arg is not None}
        for word in node.keywords:
            if word.arg is None:
                self.visit(word.value)
        if isinstance(function, _Method):
            return self._request(function, node, arguments, keywords)
        if isinstance(function, _Inner):
            return self._inner(function, arguments, keywords)
        if isinstance(function, _Target):
            return _Object(function.kinds)
        if isinstance(function, _Object):
            return function
        return self._called(function, node, arguments, keywords)

    def _called(self, function: Any, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        called, first = _unbound(function)
        result = self._reading.call(called, [*first, *arguments], keywords)
        if result is not NotImplemented:
            return result
        given = [*arguments, *keywords.values()]
        for value in given:
            if isinstance(value, (_Context, _Client)):
                self._unknown(node, (), value.cluster)  # what it does there cannot be read
        if isinstance(called, type):
            return _hinted(called)
        if getattr(called, "__name__", None) in _TRANSPARENT:
            return _joined(_items(value) for value in given if not isinstance(value, (_Inner, _Known)))
        return _hinted(_hints_of(called).get("return")) if callable(called) else None

    def _inner(self, function: _Inner, arguments: list[Any], keywords: dict[str, Any]) -> Any:
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

    def _request(self, method: _Method, node: ast.Call, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Note what a call on a context or a client asks for, and return what is known of its result."""
        name, cluster, is_client = method.name, method.of.cluster, isinstance(method.of, _Client)
        if name in {"snapshot", "with_options"}:
            return method.of
        if name in _OPEN_TO_ALL:
            return None
        if name in _ON_FIXED_KINDS:
            verbs, kind, subresource = _ON_FIXED_KINDS[name]
            return self._note(node, verbs, _Object(frozenset({kind})), subresource, cluster)
        first = arguments[0] if arguments else keywords.get("obj", keywords.get("target"))
        first = _Object(first.kinds) if isinstance(first, _Target) else first
        if is_client and name == "scale":
            writes = len(arguments) > 2 or "replicas" in keywords
            return self._note(node, ("patch",) if writes else ("get",), first, "scale", cluster)
        table = _OF_CLIENTS if is_client else _OF_CONTEXTS
        if name not in table:
            return self._unknown(node, (), cluster)
        verbs, subresource = table[name]
        if "subresource" in keywords:
            given = keywords["subresource"]
            if not isinstance(given, _Known):
                return self._unknown(node, verbs, cluster)
            subresource = given.value or ""
            verbs = ("patch",) if name == "apply" and subresource else verbs
        owner = keywords.get("owner", _Known(None))
        if not is_client and ("adopt" in keywords or not (isinstance(owner, _Known) and owner.value is None)):
            verbs = (*verbs, "list")  # whose an object is, is asked by its name
        return self._note(node, verbs, first, subresource, cluster)

    def _note(self, node: ast.expr, verbs: tuple[str, ...], on: Any, subresource: str, cluster: str) -> Any:
        on = _items(on)
        if not isinstance(on, _Object) or not on.is_complete:
            self._unknown(node, verbs, cluster, subresource)
        if isinstance(on, _Object):
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


# -- functions and types as Python knows them --------------------------------------------------------------------------


def _unbound(value: Any) -> tuple[Any, list[Any]]:
    """A function, and the arguments that are bound to it already."""
    if isinstance(value, _Bound):
        return value.function, list(value.arguments)
    function = value.value if isinstance(value, _Known) else None
    if isinstance(function, functools.partial):
        inner, first = _unbound(_Known(function.func))
        return inner, [*first, *map(_value_of, function.args)]
    if isinstance(function, types.MethodType):
        return function.__func__, [_value_of(function.__self__)]
    if function is None or isinstance(function, (types.FunctionType, type)):
        return function, []
    method = inspect.getattr_static(type(function), "__call__", None)
    return (method, [_value_of(function)]) if isinstance(method, types.FunctionType) else (function, [])


def _attribute(obj: Any, name: str) -> Any:
    """An attribute of a value that exists; properties are not run."""
    if isinstance(inspect.getattr_static(type(obj), name, None), (property, functools.cached_property)):
        return None
    try:
        return _value_of(getattr(obj, name))
    except Exception:  # noqa: BLE001  a module may load lazily, a descriptor may do anything
        return None


def _hints_of(obj: Any) -> dict[str, Any]:
    try:
        return get_type_hints(obj)
    except Exception:  # noqa: BLE001  annotations of other people: nothing is known then
        return {}


def _evaluated(annotation: ast.expr | None, frame: _Frame) -> Any:
    """The type that an annotation inside a function names, when it is a plain name."""
    value = None if annotation is None else frame.visit(annotation)
    return value.value if isinstance(value, _Known) and isinstance(value.value, type) else None


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
