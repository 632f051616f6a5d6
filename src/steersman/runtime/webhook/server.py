"""The webhook server: answers the API server over TLS, and never lets one bad request hurt the next.

Bodies are bounded, slow clients time out, an exception in a hook is counted and answered as an internal error (the
configuration's failure policy then decides), and certificates are swapped without closing a connection. `/readyz` and
`/healthz` answer on the same port for probes that want to know whether the webhook itself serves. A certificate that
expired, or that should have been renewed long ago, is reported by readiness, log and metrics.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.errors import ConfigError, traceback_of
from steersman.kube.api.selectors import Selector
from steersman.logger import Logger
from steersman.runtime.http.server import HttpServer, ServerLimits
from steersman.runtime.webhook.admission import NotAReview, Webhook, respond
from steersman.runtime.webhook.cert_watcher import CertWatcher
from steersman.runtime.webhook.conversion import ConversionWebhook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from steersman.runtime.webhook.certificate_source import CertificateSource

__all__ = ["WebhookServer", "webhook_configurations"]

MAX_BODY = 8 * 1024 * 1024  # two objects of the largest size etcd takes, encoded, and some air
MAX_CONVERSION_BODY = 256 * 1024 * 1024  # all objects of a list are converted in one review
PROBES = frozenset({"/healthz", "/readyz"})

log = Logger(__name__)


class WebhookMetrics:
    """controller-runtime's webhook metrics. One of them per registry, whatever number of servers it is for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        where = registry
        name = "controller_runtime_webhook"
        self.requests = Counter(f"{name}_requests", "Requests by answer.", ["webhook", "code"], registry=where)
        self.latency = Histogram(f"{name}_latency_seconds", "Time to answer.", ["webhook"], registry=where)
        self.in_flight = Gauge(f"{name}_requests_in_flight", "Requests being answered.", ["webhook"], registry=where)
        self.expires = Gauge(
            "steersman_webhook_certificate_expiration_timestamp_seconds",
            "When the certificate in use expires, in seconds since the epoch.",
            registry=where,
        )
        self.panics = Counter(f"{name}_panics", "Exceptions in hooks.", registry=where)


_METRICS: WeakKeyDictionary[CollectorRegistry, WebhookMetrics] = WeakKeyDictionary()


def _metrics_in(registry: CollectorRegistry) -> WebhookMetrics:
    if registry not in _METRICS:
        _METRICS[registry] = WebhookMetrics(registry)
    return _METRICS[registry]


class WebhookServer:
    """Serves hooks until cancelled."""

    def __init__(
        self,
        hooks: Iterable[Webhook | ConversionWebhook],
        certificates: CertificateSource,
        *,
        host: str = "0.0.0.0",  # noqa: S104  # the API server must reach it
        port: int = 9443,
        registry: CollectorRegistry | None = None,
        limits: ServerLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`registry` is where its metrics are; None: where those of the manager are by default."""
        self._hooks: dict[str, Webhook | ConversionWebhook] = {}
        for hook in hooks:
            if hook.path in self._hooks:
                raise ConfigError(f"there are two webhooks at {hook.path}: rename one function")
            self._hooks[hook.path] = hook
        self._host = host
        self._port = port
        converts = any(isinstance(hook, ConversionWebhook) for hook in self._hooks.values())
        self._limits = limits or ServerLimits(body_bytes=MAX_CONVERSION_BODY if converts else MAX_BODY)
        self._metrics = _metrics_in(REGISTRY if registry is None else registry)
        self._clock = clock
        self._certificates = CertWatcher(certificates, expires=self._metrics.expires, clock=clock)
        self.port: int | None = None  # the port in use, once serving
        self.serving = asyncio.Event()
        for path in self._hooks:
            self._metrics.in_flight.labels(path).set(0)
            for code in ("200", "500"):
                self._metrics.requests.labels(path, code)

    async def run(self) -> None:
        """Serve until cancelled; the first certificate must be had before the first request."""
        await self._certificates.load()
        server = HttpServer(
            self._host,
            self._port,
            routes=[web.route("*", "/{path:.*}", self._handle)],
            probes=PROBES,
            limits=self._limits,
            tls=self._certificates.context,
            clock=self._clock,
        )
        await server.start()
        try:
            self.port = server.port
            log.info("serving webhooks", port=self.port, hooks=sorted(self._hooks))
            self.serving.set()
            await self._certificates.run()
        finally:
            self.serving.clear()
            await server.stop()

    def certificate_problem(self) -> str | None:
        """Why clients refuse the certificate in use; None when they do not."""
        return self._certificates.problem()

    def certificate_warning(self) -> str | None:
        """A warning before clients refuse the certificate."""
        return self._certificates.warning()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in PROBES:
            problem = self.certificate_problem() if request.path == "/readyz" else None
            return web.Response(text=problem or "ok", status=503 if problem else 200)
        hook = self._hooks.get(request.path)
        if hook is None:
            return web.Response(status=404, text=f"no webhook at {request.path}")
        if request.method != "POST":
            return web.Response(status=405, text="webhooks take POST", headers={"Allow": "POST"})
        started = self._clock.monotonic()
        in_flight = self._metrics.in_flight.labels(hook.path)
        in_flight.inc()
        try:
            response = await self._answer(hook, request)
        finally:
            in_flight.dec()
            self._metrics.latency.labels(hook.path).observe(self._clock.monotonic() - started)
        self._metrics.requests.labels(hook.path, str(response.status)).inc()
        return response

    async def _answer(self, hook: Webhook | ConversionWebhook, request: web.Request) -> web.Response:
        deadline = asyncio.timeout(hook.timeout_seconds)
        try:
            async with deadline:
                body = await request.read()
                review = await (respond(hook, body) if isinstance(hook, Webhook) else hook.respond(body))
        except NotAReview as error:
            return web.Response(status=400, text=str(error))
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413, text=f"a review is at most {self._limits.body_bytes} bytes")
        except ConnectionError:
            raise  # the caller has left
        except (Exception, SystemExit) as error:  # noqa: BLE001  a hook may raise anything; it concerns its request only
            if deadline.expired():
                return web.Response(status=504, text=f"{hook.name} gave no answer in {hook.timeout_seconds} s")
            self._metrics.panics.inc()
            log.error("a webhook failed", webhook=hook.name, traceback=traceback_of(error))  # noqa: TRY400  no local variables in logs
            return web.Response(status=500, text=f"{hook.name} failed; its log says why")
        return web.Response(body=msgspec.json.encode(review), content_type="application/json")


def webhook_configurations(
    hooks: Sequence[Webhook | ConversionWebhook], *, name: str, client_config: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The manifests that register the admission webhooks in `hooks`; `crd_manifest` registers conversions.

    `client_config(path)` says how to reach one, e.g. `{"service": {"name": …, "namespace": …, "path": path}}`.
    """
    manifests = []
    for mutating, kind in ((True, "MutatingWebhookConfiguration"), (False, "ValidatingWebhookConfiguration")):
        chosen = [hook for hook in hooks if isinstance(hook, Webhook) and hook.mutating is mutating]
        if chosen:
            manifests.append(
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": name},
                    "webhooks": [_webhook(hook, client_config(hook.path)) for hook in chosen],
                }
            )
    return manifests


def _webhook(hook: Webhook, client_config: dict[str, Any]) -> dict[str, Any]:
    kind = hook.kind
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": list(hook.operations),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }
    narrowed: dict[str, Any] = {}
    for field, selector in (("namespaceSelector", hook.namespace_selector), ("objectSelector", hook.object_selector)):
        if selector:
            narrowed[field] = Selector.parse(selector).to_wire()
    if hook.match_conditions:
        conditions = hook.match_conditions.items()
        narrowed["matchConditions"] = [{"name": name, "expression": expression} for name, expression in conditions]
    return {
        "name": hook.name,
        "clientConfig": client_config,
        "rules": [rule],
        **narrowed,
        "failurePolicy": hook.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": hook.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }
