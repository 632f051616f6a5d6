"""Which changes matter: questions about an object before and after.

    Controller(Zone, reconcile).when(generation | labels).watches(Server, to=zones_of, when=status("readyPods"))

A predicate sees `old` (None when the object is new) and `new` (None when it was deleted) and says whether the
change matters. A *changed* predicate is true for a creation, for a deletion, and for an object recreated under its old
name: another uid means that everything changed, however equal it looks. `|`, `&` and `~` combine predicates; `~`
inverts the whole answer, for creations and deletions too.

Predicates only save work. They are never needed for correctness, so when in doubt they say yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.kube.api.objects import Resource
from steersman.runtime.controller.struct_fields import check_path, value_at
from steersman.runtime.reconcile.metadata import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.cache.interfaces import LabelMatcher
    from steersman.kube.api.objects import ObjectMeta

__all__ = [
    "Predicate",
    "always",
    "annotation",
    "changed",
    "created",
    "deleted",
    "deletion_started",
    "finalizers",
    "generation",
    "label",
    "labels",
    "owners",
    "resource_version",
    "selected",
    "spec",
    "status",
]

Object = Resource | dict[str, Any]


class Predicate:
    """A named question about (old, new). Its text is how tables and `describe` commands show it.

    >>> str(generation | labels & ~status("readyPods"))
    'generation | (labels & ~status(readyPods))'
    """

    __slots__ = ("_check", "_sign", "_test", "name")

    def __init__(
        self,
        name: str,
        test: Callable[[Any, Any], bool],
        check: Callable[[type[Resource]], None] | None = None,
    ) -> None:
        self.name = name
        self._test = test
        self._check = check
        self._sign = ""  # what joins the parts, when there are several

    def __call__(self, old: Object | None, new: Object | None) -> bool:
        return self._test(old, new)

    def check(self, target: object) -> None:
        """Raise ConfigError when the predicate asks for a field that objects of this type do not have."""
        if self._check is not None and isinstance(target, type) and issubclass(target, Resource):
            self._check(target)

    def __or__(self, other: Predicate) -> Predicate:
        return self._combined("|", other, lambda old, new: self._test(old, new) or other._test(old, new))

    def __and__(self, other: Predicate) -> Predicate:
        return self._combined("&", other, lambda old, new: self._test(old, new) and other._test(old, new))

    def __invert__(self) -> Predicate:
        return Predicate(f"~{self._inside('~')}", lambda old, new: not self._test(old, new), self._check)

    def _combined(self, sign: str, other: Predicate, test: Callable[[Any, Any], bool]) -> Predicate:
        def check(target: type[Resource]) -> None:
            self.check(target)
            other.check(target)

        both = Predicate(f"{self._inside(sign)} {sign} {other._inside(sign)}", test, check)
        both._sign = sign
        return both

    def _inside(self, sign: str) -> str:
        return self.name if self._sign in ("", sign) else f"({self.name})"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Predicate {self.name}>"


def _changed(name: str, aspect: Callable[[ObjectMeta], object]) -> Predicate:
    """True when `aspect` of the metadata differs, or when there is nothing to compare."""

    def test(old: Object | None, new: Object | None) -> bool:
        if old is None or new is None:
            return True
        before, after = metadata_of(old), metadata_of(new)
        return before.uid != after.uid or aspect(before) != aspect(after)

    return Predicate(name, test)


def _desired(meta: ObjectMeta) -> object:
    """What changes when the desired state changes. For kinds without a generation, the resourceVersion."""
    return (meta.generation or meta.resource_version, meta.deletion_timestamp)


always = Predicate("always", lambda _old, _new: True)
created = Predicate("created", lambda old, new: old is None and new is not None)
deleted = Predicate("deleted", lambda old, new: old is not None and new is None)

generation = _changed("generation", _desired)
resource_version = _changed("resource_version", lambda meta: meta.resource_version)
labels = _changed("labels", lambda meta: meta.labels or {})
finalizers = _changed("finalizers", lambda meta: meta.finalizers or [])
owners = _changed("owners", lambda meta: sorted(owner.uid for owner in meta.owner_references or ()))


def label(*names: str) -> Predicate:
    """One of these labels changed, appeared or vanished."""
    return _changed(f"label({', '.join(names)})", lambda meta: [(meta.labels or {}).get(name) for name in names])


def annotation(*names: str) -> Predicate:
    """One of these annotations changed, appeared or vanished; without names, any."""
    if not names:
        return _changed("annotation()", lambda meta: meta.annotations or {})
    title = f"annotation({', '.join(names)})"
    return _changed(title, lambda meta: [(meta.annotations or {}).get(name) for name in names])


def _terminating(obj: Object | None) -> bool:
    return obj is not None and metadata_of(obj).deletion_timestamp is not None


# Deletion was requested: the object is terminating now, or gone, and was not before.
deletion_started = Predicate(
    "deletion_started", lambda old, new: not _terminating(old) and (new is None or _terminating(new))
)


def selected(selector: LabelMatcher) -> Predicate:
    """The labels match, or matched before: an object that leaves the selection counts too."""

    def matches(obj: Object | None) -> bool:
        return obj is not None and selector.matches(metadata_of(obj).labels or {})

    return Predicate(f"selected({selector})", lambda old, new: matches(old) or matches(new))


def spec(*paths: str) -> Predicate:
    """One of these fields of the spec changed; without paths, anything in it. Wire names: `template.image`."""
    return _at("spec", paths)


def status(*paths: str) -> Predicate:
    """One of these fields of the status changed; without paths, anything in it."""
    return _at("status", paths)


def changed(path: str, test: Callable[[Any, Any], bool] | None = None) -> Predicate:
    """The field at `path` changed, and `test(old, new)` says yes to its values; wire names: `spec.replicas`.

    >>> grown = changed("spec.replicas", lambda old, new: (new or 0) > (old or 0))
    >>> small, large = ({"metadata": {"uid": "1"}, "spec": {"replicas": count}} for count in (1, 3))
    >>> grown(small, large), grown(large, small), grown(None, small)
    (True, False, True)
    """
    route = path.split(".")

    def matters(old: Object | None, new: Object | None) -> bool:
        if old is None or new is None or metadata_of(old).uid != metadata_of(new).uid:
            return True
        before, after = value_at(old, route), value_at(new, route)
        return before != after and (test is None or bool(test(before, after)))

    name = f"{path}, {getattr(test, '__name__', 'test')}" if test is not None else path
    return Predicate(f"changed({name})", matters, lambda target: check_path(target, route))


def _at(root: str, paths: tuple[str, ...]) -> Predicate:
    routes = [(root, *path.split(".")) for path in paths] or [(root,)]

    def test(old: Object | None, new: Object | None) -> bool:
        if old is None or new is None or metadata_of(old).uid != metadata_of(new).uid:
            return True
        return any(value_at(old, route) != value_at(new, route) for route in routes)

    def check(target: type[Resource]) -> None:
        for route in routes:
            check_path(target, route)

    return Predicate(f"{root}({', '.join(paths)})" if paths else root, test, check)
