"""Two servers, one sequence: each step is sent to both, and what they answer must look the same.

A side keeps what a step can only name (the live revision of `configmap/a`, its uid) and its own `Normalizer`. The first
difference ends the sequence, because from then on the two servers hold different states.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.testing import eventually
from steersman.testing.raw_api import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.support.differential.controllers import Collector, Quota, left_over
from tests.support.differential.hooks import Hooks, reviewed
from tests.support.differential.normalize import Normalizer
from tests.support.differential.steps import GROUP, KINDS, Owner, Step
from tests.support.manifests import (
    WIDGET_SCHEMA,
    configmap,
    crd,
    deployment,
    pod,
    secret,
    service,
    widget,
    widgets_crd,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.testing.raw_api import RawApi, RawResponse, WatchStream
    from tests.support.webhooks import WebhookStub

__all__ = ["Difference", "Duel"]

_PATCHES = {"merge": MERGE_PATCH, "json": JSON_PATCH, "strategic": STRATEGIC_PATCH, "apply": APPLY}
_NOT_PUBLISHED = "metadata.name!=kube-root-ca.crt"  # a controller of the real server writes it when it likes
_LAST = "zz-last"  # the object whose event ends every watch
_COLLECTION = 20.0  # seconds that the collector of the real server may need more than it did for its chain
_NEVER = "00000000-0000-0000-0000-000000000000"  # the uid of no object
_EVERY_LABEL = {"app": "web", "tier": "front"}


class Difference(AssertionError):  # noqa: N818  (a finding, not a failure of this program)
    """The first step that the two servers answered differently."""

    def __init__(self, steps: Sequence[Step], index: int, one: Any, two: Any) -> None:
        self.steps, self.index, self.one, self.two = list(steps), index, one, two
        super().__init__(str(self))

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.steps[self.index]

    def __str__(self) -> str:
        done = "\n".join(str(step) for step in self.steps[: self.index + 1])
        return f"the servers differ in the last of these steps:\n{done}\n" + "\n".join(lines(self.one, self.two))


class Side:
    """One server during one sequence."""

    def __init__(self, api: RawApi, namespace: str, hooks: Hooks) -> None:
        self._api = api
        self._namespace = namespace
        self._hooks = hooks
        self._quota: Quota | None = None
        self._normalizer = Normalizer()
        self._revisions: dict[tuple[str, str], list[str]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._start: dict[str, str] = {}
        self._watches: dict[Step, tuple[Any, WatchStream]] = {}

    async def begin(self, watches: Sequence[Step]) -> None:
        """Make the namespace, note where each watch begins, and open the live ones."""
        made = await self._api.post("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        assert made.status == 201, made.body
        account = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/default"
        await self._api.eventually(account, lambda answer: answer.status == 200)
        for step in watches:
            path = self._path(step)
            self._start[step.kind] = (await self._api.get(path)).revision
        for step in watches:
            if step.live:
                opened = self._open(step)
                self._watches[step] = (opened, await opened.__aenter__())

    async def end(self) -> None:
        """Close what is open."""
        for opened, _ in self._watches.values():
            await opened.__aexit__()

    async def take(self, step: Step) -> Any:
        """Do one step and return what was seen, by the client and by webhooks."""
        seen = await self._take(step)
        asked = self._hooks.asked()
        return seen if step.verb == "clear" or not asked else [seen, [self._review(*item) for item in asked]]

    def _review(self, role: str, request: dict[str, Any]) -> Any:
        objects = {name: self._normalizer.value(request.get(name)) for name in ("object", "oldObject")}
        return {"role": role, **reviewed(request), **objects}

    async def settle(self) -> None:
        """Wait for the garbage collector."""
        await Collector(self._api, self._namespace).settle()

    async def left_over(self) -> list[Any]:
        """What the garbage collector has left."""
        return await left_over(self._api, self._namespace)

    async def _take(self, step: Step) -> Any:
        match step.verb:
            case "limit" | "count" | "collect":
                return await self._control(step)
            case "list":
                return await self._list(step)
            case "watch":
                return await self._watch(step)
            case "get":
                answer = await self._api.get(self._path(step, step.name, step.subresource))
            case "create" | "evict":
                answer = await self._post(step)
            case "replace":
                path = self._path(step, step.name, step.subresource)
                answer = await self._api.put(path, self._body(step), **self._query(step))
            case "modify":
                return await self._modify(step)
            case "delete":
                answer = await self._delete(step)
            case "clear":
                answer = await self._api.delete(self._path(step), **self._selectors(step), **self._deleting(step))
            case "merge" | "json" | "strategic" | "apply":
                path = self._path(step, step.name, step.subresource)
                answer = await self._api.patch(path, self._body(step), _PATCHES[step.verb], **self._query(step))
        self._remember(step, answer)
        return self._normalizer.answer(answer.status, answer.body, answer.warnings)

    async def _control(self, step: Step) -> Any:
        """What is a controller's work on a real server."""
        if step.verb == "collect":
            return [self._normalizer.value(item) for item in await self.left_over()]
        if step.verb == "limit":
            self._quota = Quota(self._api, self._namespace, step.name, step.body)
            return await self._quota.create()
        return await self._quota.count() if self._quota is not None else None

    async def _post(self, step: Step) -> RawResponse:
        if step.verb == "create":
            return await self._api.post(self._path(step), self._body(step), **self._query(step))
        return await self._api.post(self._path(step, step.name, "eviction"), self._eviction(step), **self._query(step))

    async def _modify(self, step: Step) -> Any:
        path = self._path(step, step.name, step.subresource)
        live = await self._api.get(path)
        if live.status != 200:
            return self._normalizer.answer(live.status, live.body)
        body = _merged(live.body, step.body)
        if step.revision == "none":
            body["metadata"].pop("resourceVersion", None)
        answer = await self._api.put(path, body, **self._query(step))
        self._remember(step, answer)
        return self._normalizer.answer(answer.status, answer.body, answer.warnings)

    def _preconditions(self, step: Step) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        if (revision := self._revision(step)) is not None:
            wanted["resourceVersion"] = revision
        if step.uid != "none":
            wanted["uid"] = self._uids.get((step.kind, step.name), "unknown") if step.uid == "live" else "wrong"
        return {"preconditions": wanted} if wanted else {}

    def _eviction(self, step: Step) -> dict[str, Any]:
        options = step.body.get("deleteOptions", {}) | self._preconditions(step)
        return {**step.body, "deleteOptions": options} if options else dict(step.body)

    async def _delete(self, step: Step) -> RawResponse:
        options = self._preconditions(step)
        query = self._deleting(step)
        return await self._api.delete(self._path(step, step.name), options or None, **query)

    async def _list(self, step: Step) -> Any:
        query: dict[str, Any] = self._selectors(step)
        if step.limit:
            query["limit"] = step.limit
        if (revision := self._revision(step)) is not None:
            query |= {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        pages = []
        while True:
            answer = await self._api.get(self._path(step), **query)
            pages.append(self._normalizer.answer(answer.status, answer.body))
            if answer.status != 200 or not (token := answer.body["metadata"].get("continue")):
                return _without_empty_end(pages)
            query = {"continue": token, **({"limit": step.limit} if step.limit else {}), **self._selectors(step)}

    async def _watch(self, step: Step) -> Any:
        """All events since the sequence began, up to that of a last object that every selector lets through."""
        await self._api.post(self._path(step), _last(step.kind))
        opened = None
        if step in self._watches:
            stream = self._watches[step][1]
        else:
            opened = self._open(step)
            stream = await opened.__aenter__()
        events = []
        try:
            while (event := await stream.next()) is not None:
                events.append(self._normalizer.event(event))
                if event["object"].get("metadata", {}).get("name") == _LAST or event["type"] == "ERROR":
                    break
        finally:
            if opened is not None:
                await opened.__aexit__()
        return events

    def _open(self, step: Step) -> Any:
        return self._api.watch(self._path(step), resourceVersion=self._start[step.kind], **self._selectors(step))

    def _path(self, step: Step, name: str | None = None, subresource: str = "") -> str:
        kind = KINDS[step.kind]
        if step.version:
            kind = msgspec.structs.replace(kind, version=step.version)
        return kind.path(self._namespace, name, subresource or None)

    def _selectors(self, step: Step) -> dict[str, Any]:
        fields = [step.fields] if step.fields else []
        if step.kind == "configmap":
            fields.append(_NOT_PUBLISHED)
        query = {"labelSelector": step.labels, "fieldSelector": ",".join(fields)}
        return {key: value for key, value in query.items() if value}

    def _deleting(self, step: Step) -> dict[str, Any]:
        query = {"dryRun": "All" if step.dry_run else "", "propagationPolicy": step.propagation}
        return {key: value for key, value in query.items() if value}

    def _query(self, step: Step) -> dict[str, Any]:
        query = {
            "fieldManager": step.manager,
            "dryRun": "All" if step.dry_run else "",
            "force": "true" if step.force else "",
            "fieldValidation": "Strict" if step.strict else "",
        }
        return {key: value for key, value in query.items() if value}

    def _body(self, step: Step) -> Any:
        if step.verb == "json":
            return step.body
        body = copy.deepcopy(step.body)
        if step.owners:
            body.setdefault("metadata", {})["ownerReferences"] = [self._owner(owner) for owner in step.owners]
        if (revision := self._revision(step)) is not None:
            body.setdefault("metadata", {})["resourceVersion"] = revision
        return body

    def _owner(self, owner: Owner) -> dict[str, Any]:
        kind = KINDS[owner.kind]
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner.name}
        flags = {"blockOwnerDeletion": owner.block, "controller": owner.controller}
        uid = self._uids.get((owner.kind, owner.name), _NEVER)
        return {**reference, "uid": uid, **{name: True for name, on in flags.items() if on}}

    def _revision(self, step: Step) -> str | None:
        known = self._revisions.get((step.kind, step.name), [])
        match step.revision:
            case "none":
                return None
            case "live" | "stale" if known:
                return known[-1] if step.revision == "live" else known[0]
            case _:
                return None if step.verb == "list" else "1"  # the beginning of time is compacted on a real server

    def _remember(self, step: Step, answer: RawResponse) -> None:
        if answer.status >= 300 or step.dry_run or not isinstance(answer.body, dict):
            return
        meta = answer.body.get("metadata", {})
        if "resourceVersion" in meta:
            self._revisions.setdefault((step.kind, step.name), []).append(meta["resourceVersion"])
        if "uid" in meta:
            self._uids[step.kind, step.name] = meta["uid"]


# Rules in CEL for some fields of a Widget, by path; those with `oldSelf` are about what changes.
_RULES: dict[str, dict[str, Any]] = {
    "": {"rule": "!has(self.spec) || !has(self.spec.title) || self.spec.title != 'abc' || self.metadata.name != 'a'"},
    "spec": {"rule": "!has(self.size) || !has(self.replicas) || self.size != self.replicas", "fieldPath": ".size"},
    "spec.replicas": {"rule": "self != 3"},
    "spec.ratio": {"rule": "self / 2.0 != 0.75", "message": "ratio cannot be 1.5"},
    "spec.words": {"rule": "self.size() != 2"},
    "spec.on": {"rule": "self || oldSelf"},
    "spec.limit": {"rule": "type(self) == int ? self != 1 || oldSelf == self : self.endsWith('%')"},
    "spec.tags": {"rule": "self == oldSelf || self.size() != 3", "reason": "FieldValueForbidden"},
    "spec.ports": {"rule": "self.all(port, port.port != 3 || has(port.note))"},
    "spec.ports[]": {"rule": "has(self.note) == has(oldSelf.note) || self.port == 2"},
    "spec.pairs": {"rule": "!('p' in self) || !('q' in self) || self['p'] != self['q']"},
    "spec.frozen": {"rule": "self.a == self.b || !has(self.b)"},
    "spec.nested": {"rule": "self.level < 4", "messageExpression": "'level is %d'.format([self.level])"},
    "status.replicas": {"rule": "self != 2"},
    "status.phase": {"rule": "oldSelf.hasValue() || self != '3'", "optionalOldSelf": True},
}


def ruled_widgets_crd() -> dict[str, Any]:
    """The Widget with rules. Its lists and texts have limits, or the real server finds the rules too expensive."""
    definition = copy.deepcopy(widgets_crd(GROUP))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("tags", "ports"):
        schema["properties"]["spec"]["properties"][name]["maxItems"] = 10
    for path, rule in _RULES.items():
        node = schema
        for part in path.removesuffix("[]").split(".") if path else ():
            node = node["properties"][part]
        node = node["items"] if path.endswith("[]") else node
        node["x-kubernetes-validations"] = [rule]
    return definition


def gadgets_crd() -> dict[str, Any]:
    """A kind in two versions: what one of them prunes, the other keeps. Defaults are the same in both."""
    definition = crd("Gadget", group=GROUP, schema=WIDGET_SCHEMA, subresources={"status": {}})
    first = definition["spec"]["versions"][0]
    second = copy.deepcopy(first) | {"name": "v2", "storage": False}
    fields = second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["title"]
    fields["extra"] = {"type": "string"}
    definition["spec"]["versions"].append(second)
    return definition


class Duel:
    """Two servers with the same custom resources installed, that ask the same webhooks."""

    def __init__(self, one: RawApi, two: RawApi, stub: WebhookStub) -> None:
        self._apis = (one, two)
        self._hooks = (Hooks(stub, "one"), Hooks(stub, "two"))

    async def prepare(self) -> None:
        """Install the custom resources and the webhooks on both."""
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for api, hooks in zip(self._apis, self._hooks, strict=True):
            await hooks.configure(api)
            for kind, definition in (("widget", ruled_widgets_crd()), ("gadget", gadgets_crd())):
                made = await api.post(crds, definition)
                assert made.status in {201, 409}, made.body
                for version in definition["spec"]["versions"]:
                    await self._until_writable(api, kind, version["name"])

    async def _until_writable(self, api: RawApi, name: str, version: str) -> None:
        """A new resource answers reads a moment before it takes writes."""
        kind = msgspec.structs.replace(KINDS[name], version=version)
        probe = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "probe"}}
        async with asyncio.timeout(30):
            while (await api.apply(kind.path("default", "probe"), probe, dryRun="All")).status != 201:
                pass

    async def fight(self, steps: Sequence[Step], namespace: str) -> None:
        """Send the sequence to both; raise `Difference` at the first one."""
        sides = [Side(api, namespace, hooks) for api, hooks in zip(self._apis, self._hooks, strict=True)]
        steps = [*(step for step in steps if step.verb != "watch"), *(step for step in steps if step.verb == "watch")]
        watches = [step for step in steps if step.verb == "watch"]
        try:
            await asyncio.gather(*(side.begin(watches) for side in sides))
            for index, step in enumerate(steps):
                if step.verb == "collect":
                    await self._collected(sides)
                one, two = await asyncio.gather(*(side.take(step) for side in sides))
                if one != two:
                    raise Difference(steps, index, one, two)
        finally:
            await asyncio.gather(*(side.end() for side in sides))

    async def _collected(self, sides: Sequence[Side]) -> None:
        """Wait until garbage collection is over on both; what is left a while after that is a difference."""

        async def alike() -> bool:
            one, two = await asyncio.gather(*(side.left_over() for side in sides))
            return _skeleton(one) == _skeleton(two)

        await asyncio.gather(*(side.settle() for side in sides))
        with contextlib.suppress(AssertionError):
            await eventually(alike, timeout=_COLLECTION)


def _skeleton(items: list[Any]) -> list[Any]:
    """What garbage collection changes of objects, in a form that two servers share."""
    metas = [(item["kind"], item["metadata"]) for item in items]
    return [
        (kind, meta["name"], "deletionTimestamp" in meta, meta.get("finalizers"), len(meta.get("ownerReferences", ())))
        for kind, meta in metas
    ]


def lines(one: Any, two: Any, path: str = "") -> list[str]:
    """Where two values differ, one line per place."""
    if one == two:
        return []
    if isinstance(one, dict) and isinstance(two, dict):
        keys = sorted(one.keys() | two.keys())
        return [line for key in keys for line in lines(one.get(key, _ABSENT), two.get(key, _ABSENT), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [
            line
            for index, (left, right) in enumerate(zip(one, two, strict=True))
            for line in lines(left, right, f"{path}[{index}]")
        ]
    return [f"{path or '.'}\n    first  {_short(one)}\n    second {_short(two)}"]


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, _Absent) else msgspec.json.encode(value).decode()
    return text if len(text) < 900 else f"{text[:900]}…"


def _without_empty_end(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whether a page knows that nothing selected comes after it depends on where the real server read it from."""
    if len(pages) > 1 and pages[-1]["body"].get("items") == []:
        *pages, _ = pages
        pages[-1]["body"]["metadata"]["more"] = False
    return pages


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386 on plain values."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _last(kind: str) -> dict[str, Any]:
    """A valid object of the kind that matches every selector a sequence uses."""
    meta = {"labels": _EVERY_LABEL}
    match kind:
        case "configmap":
            return configmap(_LAST, **meta)
        case "secret":
            return secret(_LAST, **meta)
        case "service":
            return service(_LAST, **meta)
        case "pod":
            return pod(_LAST, **meta)
        case "deployment":
            return deployment(_LAST, **meta)
        case "widget":
            return widget(GROUP, _LAST, **meta)
        case _:
            raise ValueError(f"{kind} cannot be watched here")
