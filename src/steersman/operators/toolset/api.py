"""The REST API: what is known, from memory alone, and two ways to hurry. Writes are off unless asked for."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import FormatError
from steersman.kube.times import format_time
from steersman.operators.toolset.endpoints import check_url
from steersman.operators.toolset.keeper import Keeper, ProbeKey
from steersman.operators.toolset.openapi import DiscoverRequest, GenerateRequest, ValidateRequest, document
from steersman.operators.toolset.views import find
from steersman.operators.toolset.web import Gate, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from steersman.operators.toolset.types import ApiConfig
    from steersman.operators.toolset.views import ServiceView, TargetView, ToolsetView
    from steersman.runtime.cluster import Cluster

__all__ = ["Api", "routes"]

JOBS: Final = 100  # that are remembered
_BOOLEANS: Final = {"true": True, "false": False}


class Job(msgspec.Struct, kw_only=True, rename="camel"):
    """A discovery that somebody asked for."""

    job_id: str
    namespaces: list[str]
    service_types: list[str]
    services: list[str]  # namespace/name of what is asked again
    asked_at: float


class Api:
    """Answers from what the keeper knows."""

    def __init__(self, keeper: Keeper, config: ApiConfig) -> None:
        self._keeper = keeper
        self._config = config
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def toolsets(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """All toolsets, or those that are (not) enabled or healthy."""
        enabled, healthy = _boolean(request, "enabled"), _boolean(request, "healthy")
        found = [
            one
            for one in self._toolsets()
            if (enabled is None or one.enabled == enabled) and (healthy is None or one.healthy == healthy)
        ]
        return 200, self._listing(found)

    async def toolset(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """One toolset by its name, or the best of a type."""
        found = find(self._toolsets(), request.match_info["name"])
        if found is None:
            raise Problem(404, "not-found", "there is no such toolset")
        return 200, found

    async def legacy(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The toolsets in the original's first form."""
        tools = [
            {
                "name": one.name,
                "type": one.type,
                "endpoint": one.service_endpoint,
                "description": f"{one.type} {one.namespace}/{one.name}",
                "namespace": one.namespace,
                "metadata": {},
            }
            for one in self._toolsets()
            if one.service_endpoint
        ]
        return 200, {"tools": tools}

    async def services(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """All candidates, or those of a namespace or type."""
        namespace, kind = request.query.get("namespace"), request.query.get("type")
        found = [
            one
            for one in self._services()
            if (not namespace or one.namespace == namespace) and (not kind or one.type == kind)
        ]
        return 200, {"services": found, "total": len(found)}

    async def drift(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """What the last look found different."""
        found = [{"name": one.name, "namespace": one.namespace, "drift": one.drift} for one in self._views()]
        return 200, {"targets": found, "total": len(found)}

    async def plan(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """What the last look wanted to do, without values."""
        found = [{"name": one.name, "namespace": one.namespace, "objects": one.plan} for one in self._views()]
        return 200, {"targets": found, "total": len(found)}

    async def openapi(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """This API, described."""
        return 200, document(writes=self._config.writes)

    async def health(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """The process is there."""
        return 200, {"status": "ok"}

    async def ready(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """Everything was looked at once."""
        if not self._keeper.views:
            raise Problem(503, "service-unavailable", "nothing was looked at yet")
        return 200, {"kubernetes": True}

    # -- asking for something ------------------------------------------------------------------------------------------

    async def validate(self, _request: web.Request, body: ValidateRequest) -> tuple[int, Any]:
        """Whether a list of tools could be overrides."""
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
        """Ask services again: those that the filters name; with `force` also those that answered lately."""
        self._writing()
        now, asked = SYSTEM_CLOCK.time(), []
        for target, candidates in self._keeper.candidates.items():
            for ref, candidate in candidates.items():
                if body.namespaces and ref.namespace not in body.namespaces:
                    continue
                if body.service_types and candidate.type not in body.service_types:
                    continue
                key = ProbeKey(target, ref)
                page = self._keeper.book.get(key)
                if body.force or page is None or page.result is None or not page.result.reachable:
                    self._keeper.probes.send(key)
                    asked.append(f"{ref.namespace}/{ref.name}")
            self._keeper.changed.send(target)
        job = Job(
            job_id=str(uuid.uuid4()),
            namespaces=body.namespaces,
            service_types=body.service_types,
            services=sorted(asked),
            asked_at=now,
        )
        self._jobs[job.job_id] = job
        while len(self._jobs) > JOBS:
            self._jobs.popitem(last=False)
        return 202, {
            "message": f"asking {len(asked)} services",
            "jobId": job.job_id,
            "estimatedCompletion": format_time(now + self._keeper.file.health.timeout),
        }

    async def job(self, request: web.Request, _body: Any) -> tuple[int, Any]:
        """What became of a discovery."""
        job = self._jobs.get(request.match_info["job"])
        if job is None:
            raise Problem(404, "not-found", "there is no such job; only the last ones are remembered")
        known = {f"{one.namespace}/{one.name}": one for one in self._services()}
        found = [known[name] for name in job.services if name in known]
        fresh = [one for one in found if one.last_check is not None and one.last_check >= format_time(job.asked_at)]
        return 200, {"jobId": job.job_id, "done": len(fresh) == len(found), "services": found, "total": len(found)}

    async def generate(self, _request: web.Request, _body: Any) -> tuple[int, Any]:
        """Look at everything and write what differs."""
        self._writing()
        for target in self._keeper.targets.settings:
            self._keeper.changed.send(target)
        return 202, self._listing(list(self._toolsets()))

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _writing(self) -> None:
        if not self._config.writes:
            raise Problem(403, "forbidden", "writes are off; set toolset.api.writes to allow them")

    def _views(self) -> list[TargetView]:
        views = dict(self._keeper.views)
        return [views[key] for key in sorted(views, key=lambda key: (key.namespace, key.name))]

    def _toolsets(self) -> Sequence[ToolsetView]:
        return [one for view in self._views() for one in view.toolsets]

    def _services(self) -> Sequence[ServiceView]:
        return [one for view in self._views() for one in view.services]

    def _listing(self, found: Sequence[ToolsetView]) -> dict[str, Any]:
        views = self._views()
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
        raise Problem(400, "validation-error", f"{name} must be true or false")
    return _BOOLEANS[values[0]]


def routes(keeper: Keeper, cluster: Cluster, config: ApiConfig) -> list[web.AbstractRouteDef]:
    """What the manager's listener serves for this operator."""
    api = Api(keeper, config)
    gate = Gate(cluster.client, keeper.metrics, authenticate=config.authenticate, namespace=keeper.file.namespace)
    return [
        gate.route("/api/v1/toolsets", {"GET": (api.toolsets, None)}),
        gate.route("/api/v1/toolsets/validate", {"POST": (api.validate, ValidateRequest)}),
        gate.route("/api/v1/toolsets/generate", {"POST": (api.generate, GenerateRequest)}),
        gate.route("/api/v1/toolsets/{name}", {"GET": (api.toolset, None)}),
        gate.route("/api/v1/toolset", {"GET": (api.legacy, None)}),
        gate.route("/api/v1/services", {"GET": (api.services, None)}),
        gate.route("/api/v1/discover", {"POST": (api.discover, DiscoverRequest)}),
        gate.route("/api/v1/discover/{job}", {"GET": (api.job, None)}),
        gate.route("/api/v1/drift", {"GET": (api.drift, None)}),
        gate.route("/api/v1/plan", {"GET": (api.plan, None)}),
        gate.route("/api/toolset/openapi.json", {"GET": (api.openapi, None)}, public=True),
        gate.route("/health", {"GET": (api.health, None)}, public=True),
        gate.route("/ready", {"GET": (api.ready, None)}, public=True),
    ]
