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

from steersman.apiserver import status_errors
from steersman.apiserver.http.requests import ListOptions
from steersman.apiserver.http.state import Reply
from steersman.apiserver.storage.selection import Selection
from steersman.apiserver.storage.store import key_of
from steersman.apiserver.storage.watch import Watch, WatchOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record, ResourceTable, State

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
        raise status_errors.not_found(info.kind, name)
    return record


def get(api: Api, request: Request) -> Reply:
    """One object."""
    route = request.route
    _check_view(request, single=True)
    version = request.query.text("resourceVersion")
    if version:
        asked = _parse_version(version)
        if asked is None:
            raise status_errors.internal(_bad_version(version))
        if asked > api.store.revision:
            raise status_errors.too_large_version(asked, api.store.revision)
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
    return Reply(200, api.view(request).encode_list(records, metadata), request.media.content_type)


def _position(api: Api, table: ResourceTable, namespace: str, options: ListOptions) -> tuple[State, int, str, int]:
    """Which state to list, at which revision, from which key on, and how much of it."""
    store = api.store
    store.expire()
    if options.token:
        token = _decode_token(options.token)
        if options.resource_version not in {"", "0"}:
            raise status_errors.bad_request("specifying resource version is not allowed when using continue")
        start = f"{namespace}/{token.start.removeprefix('/')}".removeprefix("/")
        if token.rv < 0:  # the inconsistent continuation of an expired list
            return table, store.revision, start, options.limit
        if token.rv < store.compacted:
            again = _encode_token(-1, start[:-1], namespace)
            raise status_errors.expired(_CONTINUE_EXPIRED, continue_token=again)
        if token.rv > store.revision:
            raise status_errors.too_large_version(token.rv, store.revision)
        return table.at(token.rv), token.rv, start, options.limit
    if not options.resource_version:
        return table, store.revision, "", options.limit
    asked = _parse_version(options.resource_version)
    if asked is None:
        raise status_errors.bad_request(f"invalid resource version: {_bad_version(options.resource_version)}")
    if asked > store.revision:
        raise status_errors.too_large_version(asked, store.revision)
    exact = options.match == "Exact" or (options.limit and asked > 0 and not options.match)
    if exact:
        if asked < store.compacted:
            raise status_errors.expired(_EXPIRED)
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
        raise status_errors.internal(_bad_version(options.resource_version))
    initial = options.send_initial_events
    if initial is None:
        initial = asked == 0
    if options.send_initial_events and asked > store.revision:
        raise status_errors.too_large_version(asked, store.revision)  # as an event of the stream
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
    if view == "PartialObjectMetadata" and not single:
        raise status_errors.not_acceptable(f"you requested {view}, but the requested object is a list")
    if view == "PartialObjectMetadataList" and single and info.custom is not None:
        raise status_errors.internal("content is not a list")
    if view == "PartialObjectMetadataList" and single:
        raise status_errors.not_acceptable(f"you requested {view}, but the requested object is not a list")


def _parse_version(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _bad_version(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": must be a number'


def _encode_token(revision: int, last: str, namespace: str) -> str:
    """Continue after key `last`. Keys in tokens are relative to the listed prefix, as the real server has them."""
    relative = last[len(namespace) :] if namespace else last
    body = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, relative + "\0"))
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _decode_token(text: str) -> _Token:
    def refuse(why: str) -> status_errors.StatusError:
        return status_errors.bad_request(f"invalid continue token: continue key is not valid: {why}")

    try:
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(body, type=_Token)
    except (binascii.Error, ValueError):
        raise refuse("it is not a token of this server") from None
    if token.v != "meta.k8s.io/v1":
        raise refuse(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise refuse("encoded start key empty (version meta.k8s.io/v1)")
    return token
