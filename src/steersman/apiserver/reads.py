"""get, list and watch.

A list is consistent: its metadata names the revision it shows, and every page of it shows the same one. The continue
token carries that revision and the key to go on from, in the real server's own format; when the revision is gone the
answer is 410 with a token that goes on from the same key at the current revision instead.
"""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import statuses
from steersman.apiserver.api import Reply
from steersman.apiserver.requests import ListOptions
from steersman.apiserver.selection import Selection
from steersman.apiserver.store import key_of
from steersman.apiserver.watch import Watch, WatchOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.api import Api
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import Request
    from steersman.apiserver.store import Record, State, Table

__all__ = ["find", "get", "list_objects", "watch"]

_EXPIRED = "The resourceVersion for the provided list is too old."
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
MIN_TIMEOUT = 1800  # seconds; a watch without timeoutSeconds lives this long and up to twice as long


class _Token(msgspec.Struct):
    """The continue token."""

    v: str = ""
    rv: int = 0
    start: str = ""


def find(api: Api, info: ResourceInfo, namespace: str, name: str) -> Record:
    """The object, or 404."""
    record = api.table(info).records.get(key_of(namespace, name))
    if record is None:
        raise statuses.not_found(info.kind, name)
    return record


def get(api: Api, request: Request) -> Reply:
    """One object."""
    route = request.route
    _check_view(request, single=True)
    version = request.query.text("resourceVersion")
    if version:
        asked = _parse_version(version)
        if asked is None:
            raise statuses.internal(_bad_version(version))
        if asked > api.store.revision:
            raise statuses.too_large_version(asked, api.store.revision)
    return api.answer(request, find(api, route.info, route.namespace, route.name))


def list_objects(api: Api, request: Request) -> Reply:
    """A page of a list; the whole list when there is no limit."""
    route = request.route
    _check_view(request, single=False)
    options = ListOptions.parse(request.query, watch=False)
    selection = Selection.parse(route.info, route.namespace, options.label_selector, options.field_selector)
    table = api.table(route.info)
    state, revision, start, limit = _position(api, table, route.namespace, options)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if route.info.custom is not None and not request.media.view:
        metadata["continue"] = ""  # lists without a Go type always have it
    records: Iterable[Record]
    if selection.name is not None and (route.namespace or not route.info.kind.namespaced):
        found = state.records.get(key_of(route.namespace, selection.name))
        records = [found] if found is not None and found.key >= start and selection.matches(found) else []
    else:
        records = selection.filter(state.scan(route.namespace, start))
    if limit:
        page = list(islice(records, limit + 1))
        if len(page) > limit:
            page.pop()
            metadata["continue"] = _encode_token(revision, page[-1].key, route.namespace)
            if selection.everything:
                low, high = state.bounds(route.namespace, page[-1].key + "\0")
                metadata["remainingItemCount"] = high - low
        records = page
    return Reply(200, api.view(request).many(records, metadata), request.media.content_type)


def _position(api: Api, table: Table, namespace: str, options: ListOptions) -> tuple[State, int, str, int]:
    """Which state to list, at which revision, from which key on, and how much of it."""
    store = api.store
    store.expire()
    if options.token:
        token = _decode_token(options.token)
        if options.resource_version not in {"", "0"}:
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        start = f"{namespace}/{token.start.removeprefix('/')}".removeprefix("/")
        if token.rv < 0:  # the inconsistent continuation of an expired list
            return table, store.revision, start, options.limit
        if token.rv < store.compacted:
            again = _encode_token(-1, start[:-1], namespace)
            raise statuses.expired(_CONTINUE_EXPIRED, continue_token=again)
        if token.rv > store.revision:
            raise statuses.too_large_version(token.rv, store.revision)
        return table.at(token.rv), token.rv, start, options.limit
    if not options.resource_version:
        return table, store.revision, "", options.limit
    asked = _parse_version(options.resource_version)
    if asked is None:
        raise statuses.bad_request(f"invalid resource version: {_bad_version(options.resource_version)}")
    if asked > store.revision:
        raise statuses.too_large_version(asked, store.revision)
    exact = options.match == "Exact" or (options.limit and asked > 0 and not options.match)
    if exact:
        if asked < store.compacted:
            raise statuses.expired(_EXPIRED)
        return table.at(asked), asked, "", options.limit
    # "0" and a lower bound are served from what is there; "0" ignores the limit, as a cache does
    return table, store.revision, "", options.limit if asked else 0


def watch(api: Api, request: Request) -> Watch:
    """A stream of changes."""
    route = request.route
    options = ListOptions.parse(request.query, watch=True)
    fields = options.field_selector
    if route.name:  # the old /watch/ form of a single object
        fields = ",".join(filter(None, (fields, f"metadata.name={route.name}")))
    selection = Selection.parse(route.info, route.namespace, options.label_selector, fields)
    table, store = api.table(route.info), api.store
    store.expire()
    asked = _parse_version(options.resource_version or "0")
    if asked is None:
        raise statuses.internal(_bad_version(options.resource_version))
    initial = options.send_initial_events
    if initial is None:
        initial = asked == 0
    if options.send_initial_events and asked > store.revision:
        raise statuses.too_large_version(asked, store.revision)  # as an event of the stream
    records = tuple(selection.filter(table.scan(route.namespace))) if initial else ()
    timeout = options.timeout or MIN_TIMEOUT * (1 + api.random.random())
    return Watch(
        api.hub,
        table,
        selection,
        api.view(request),
        WatchOptions(
            revision=asked if asked and not initial else store.revision,
            initial=records,
            mark_initial_end=bool(options.send_initial_events and options.bookmarks),
            bookmarks=options.bookmarks,
            timeout=timeout,
        ),
    )


def _check_view(request: Request, *, single: bool) -> None:
    view, info = request.media.view, request.route.info
    kind = info.kind.kind if single else info.list_kind
    where = "unstructured" if info.custom else f"{info.kind.group.partition('.')[0] or 'core'}"
    go_type = f"*unstructured.Unstructured{'' if single else 'List'}" if info.custom else f"*{where}.{kind}"
    if view == "PartialObjectMetadata" and not single:
        raise statuses.not_acceptable(
            f"you requested PartialObjectMetadata, but the requested object is a list ({go_type})"
        )
    if view == "PartialObjectMetadataList" and single and info.custom is not None:
        raise statuses.internal("content is not a list")
    if view == "PartialObjectMetadataList" and single:
        raise statuses.not_acceptable(
            f"you requested PartialObjectMetadataList, but the requested object is not a list ({go_type})"
        )


def _parse_version(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _bad_version(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _encode_token(revision: int, last: str, namespace: str) -> str:
    """Continue after key `last`. Keys in tokens are relative to the listed prefix, as the real server has them."""
    relative = last[len(namespace) :] if namespace else last
    body = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, relative + "\0"))
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _decode_token(text: str) -> _Token:
    def refuse(why: str) -> statuses.StatusError:
        return statuses.bad_request(f"invalid continue token: continue key is not valid: {why}")

    try:
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        wrong = next((i for i, char in enumerate(text) if char not in alphabet), len(text))
        raise refuse(f"illegal base64 data at input byte {wrong}") from None
    try:
        token = msgspec.json.decode(body, type=_Token)
    except msgspec.MsgspecError:
        first = body[:1].decode("latin-1")
        raise refuse(f"invalid character '{first}' looking for beginning of value") from None
    if token.v != "meta.k8s.io/v1":
        raise refuse(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise refuse("encoded start key empty (version meta.k8s.io/v1)")
    return token
