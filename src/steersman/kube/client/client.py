"""The client: every verb of the Kubernetes API on typed objects.

    async with Client.connect() as client:
        for pod in (await client.list(Pod, namespace="shop")).items: ...
        await client.apply(deployment)

Reading is `Reader`'s part and works the same here. Writing takes a Resource, which knows its kind, or a dict with
apiVersion and kind, whose path is asked from the server once. A write is sent once: it is repeated only when the
server cannot have acted on it. Every failure is a KubeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from steersman.kube.api.errors import BadRequest, BadResponse, Conflict
from steersman.kube.api.objects import PartialObjectMetadata, Resource, encode
from steersman.kube.api.patches import PatchType
from steersman.kube.client import pod_streams, subresources
from steersman.kube.client.codec import Codec, codec_for
from steersman.kube.client.discovery import APIResource, DiscoveryClient, ServerVersion
from steersman.kube.client.reader import Reader, Target, decoded, query, selector_text
from steersman.kube.client.three_way import explicit, rebase_change
from steersman.kube.config.kubeconfig import load_config
from steersman.kube.transport.guarded_transport import GuardedTransport
from steersman.kube.transport.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self, Unpack

    from steersman.kube.api.field_selectors import FieldSelector
    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.selectors import Selector
    from steersman.kube.config.config import Config
    from steersman.kube.transport.transport import Response
    from steersman.kube.transport.write_requests import WriteInterceptor

__all__ = ["Client", "PatchType"]

R = TypeVar("R", bound=Resource)
ObjectT = TypeVar("ObjectT", bound=Resource | dict[str, Any])
Patch = dict[str, Any] | list[Any] | bytes
Kinds = list[APIResource]  # for Client has a method called list

_UPDATE_ATTEMPTS = 8  # a conflict means another client made progress; this many in a row is a fight


class Client(Reader):
    """Talks to one API server as one user. Use it as an async context manager, or call `close`."""

    def __init__(self, transport: Transport, *, namespace: str = "default", field_manager: str = "steersman") -> None:
        super().__init__(transport, namespace=namespace)
        self.field_manager = field_manager
        self.discovery = DiscoveryClient(transport)

    @classmethod
    def connect(
        cls,
        config: Config | None = None,
        *,
        field_manager: str = "steersman",
        user_agent: str | None = None,
        **options: Any,
    ) -> Client:
        """A client for `config`, by default what kubectl would use. `options` are those of `Transport`."""
        config = config if config is not None else load_config()
        transport = Transport(config, user_agent=user_agent, **options)
        return cls(transport, namespace=config.namespace, field_manager=field_manager)

    def guarded(self, guard: WriteInterceptor) -> Self:
        """The same client, whose every write has to pass `guard`. A second guard adds to it.

        This one stays as it is, and both use the same connections.
        """
        other = self.with_options(timeout=self._timeout, retry=self._retry)
        other.transport = GuardedTransport(self.transport, guard)
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection, open watches included."""
        await self.transport.close()

    async def create(
        self,
        obj: ObjectT,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
    ) -> ObjectT:
        """Create `obj` and return what the server made of it; AlreadyExists when the name is taken.

        `name` and `subresource` create in a subresource of an existing object, such as a binding.
        """
        codec = await self._codec_of(obj)
        path = codec.kind.path(self._namespace_of(codec.kind, obj, namespace), name, subresource)
        params = self._write_params(dry_run, field_manager, field_validation)
        created: ObjectT = await self._write("POST", path, codec, encode(obj), params)
        return created

    async def replace(
        self,
        obj: ObjectT,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
    ) -> ObjectT:
        """Replace the object; Conflict when the resourceVersion of `obj` is not the newest.

        A struct holds only the fields it names and this erases all others; `update_with_retry` changes an object.
        """
        codec = await self._codec_of(obj)
        path = codec.kind.path(self._namespace_of(codec.kind, obj, namespace), _name_of(obj), subresource)
        params = self._write_params(dry_run, field_manager, field_validation)
        replaced: ObjectT = await self._write("PUT", path, codec, encode(obj), params)
        return replaced

    @overload
    async def update_with_retry(
        self,
        target: type[R],
        name: str,
        change: Callable[[R], R | None],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> R: ...
    @overload
    async def update_with_retry(
        self,
        target: Target,
        name: str,
        change: Callable[[Any], Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Any: ...
    async def update_with_retry(
        self,
        target: Target,
        name: str,
        change: Callable[[Any], Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Any:
        """Read an object, let `change` alter it (in place, or by returning another), and write the difference back.

        Fields the struct does not name keep their values. Nothing is written when nothing differs. When another client
        wrote in between, the object is read and changed again, so `change` may run several times.
        """
        codec = codec_for(target)
        namespace = self._namespace_for(codec.kind, namespace)
        path = codec.kind.path(namespace, name, subresource)
        read_path = codec.kind.path(namespace, name) if subresource == "status" else path
        for attempt in range(1, _UPDATE_ATTEMPTS + 1):
            response = await self._request("GET", read_path)
            obj = decoded(codec, response)
            before = explicit(obj)
            result = change(obj)
            after = explicit(obj if result is None else result)
            if before == after:
                return obj if result is None else result
            whole = rebase_change(msgspec.json.decode(response.body), before, after)
            try:
                return await self._write("PUT", path, codec, msgspec.json.encode(whole), self._write_params())
            except Conflict:
                if attempt == _UPDATE_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")  # the last attempt returns or raises

    @overload
    async def patch(
        self,
        target: type[R],
        name: str,
        patch: Patch,
        *,
        type: PatchType = PatchType.MERGE,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
    ) -> R: ...
    @overload
    async def patch(
        self,
        target: Target,
        name: str,
        patch: Patch,
        *,
        type: PatchType = PatchType.MERGE,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
        into: type[Any] | None = None,
    ) -> Any: ...
    async def patch(
        self,
        target: Target,
        name: str,
        patch: Patch,
        *,
        type: PatchType = PatchType.MERGE,  # noqa: A002  # what kubectl calls it
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
        into: type[Any] | None = None,
    ) -> Any:
        """Change parts of an object. A resourceVersion in a merge patch makes it conditional."""
        codec = codec_for(target, into)
        path = codec.kind.path(self._namespace_for(codec.kind, namespace), name, subresource)
        body = patch if isinstance(patch, bytes) else msgspec.json.encode(patch)
        params = self._write_params(dry_run, field_manager, field_validation)
        return await self._write("PATCH", path, codec, body, params, content_type=type)

    async def apply(
        self,
        obj: Resource | dict[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        field_validation: str | None = None,
        into: type[Any] | None = None,
    ) -> Any:
        """Server-side apply: `obj` holds exactly the fields this field manager wants to own.

        Conflict names the managers that own other values of these fields; `force` takes the fields over.
        """
        codec = await self._codec_of(obj, into)
        path = codec.kind.path(self._namespace_of(codec.kind, obj, namespace), _name_of(obj), subresource)
        params = self._write_params(dry_run, field_manager, field_validation)
        params |= query(force="true" if force else None)
        return await self._write("PATCH", path, codec, encode(obj), params, content_type=PatchType.APPLY)

    async def delete(
        self,
        target: Target,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> PartialObjectMetadata | None:
        """Delete an object. Returns its metadata if it stays for now (finalizers, grace period), None if it is deleted.

        `uid` and `resource_version` are preconditions: Conflict when the object is another one or has changed.
        `propagation` is Foreground, Background or Orphan.
        """
        kind = codec_for(target).kind
        path = kind.path(self._namespace_for(kind, namespace), name)
        options = _delete_options(uid, resource_version, propagation, grace_period_seconds, dry_run)
        response = await self._request("DELETE", path, body=options, headers=_CONTENT_JSON)
        return _remainder(response)

    async def delete_collection(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        label_selector: str | Selector | None = None,
        field_selector: str | FieldSelector | None = None,
        propagation: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete every object of a kind that the selectors match, in one namespace (the client's by default)."""
        kind = codec_for(target).kind
        path = kind.path(self._namespace_for(kind, namespace))
        params = query(labelSelector=selector_text(label_selector), fieldSelector=field_selector)
        options = _delete_options(None, None, propagation, grace_period_seconds, dry_run)
        await self._request("DELETE", path, params=params, body=options, headers=_CONTENT_JSON)

    async def scale(
        self, target: Target, name: str, replicas: int | None = None, *, namespace: str | None = None
    ) -> subresources.Scale:
        """The scale of a workload; with `replicas`, after setting it."""
        return await subresources.scale(self, target, name, replicas, namespace=namespace)

    async def evict(
        self,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Ask for a pod to go; TooManyRequests when a disruption budget does not allow it now."""
        options = _delete_options(uid, None, None, grace_period_seconds, dry_run)
        await subresources.evict(self, name, options, namespace=namespace)

    async def logs(self, name: str, *, namespace: str | None = None, **options: Unpack[pod_streams.LogOptions]) -> str:
        """The log of a container so far; `previous` is the one before it was restarted."""
        return await pod_streams.logs(self, name, namespace, pod_streams.log_params(**options))

    def follow_logs(
        self, name: str, *, namespace: str | None = None, **options: Unpack[pod_streams.LogOptions]
    ) -> AbstractAsyncContextManager[pod_streams.LogLines]:
        """The lines of a log as they come, until the container ends: `async with … as lines`."""
        return pod_streams.follow_logs(self, name, namespace, pod_streams.log_params(**options))

    async def exec(
        self,
        name: str,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bytes | None = None,
    ) -> pod_streams.ExecResult:
        """Run a command in a container to its end, with `stdin` as its whole input; an exit code is not an error."""
        opened = self.open_exec(name, command, namespace=namespace, container=container, stdin=stdin is not None)
        async with opened as stream:
            return await pod_streams.run_command(stream, stdin, self.transport.options.max_response_bytes)

    def open_exec(
        self,
        name: str,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bool = False,
        tty: bool = False,
    ) -> AbstractAsyncContextManager[pod_streams.ExecStream]:
        """Start a command in a container and talk to it: `async for channel, data in stream`, `stream.send(…)`."""
        return pod_streams.open_exec(
            self, name, command, namespace=namespace, container=container, stdin=stdin, tty=tty
        )

    def port_forward(
        self, name: str, port: int, *, namespace: str | None = None, local_port: int = 0
    ) -> AbstractAsyncContextManager[pod_streams.PortForward]:
        """Listen on a port of 127.0.0.1 whose connections lead to a port of a pod: `async with … as local`."""
        return pod_streams.port_forward(self, name, port, namespace=namespace, local_port=local_port)

    async def create_token(
        self,
        service_account: str,
        *,
        namespace: str | None = None,
        audiences: tuple[str, ...] = (),
        expiration_seconds: int | None = None,
    ) -> subresources.IssuedToken:
        """A new token of a service account."""
        return await subresources.create_token(
            self, service_account, namespace=namespace, audiences=audiences, expiration_seconds=expiration_seconds
        )

    async def can_i(
        self,
        verb: str,
        target: Target,
        *,
        namespace: str | None = None,
        name: str = "",
        subresource: str = "",
    ) -> subresources.Review:
        """Whether this user may; true or false like a bool, with the server's reason. None asks for every namespace."""
        return await subresources.can_i(self, verb, target, namespace=namespace, name=name, subresource=subresource)

    async def server_version(self) -> ServerVersion:
        """The server's version."""
        return await self.discovery.version()

    async def api_resources(self) -> Kinds:
        """Every kind the server serves, with its verbs and names."""
        return await self.discovery.served()

    async def openapi(self, group_version: str | None = None) -> dict[str, Any]:
        """The OpenAPI v3 document of an API version such as `apps/v1`; without one, the index of them."""
        return await self.discovery.openapi(group_version)

    async def raw_post(self, path: str, body: Any) -> dict[str, Any]:
        """Post JSON to a path and return the JSON it answers with, for requests that do not create a stored object."""
        response = await self._request("POST", path, body=msgspec.json.encode(body), headers=_CONTENT_JSON)
        try:
            return msgspec.json.decode(response.body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise BadResponse(f"the answer is not JSON: {error}", request=response.request) from None

    async def _codec_of(self, obj: Resource | dict[str, Any], into: type[Any] | None = None) -> Codec[Any]:
        if isinstance(obj, Resource):
            return codec_for(type(obj), into)
        api_version, kind = obj.get("apiVersion"), obj.get("kind")
        if not api_version or not kind:
            raise BadRequest("an object needs apiVersion and kind: add them, or use a Resource class")
        return codec_for(await self.discovery.resolve_kind(api_version, kind), into)

    def _namespace_of(self, kind: Kind, obj: Resource | dict[str, Any], namespace: str | None) -> str | None:
        own = obj.metadata.namespace if isinstance(obj, Resource) else _metadata(obj).get("namespace")
        return self._namespace_for(kind, namespace or own)

    def _write_params(
        self, dry_run: bool = False, field_manager: str | None = None, field_validation: str | None = None
    ) -> dict[str, str]:
        return query(
            fieldManager=field_manager or self.field_manager,
            dryRun="All" if dry_run else None,
            fieldValidation=field_validation,
        )

    async def _write(
        self,
        method: str,
        path: str,
        codec: Codec[Any],
        body: bytes,
        params: dict[str, str],
        *,
        content_type: str = "application/json",
    ) -> Any:
        headers = {"Accept": codec.accept, "Content-Type": content_type}
        return decoded(codec, await self._request(method, path, params=params, body=body, headers=headers))


_CONTENT_JSON = {"Content-Type": "application/json"}


def _metadata(obj: dict[str, Any]) -> dict[str, Any]:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def _name_of(obj: Resource | dict[str, Any]) -> str:
    name = obj.metadata.name if isinstance(obj, Resource) else _metadata(obj).get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest("the object has no metadata.name: give it one")
    return name


def _delete_options(
    uid: str | None, resource_version: str | None, propagation: str | None, grace: int | None, dry_run: bool
) -> bytes:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid or resource_version:
        options["preconditions"] = query(uid=uid, resourceVersion=resource_version)
    if propagation:
        options["propagationPolicy"] = propagation
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if dry_run:
        options["dryRun"] = ["All"]
    return msgspec.json.encode(options)


class _Remainder(PartialObjectMetadata):
    kind: str = ""
    status: Any = None


def _remainder(response: Response) -> PartialObjectMetadata | None:
    """What is left of a deleted object: servers answer with the object while it exists, else with a Status."""
    try:
        answer = msgspec.json.decode(response.body, type=_Remainder)
    except msgspec.DecodeError as error:
        raise BadResponse(f"the response to a delete is not an object: {error}", request=response.request) from None
    if answer.kind == "Status":
        return None
    return PartialObjectMetadata(metadata=answer.metadata)
