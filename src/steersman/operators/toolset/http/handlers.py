"""The REST API: views of the last pass from memory, and requests to probe and reconcile now (off by default)."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.api.times import format_time
from steersman.operators.toolset.discovery.endpoints import check_url
from steersman.operators.toolset.discovery.health import ProbeKey
from steersman.operators.toolset.http.middleware import ApiMiddleware, HttpProblem
from steersman.operators.toolset.http.openapi import DiscoverRequest, GenerateRequest, ValidateRequest, document
from steersman.operators.toolset.reconcile.status import find_toolset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from steersman.operators.toolset.api.config import ApiConfig
    from steersman.operators.toolset.reconcile.reconciler import ToolsetReconciler
    from steersman.operators.toolset.reconcile.status import ServiceView, ToolsetView
    from steersman.runtime.cluster import Cluster

JOBS: Final = 100  # that are kept
_BOOLEANS: Final = {"true": True, "false": False}


class DiscoveryJob(msgspec.Struct, kw_only=True, rename="camel"):
    """A discovery that a client requested."""

    job_id: str
    namespaces: list[str]
    service_types: list[str]
    services: list[str]  # namespace/name of the Services to probe
    requested_at: float


class ToolsetApi:
    """Answers from the views of the reconciler."""

    def __init__(self, reconciler: ToolsetReconciler, config: ApiConfig) -> None:
        self._reconciler = reconciler
        self._config = config
        self._jobs: OrderedDict[str, DiscoveryJob] = OrderedDict()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def toolsets(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """All toolsets, or those that are (not) enabled or healthy."""
        enabled, healthy = _boolean(request, "enabled"), _boolean(request, "healthy")
        found = [
            view
            for view in self._toolsets()
            if (enabled is None or view.enabled == enabled) and (healthy is None or view.healthy == healthy)
        ]
        return 200, self._listing(found)

    async def toolset(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """One toolset by its name, or the best of a type."""
        found = find_toolset(self._toolsets(), request.match_info["name"])
        if found is None:
            raise HttpProblem(404, "not-found", "toolset not found")
        return 200, found

    async def legacy(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The toolsets in the original's first format."""
        tools = [
            {
                "name": view.name,
                "type": view.type,
                "endpoint": view.service_endpoint,
                "description": f"{view.type} {view.namespace}/{view.name}",
                "namespace": view.namespace,
                "metadata": {},
            }
            for view in self._toolsets()
            if view.service_endpoint
        ]
        return 200, {"tools": tools}

    async def services(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """All candidates, or those of a namespace or type."""
        namespace, kind = request.query.get("namespace"), request.query.get("type")
        found = [
            view
            for view in self._services()
            if (not namespace or view.namespace == namespace) and (not kind or view.type == kind)
        ]
        return 200, {"services": found, "total": len(found)}

    async def drift(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The drift that the last pass found."""
        views = self._reconciler.views()
        found = [{"name": view.name, "namespace": view.namespace, "drift": view.drift} for view in views]
        return 200, {"targets": found, "total": len(found)}

    async def plan(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The plan of the last pass, without values."""
        views = self._reconciler.views()
        found = [{"name": view.name, "namespace": view.namespace, "objects": view.plan} for view in views]
        return 200, {"targets": found, "total": len(found)}

    async def openapi(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The OpenAPI document."""
        return 200, document(writes=self._config.writes)

    async def health(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The process answers."""
        return 200, {"status": "ok"}

    async def ready(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """A target was reconciled."""
        if not self._reconciler.views():
            raise HttpProblem(503, "service-unavailable", "no target was reconciled yet")
        return 200, {"kubernetes": True}

    # -- requests ------------------------------------------------------------------------------------------------------

    async def validate(self, _request: web.Request, body: ValidateRequest) -> tuple[int, Any]:
        """Validate a list of tools as overrides."""
        errors = []
        for number, tool in enumerate(body.tools):
            absent = [field for field in ("name", "type", "endpoint") if not tool.get(field)]
            errors += [{"field": f"tools[{number}].{field}", "message": "is missing"} for field in absent]
            endpoint = tool.get("endpoint")
            if endpoint:
                try:
                    check_url(str(endpoint))
                except FormatError as error:
                    errors.append({"field": f"tools[{number}].endpoint", "message": str(error)})
        return 200, {"valid": not errors, "errors": errors}

    async def discover(self, _request: web.Request, body: DiscoverRequest) -> tuple[int, Any]:
        """Probe the services that the filters select; with `force` also healthy ones."""
        self._writing()
        now, probed = SYSTEM_CLOCK.time(), []
        health = self._reconciler.health
        for target in health.targets():
            for ref, candidate in health.candidates(target).items():
                if body.namespaces and ref.namespace not in body.namespaces:
                    continue
                if body.service_types and candidate.type not in body.service_types:
                    continue
                key = ProbeKey(target, ref)
                record = health.get(key)
                if body.force or record is None or record.result is None or not record.result.reachable:
                    self._reconciler.probes.send(key)
                    probed.append(str(ref))
            self._reconciler.changed.send(target)
        job = DiscoveryJob(
            job_id=str(uuid.uuid4()),
            namespaces=body.namespaces,
            service_types=body.service_types,
            services=sorted(probed),
            requested_at=now,
        )
        self._jobs[job.job_id] = job
        while len(self._jobs) > JOBS:
            self._jobs.popitem(last=False)
        return 202, {
            "message": f"probing {len(probed)} services",
            "jobId": job.job_id,
            "estimatedCompletion": format_time(now + self._reconciler.settings.health.timeout),
        }

    async def job(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """The result of a discovery."""
        job = self._jobs.get(request.match_info["job"])
        if job is None:
            raise HttpProblem(404, "not-found", f"job not found; the last {JOBS} jobs are kept")
        known = {f"{view.namespace}/{view.name}": view for view in self._services()}
        found = [known[name] for name in job.services if name in known]
        since = format_time(job.requested_at)
        fresh = [view for view in found if view.last_check is not None and view.last_check >= since]
        return 200, {"jobId": job.job_id, "done": len(fresh) == len(found), "services": found, "total": len(found)}

    async def generate(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """Reconcile every target now."""
        self._writing()
        for target in self._reconciler.targets.settings:
            self._reconciler.changed.send(target)
        return 202, self._listing(list(self._toolsets()))

    # -- internals -------------------------------------------------------------------------------------------------

    def _writing(self) -> None:
        if not self._config.writes:
            raise HttpProblem(403, "forbidden", "writes are off; set toolset.api.writes to allow them")

    def _toolsets(self) -> Sequence[ToolsetView]:
        return [toolset for view in self._reconciler.views() for toolset in view.toolsets]

    def _services(self) -> Sequence[ServiceView]:
        return [service for view in self._reconciler.views() for service in view.services]

    def _listing(self, found: Sequence[ToolsetView]) -> dict[str, Any]:
        views = self._reconciler.views()
        return {
            "toolsets": found,
            "total": len(found),
            "configMapVersion": views[0].resource_version if views else "",
            "lastDiscovery": views[0].last_discovery if views else None,
        }


def _boolean(request: web.Request, name: str) -> bool | None:
    values = request.query.getall(name, [])
    if not values:
        return None
    if len(values) > 1 or values[0] not in _BOOLEANS:
        raise HttpProblem(400, "validation-error", f"{name} must be true or false")
    return _BOOLEANS[values[0]]


def routes(reconciler: ToolsetReconciler, cluster: Cluster, config: ApiConfig) -> list[web.AbstractRouteDef]:
    """The routes of this operator on the manager's listener."""
    api = ToolsetApi(reconciler, config)
    middleware = ApiMiddleware(
        cluster.client, reconciler.metrics, authenticate=config.authenticate, namespace=reconciler.settings.namespace
    )
    return [
        middleware.route("/api/v1/toolsets", {"GET": (api.toolsets, None)}),
        middleware.route("/api/v1/toolsets/validate", {"POST": (api.validate, ValidateRequest)}),
        middleware.route("/api/v1/toolsets/generate", {"POST": (api.generate, GenerateRequest)}),
        middleware.route("/api/v1/toolsets/{name}", {"GET": (api.toolset, None)}),
        middleware.route("/api/v1/toolset", {"GET": (api.legacy, None)}),
        middleware.route("/api/v1/services", {"GET": (api.services, None)}),
        middleware.route("/api/v1/discover", {"POST": (api.discover, DiscoverRequest)}),
        middleware.route("/api/v1/discover/{job}", {"GET": (api.job, None)}),
        middleware.route("/api/v1/drift", {"GET": (api.drift, None)}),
        middleware.route("/api/v1/plan", {"GET": (api.plan, None)}),
        middleware.route("/api/toolset/openapi.json", {"GET": (api.openapi, None)}, public=True),
        middleware.route("/health", {"GET": (api.health, None)}, probe=True),
        middleware.route("/ready", {"GET": (api.ready, None)}, probe=True),
    ]
