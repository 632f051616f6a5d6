"""Webhooks that a test answers itself: an HTTPS server in the test's process, and configurations that point to it.

    async with WebhookStub() as stub:
        stub.on("/deny", lambda request: denied("no"))
        await stub.configure(api, ns, validating=[stub.webhook("/deny", rule("configmaps"))])
        ...
        assert stub.asked("/deny")[0]["operation"] == "CREATE"

A real API server takes up a configuration a moment after it is stored. Every configuration therefore begins with a
webhook that only a probe reaches, and `configure` returns once that one was called.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
import os
import ssl
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from steersman.apiserver.admission.configurations import AdmissionWebhook
from steersman.certificates import Authority, load_pair
from steersman.testing import eventually
from tests.support.manifests import configmap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Manifest, Space

__all__ = ["Refused", "WebhookStub", "admission_webhook", "allowed", "denied", "patch", "rule"]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PROBE = "/probe"
EVERYTHING = ("CREATE", "UPDATE", "DELETE")
_numbers = itertools.count(1)
_AUTHORITY = Authority("webhooks of tests")


def allowed(**fields: Any) -> Manifest:
    """An answer that lets the request pass."""
    return {"allowed": True, **fields}


def denied(message: str = "", **status: Any) -> Manifest:
    """An answer that refuses."""
    status = status | ({"message": message} if message else {})
    return {"allowed": False, **({"status": status} if status else {})}


def patch(*operations: Manifest, **fields: Any) -> Manifest:
    """An answer with a JSON patch."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded, **fields}


def rule(
    *resources: str,
    group: str = "",
    version: str = "v1",
    operations: Sequence[str] = EVERYTHING,
    **fields: Any,
) -> Manifest:
    """A rule of a webhook."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
        **fields,
    }


def admission_webhook(*rules: Manifest, mutating: bool = False, **fields: Any) -> AdmissionWebhook:
    """A webhook as the embedded server reads it from a stored configuration."""
    wire = {
        "name": "a.example.org",
        "clientConfig": {"url": "https://a"},
        "rules": list(rules),
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    return AdmissionWebhook.from_wire(wire | fields, configuration="c", mutating=mutating)


def _is_probe(request: Manifest) -> bool:
    """Whether a request only finds out which configurations are in force."""
    return "probe" in ((request["object"] or {}).get("metadata", {}).get("labels") or {})


class Refused(Exception):  # noqa: N818  what a conversion answers
    """A conversion that fails."""


class WebhookStub:
    """The server. What `on` registers answers the request of a review; an unknown path is answered with 404."""

    def __init__(self, *names: str) -> None:
        self._names = names or ("127.0.0.1", "localhost")
        self._answers: dict[str, Callable[[Manifest], Any]] = {}
        self._asked: dict[str, list[Manifest]] = {}
        self._configured: list[tuple[RawApi, str]] = []
        self.port = 0
        self.certificate = ""  # its own, for a `clientConfig` that trusts nothing else

    async def __aenter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = _AUTHORITY.server(*self._names)
        self.certificate = base64.b64encode(pair.certificate).decode()
        load_pair(context, pair)
        self._server = web.Server(self._handle)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, "127.0.0.1", 0, ssl=context)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for api, path in self._configured:
            await api.delete(path)
        self._listener.close()
        await self._server.shutdown(0.1)

    @property
    def ca_bundle(self) -> str:
        """The authority of its certificate, for a `clientConfig`."""
        return base64.b64encode(_AUTHORITY.pem).decode()

    def on(self, path: str, answer: Callable[[Manifest], Any]) -> None:
        """Let `answer(request)` answer at `path`: a dict is the response, a web.Response is sent as it is."""
        self._answers[path] = answer

    def asked(self, path: str) -> list[Manifest]:
        """The requests of the reviews at `path`, without the ConfigMap that a controller may write at any moment."""
        return [request for request in self._asked.get(path, []) if request.get("name") != "kube-root-ca.crt"]

    def webhook(self, path: str, *rules: Manifest, **fields: Any) -> Manifest:
        """A webhook of a configuration that is answered at `path`."""
        return {
            "name": f"{path.strip('/').replace('/', '-')}.stub.example.org",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca_bundle},
            "rules": list(rules),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }

    async def configure(
        self, api: RawApi, ns: Space, *, mutating: Sequence[Manifest] = (), validating: Sequence[Manifest] = ()
    ) -> None:
        """Have the webhooks asked about what happens in namespace `ns`, unless they select others themselves."""
        for kind, webhooks in (("Mutating", mutating), ("Validating", validating)):
            if webhooks:
                await self._configure(api, ns, kind, webhooks)

    async def _configure(self, api: RawApi, ns: Space, kind: str, webhooks: Sequence[Manifest]) -> None:
        name = f"stub-{os.getpid()}-{next(_numbers):04}"
        self.on(PROBE, allowed)
        probe = self.webhook(PROBE, rule("configmaps"), objectSelector={"matchLabels": {"probe": name}})
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}}
        manifest = {"metadata": {"name": name}, "webhooks": [here | webhook for webhook in (probe, *webhooks)]}
        collection = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
        made = await api.post(collection, manifest)
        assert made.status == 201, made.body
        self._configured.append((api, f"{collection}/{name}"))
        await eventually(lambda: self._probe(api, ns, name), "the configuration is taken up")

    async def _probe(self, api: RawApi, ns: Space, name: str) -> bool:
        answer = await api.post(ns.core("configmaps"), configmap("probe", labels={"probe": name}), dryRun="All")
        return "probed" in answer.warnings

    def _convert(self, path: str, review: Manifest) -> web.Response:
        """`on` registers a function from an object to the object in the wanted version; an exception is a failure."""
        request = review["request"]
        self._asked.setdefault(path, []).append(request)
        try:
            objects = [
                self._answers[path](obj | {"apiVersion": request["desiredAPIVersion"]}) for obj in request["objects"]
            ]
        except Refused as error:
            result = {"status": "Failure", "message": str(error)}
            response = {"uid": request["uid"], "result": result}
        else:
            response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return web.Response(status=404)
        review = await request.json()
        if review["kind"] == "ConversionReview":
            return self._convert(request.path, review)
        if _is_probe(review["request"]):
            response = allowed(warnings=["probed"] if request.path == PROBE else [])
        else:
            self._asked.setdefault(request.path, []).append(review["request"])
            response = answer(review["request"])
        if inspect.isawaitable(response):
            response = await response
        if isinstance(response, web.Response):
            return response
        response = {"uid": review["request"]["uid"], **response}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
