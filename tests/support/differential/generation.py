"""Strategies that invent sequences of steps.

Few names, few managers and few values, so that steps meet each other: the interesting answers come from the third
manager that touches the same key. Most bodies are valid, some are not, and a patch may carry any part of an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.differential import policies, workloads
from tests.support.differential.steps import KINDS, Revision, Step, Verb

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["always_changing", "certain", "finalizers", "objects", "optional", "revisions", "sequences", "steps"]

NAMES = ("a", "b")
MANAGERS = ("one", "two", "three")
SELECTORS = ("", "", "app=web", "app!=db", "tier", "app in (web, db),tier=front", "!app")
_WATCHABLE = ("configmap", "secret", "deployment", "service", "widget")

_values = st.sampled_from(["1", "2", "3"])
_labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db", "front"]), max_size=2)
finalizers = st.lists(st.sampled_from(["example.org/a", "example.org/b"]), unique=True, max_size=2)


def optional(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """A dict with any subset of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def metadata() -> SearchStrategy[dict[str, Any]]:
    """Labels, annotations and, rarely, finalizers."""
    plain = optional(
        labels=_labels, annotations=st.dictionaries(st.sampled_from(["note", "other"]), _values, max_size=2)
    )
    held = optional(labels=_labels, finalizers=finalizers)
    return st.one_of(plain, plain, plain, held)


def _configmap() -> SearchStrategy[dict[str, Any]]:
    data = st.dictionaries(st.sampled_from(["k1", "k2", "k3"]), _values, max_size=3)
    binary = st.dictionaries(st.sampled_from(["b1", "k1"]), st.sampled_from(["AA==", "AQI="]), min_size=1, max_size=1)
    usual = optional(data=data)
    return st.one_of(
        usual, usual, usual, optional(data=data, binaryData=binary), optional(data=data, immutable=st.just(False))
    )


def _secret() -> SearchStrategy[dict[str, Any]]:
    data = st.dictionaries(st.sampled_from(["k1", "k2"]), st.sampled_from(["MQ==", "Mg=="]), max_size=2)
    text = st.dictionaries(st.sampled_from(["k1", "k2"]), _values, max_size=2)
    usual = optional(data=data, stringData=text)
    return st.one_of(usual, usual, optional(data=data, type=st.sampled_from(["Opaque", "example.org/x"])))


def _widget() -> SearchStrategy[dict[str, Any]]:
    port = st.fixed_dictionaries(
        {"port": st.integers(1, 3)},
        optional={"protocol": st.sampled_from(["TCP", "UDP"]), "note": _values},
    )
    spec = optional(
        size=st.one_of(st.integers(0, 10), st.integers(0, 10), st.sampled_from([11, -1, "1", None])),
        color=st.sampled_from(["red", "green", "red", "green", "pink"]),
        title=st.sampled_from(["ab", "abc", "ab", "abc", "A"]),
        replicas=st.integers(0, 3),
        ratio=st.sampled_from([1, 1.5, 0]),
        on=st.booleans(),
        limit=st.sampled_from([1, "10%", True]),
        maybe=st.sampled_from(["x", None]),
        tags=st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
        words=st.lists(st.sampled_from(["x", "y"]), max_size=3),
        ports=st.lists(port, max_size=3),
        pairs=st.dictionaries(st.sampled_from(["p", "q"]), _values, max_size=2),
        frozen=optional(a=_values, b=_values),
        free=st.dictionaries(
            st.sampled_from(["f", "g"]),
            st.one_of(
                _values, st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2), optional(h=_values, i=_values)
            ),
            max_size=2,
        ),
        nested=optional(name=_values, level=st.integers(1, 4), unknown=_values),
        unknown=_values,
    )
    return optional(spec=spec)


_CONTENT: dict[str, SearchStrategy[dict[str, Any]]] = {
    "configmap": _configmap(),
    "secret": _secret(),
    "widget": _widget(),
    "gadget": _widget(),
    "service": optional(spec=workloads.service_spec()),
    "pod": optional(spec=workloads.pod_spec()),
    "deployment": optional(spec=workloads.deployment_spec()),
    "statefulset": optional(spec=workloads.statefulset_spec()),
    "cronjob": optional(spec=workloads.cronjob_spec()),
    "daemonset": optional(spec=workloads.daemonset_spec()),
    "job": optional(spec=workloads.job_spec()),
    "serviceaccount": policies.service_account(),
    "budget": optional(spec=policies.budget_spec()),
    "autoscaler": optional(spec=policies.autoscaler_spec()),
    "ingress": optional(spec=policies.ingress_spec()),
    "role": optional(rules=policies.rules()),
    "lease": optional(spec=policies.lease_spec()),
}

_kinds = st.sampled_from(
    ["daemonset", "job", "serviceaccount", "budget", "autoscaler", "ingress", "role", "lease"]
    + ["configmap"] * 4
    + ["secret"] * 2
    + ["deployment"] * 4
    + ["service"] * 2
    + ["widget"] * 5
    + ["pod", "statefulset", "cronjob"]
)


@st.composite
def objects(draw: st.DrawFn, kind: str, name: str, *, whole: bool) -> dict[str, Any]:
    """An object of the kind: all that the server requires if `whole`, else any part of it."""
    content = draw(_CONTENT[kind])
    if whole:
        content = policies.completed(kind, workloads.completed(kind, content))
    return {
        "apiVersion": KINDS[kind].api_version,
        "kind": KINDS[kind].kind,
        "metadata": {"name": name, **draw(metadata())},
        **content,
    }


def _nulled(draw: st.DrawFn, value: Any) -> Any:
    """A merge patch from a part of an object: some fields are removed instead of set."""
    if not isinstance(value, dict):
        return None if draw(st.integers(0, 5)) == 0 else value
    return {key: _nulled(draw, item) for key, item in value.items()}


@st.composite
def _fragment(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    body = {**draw(_CONTENT[kind])}
    if meta := draw(metadata()):
        body["metadata"] = meta
    if draw(st.integers(0, 15)) == 0:
        body |= draw(st.sampled_from([{"unknown": 1}, {"spec": "text"}, {"metadata": {"labels": {"a b": "c"}}}]))
    patch: dict[str, Any] = _nulled(draw, body)
    return patch


revisions: SearchStrategy[Revision] = st.sampled_from(("none", "none", "live", "stale"))
_expectations: SearchStrategy[Revision] = st.sampled_from(("none", "none", "none", "live", "wrong"))
_WEIGHTS: dict[Verb, int] = {
    "apply": 8,
    "create": 4,
    "merge": 4,
    "strategic": 3,
    "modify": 3,
    "clear": 1,
    "json": 2,
    "replace": 2,
    "delete": 2,
    "get": 1,
    "list": 1,
}
_verbs = st.sampled_from([verb for verb, weight in _WEIGHTS.items() for _ in range(weight)])


def _policy(kind: str) -> str:
    """A job is orphaned by default, and the real garbage collector takes its time for that."""
    return "Background" if kind == "job" else ""


@st.composite
def steps(draw: st.DrawFn, kinds: SearchStrategy[str] = _kinds) -> Step:
    """One request about one of the kinds."""
    kind, name, manager = draw(kinds), draw(st.sampled_from(NAMES)), draw(st.sampled_from(MANAGERS))
    match verb := draw(_verbs):
        case "delete" | "get":
            step = Step(verb=verb, kind=kind, name=name)
            if verb == "delete":
                step = replace(step, revision=draw(_expectations), uid=draw(_expectations), propagation=_policy(kind))
        case "list":
            fields = draw(st.sampled_from(["", "", "metadata.name=a", "metadata.name!=a"]))
            labels, limit = draw(st.sampled_from(SELECTORS)), draw(st.sampled_from([0, 0, 1]))
            revision: Revision = draw(st.sampled_from(("none", "none", "live", "stale")))
            return Step(verb="list", kind=kind, name=name, labels=labels, fields=fields, limit=limit, revision=revision)
        case "clear":
            labels, fields = draw(st.sampled_from(SELECTORS)), "metadata.name!=default"
            step = Step(verb="clear", kind=kind, labels=labels, fields=fields, propagation=_policy(kind))
        case "create" | "apply" | "replace":
            whole = verb == "replace" or draw(st.integers(0, 7)) > (3 if verb == "apply" else 0)
            step = Step(verb=verb, kind=kind, name=name, manager=manager, body=draw(objects(kind, name, whole=whole)))
            if verb == "apply":
                step = replace(step, force=draw(st.booleans()))
            if verb == "replace":
                step = replace(step, revision=draw(revisions))
        case "json":
            step = Step(verb=verb, kind=kind, name=name, manager=manager, body=draw(_operations(kind)))
        case _:
            if verb == "merge" and kinds is _kinds and draw(st.integers(0, 3)) == 0:
                return draw(_subresource(name, manager))
            body = draw(_fragment(kind))
            if verb == "strategic":
                body = workloads.with_directives(draw, body)
            step = Step(verb=verb, kind=kind, name=name, manager=manager, body=body, revision=draw(revisions))
    rare = draw(st.integers(0, 23))
    return replace(step, dry_run=rare in {0, 1} and verb != "get", strict=rare == 2 and step.body is not None)


@st.composite
def _subresource(draw: st.DrawFn, name: str, manager: str) -> Step:
    """A write of scale by patch, or of status by patch or by apply."""
    kind = draw(st.sampled_from(["deployment", "widget"]))
    if draw(st.booleans()):
        body = {"spec": {"replicas": draw(st.integers(-1, 3))}}
        return Step(verb="merge", kind=kind, name=name, subresource="scale", body=body, manager=manager)
    condition = st.fixed_dictionaries(
        {"type": st.sampled_from(["Ready", "Seen"]), "status": st.sampled_from(["True", "False"])}
    )
    conditions = st.lists(condition, max_size=2, unique_by=lambda item: item["type"])
    if kind == "widget":
        status = draw(optional(phase=_values, replicas=st.integers(0, 2), conditions=conditions))
    else:
        status = draw(optional(replicas=st.integers(0, 2), conditions=conditions))
    wanted = {"status": status}
    if draw(st.booleans()):
        head = {"apiVersion": KINDS[kind].api_version, "kind": KINDS[kind].kind, "metadata": {"name": name}}
        force = draw(st.booleans())
        return Step(
            verb="apply", kind=kind, name=name, subresource="status", body=head | wanted, manager=manager, force=force
        )
    return Step(verb="merge", kind=kind, name=name, subresource="status", body=wanted, manager=manager)


_PATHS: dict[str, list[str]] = {
    "configmap": ["/data/k1", "/data/k2", "/data", "/data/k9/x"],
    "secret": ["/data/k1", "/stringData", "/data"],
    "widget": [
        "/spec/size",
        "/spec/tags/0",
        "/spec/tags/-",
        "/spec/ports/0/note",
        "/spec/words",
        "/spec/free/f",
        "/spec",
    ],
}
_ANY_PATHS = [
    "/metadata/labels/app",
    "/metadata/labels",
    "/metadata/annotations/note",
    "/metadata/finalizers/-",
    "/nope/x",
]


@st.composite
def _operations(draw: st.DrawFn, kind: str) -> list[dict[str, Any]]:
    paths = st.sampled_from(_PATHS.get(kind, workloads.PATHS.get(kind, [])) + _ANY_PATHS)
    result = []
    for _ in range(draw(st.integers(1, 3))):
        op = draw(st.sampled_from(["add", "add", "replace", "remove", "test", "copy", "move"]))
        path = draw(paths)
        operation: dict[str, Any] = {"op": op, "path": path}
        if op in {"add", "replace", "test"}:
            operation["value"] = draw(_value_for(path))
        if op in {"copy", "move"}:
            operation["from"] = draw(paths)
        result.append(operation)
    return result


def _value_for(path: str) -> SearchStrategy[Any]:
    """A value that usually has the right type for its place."""
    end = path.rsplit("/", 1)[-1]
    match end:
        case "size" | "replicas":
            return st.integers(0, 3)
        case "data" | "labels" | "stringData":
            return st.dictionaries(st.sampled_from(["k1", "app"]), st.sampled_from(["web", "MQ=="]), max_size=2)
        case "words" | "args":
            return st.lists(_values, max_size=2)
        case "spec":
            return st.just({"size": 2})
        case "-" if "finalizers" in path:
            return st.sampled_from(["example.org/a", "example.org/b"])
        case _:
            return _values


@st.composite
def _watch(draw: st.DrawFn) -> Step:
    return Step(
        verb="watch",
        kind=draw(st.sampled_from(_WATCHABLE)),
        labels=draw(st.sampled_from(["", "app=web", "app!=db", "tier"])),
        live=draw(st.booleans()),
    )


def always_changing(step: Step, index: int) -> Step:
    """A scale that changes nothing damages managedFields on the real server (docs/embedded-server.md); avoid it."""
    if step.subresource != "scale" or step.body["spec"]["replicas"] < 0:
        return step
    return replace(step, body={"spec": {"replicas": 4 + index}})


def certain(step: Step) -> Step:
    """Applying empty metadata to a custom resource is a write or not by chance on a busy real server; avoid it."""
    if step.verb != "apply" or step.kind not in {"widget", "gadget"} or step.subresource:
        return step
    meta = {key: value for key, value in step.body["metadata"].items() if value}
    return replace(step, body={**step.body, "metadata": meta})


@st.composite
def sequences(draw: st.DrawFn, *, longest: int = 12) -> list[Step]:
    """A few writes and reads, then the watches that saw them."""
    drawn = draw(st.lists(steps(), min_size=1, max_size=longest))
    watches = draw(st.lists(_watch(), max_size=2, unique_by=lambda step: step.kind))
    return [certain(always_changing(step, index)) for index, step in enumerate(drawn)] + watches
