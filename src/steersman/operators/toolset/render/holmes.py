"""The dialect `holmesgpt`: one file that a stock HolmesGPT loads, with the overrides merged in. Pure and byte-stable.

    Model ──entries_of──► entries ──merge (overrides.py)──► entries ──document──► {toolsets, mcp_servers} ──► text

HolmesGPT replaces the config of a toolset whole and rejects a file for one bad key, so everything is decided here: an
entry holds its fields and its instances, and each instance knows the toolset it comes from (its *unit*), so that a
split ConfigMap can take the entries apart and `merge` can put them together again. What a profile (the version of the
consumer) cannot load is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from steersman.operators.toolset.render.yaml import GENERATED, dump

if TYPE_CHECKING:
    from collections.abc import Collection

    from steersman.operators.toolset.render.model import Model, Toolset

BASE_UNIT: Final = ""  # not from a Service: the baseline, and what only overrides add
Entries = dict[tuple[str, str], "HolmesToolset"]

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "prometheus": ("prometheus/metrics",),
    "grafana": ("grafana/dashboards",),
    "loki": ("grafana/loki",),
    "tempo": ("grafana/tempo",),
    "elasticsearch": ("elasticsearch/cluster", "elasticsearch/data"),
    "victorialogs": ("victorialogs",),
}
# Instructions for services that the agent has no tools for. Never from an annotation.
_INSTRUCTIONS: Final[Mapping[str, str]] = {
    "jaeger": "Jaeger's query API. List services with GET /api/services, find traces with "
    "GET /api/traces?service=NAME&limit=20&lookback=1h, read one with GET /api/traces/TRACE_ID.",
    "alertmanager": "Alertmanager's API. Active alerts: GET /api/v2/alerts?active=true. "
    "Silences: GET /api/v2/silences.",
    "pyroscope": "Pyroscope's profiling API. Labels and applications: GET /pyroscope/label-values?label=service_name.",
}
_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "jaeger": ("/api/*",),
    "alertmanager": ("/api/v2/*",),
    "pyroscope": ("/pyroscope/*", "/querier.v1.QuerierService/*"),
}
_HEALTH: Final[Mapping[str, str]] = {"jaeger": "/api/services"}


class HolmesProfile(msgspec.Struct, frozen=True):
    """What a version of HolmesGPT can load."""

    version: tuple[int, ...]

    @property
    def renamed(self) -> bool:
        """`api_url` and `additional_headers`, instead of `url` and `headers`."""
        return self.version >= (0, 20)

    @property
    def http(self) -> bool:
        """Toolsets of type http."""
        return self.version >= (0, 20)

    @property
    def elasticsearch(self) -> bool:
        """`elasticsearch/*`, instead of `opensearch/logs`."""
        return self.version >= (0, 18, 2)

    @property
    def victorialogs(self) -> bool:
        """The toolset `victorialogs`, and `subtype`."""
        return self.version >= (0, 26)

    @property
    def instances(self) -> bool:
        """Several instances of one toolset."""
        return self.version >= (0, 32)

    def names(self, kind: str) -> tuple[str, ...]:
        """The toolsets of HolmesGPT for a type; none when it has none."""
        if kind == "elasticsearch" and not self.elasticsearch:
            return ("opensearch/logs",)
        if kind == "victorialogs" and not self.victorialogs:
            return ()
        return NAMES.get(kind, ())

    def url_field(self, kind: str) -> str:
        """The name of the URL field."""
        if kind == "prometheus":
            return "prometheus_url"
        if kind == "elasticsearch" and not self.elasticsearch:
            return "opensearch_url"
        return "api_url" if self.renamed else "url"

    @property
    def headers_field(self) -> str:
        """The name of the field for further headers."""
        return "additional_headers" if self.renamed else "headers"

    def config(
        self, kind: str, url: str, *, env: str = "", tenant: str = "", verify: bool | None = None
    ) -> dict[str, Any]:
        """The config of one instance of a built-in toolset."""
        made: dict[str, Any] = {self.url_field(kind): url}
        headers = {"X-Scope-OrgID": tenant} if tenant else {}
        if env:
            made |= self.credential(kind, f"{{{{ env.{env} }}}}", headers)
        if headers:
            made[self.headers_field] = headers
        if verify is not None and kind != "victorialogs":
            made["verify_ssl"] = verify
        return made

    def credential(self, kind: str, value: str, headers: dict[str, str]) -> dict[str, Any]:
        """The field of the credential, or nothing when it is added to `headers`."""
        if kind == "victorialogs":
            return {"bearer_token": value}
        if kind in ("grafana", "elasticsearch"):
            return {"api_key": value}
        headers["Authorization"] = f"Bearer {value}"
        return {}


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint of a toolset."""

    unit: str  # key of the toolset it comes from
    name: str
    config: Mapping[str, Any]


class HolmesToolset(msgspec.Struct, frozen=True, kw_only=True):
    """One toolset of HolmesGPT."""

    section: str  # toolsets or mcp_servers
    name: str
    fields: Mapping[str, Any]  # without config
    instances: tuple[Instance, ...] = ()  # none: no config
    named: bool = False  # takes several instances, each with a name

    @property
    def key(self) -> tuple[str, str]:
        """Its place in the file."""
        return self.section, self.name

    def only(self, units: Collection[str]) -> HolmesToolset | None:
        """The entry with the instances of these units only."""
        if not self.instances:
            return self if BASE_UNIT in units else None
        kept = tuple(instance for instance in self.instances if instance.unit in units)
        return replace(self, instances=kept) if kept else None


def entries_of(model: Model, profile: HolmesProfile) -> tuple[Entries, tuple[str, ...]]:
    """The entries of a model, and the toolsets that this profile cannot load."""
    made: Entries = {}
    left_out: list[str] = []
    for name in model.baseline:
        _put(made, HolmesToolset(section="toolsets", name=name, fields={"enabled": True}))
    for toolset in model.toolsets:
        reason = _add(made, toolset, profile)
        if reason is not None:
            left_out.append(f"{toolset.type} {toolset.namespace}/{toolset.service}: {reason}")
    return {key: _with_subtype(entry, model, profile) for key, entry in made.items()}, tuple(left_out)


def _put(made: Entries, entry: HolmesToolset) -> None:
    made[entry.key] = entry


def _add(made: Entries, toolset: Toolset, profile: HolmesProfile) -> str | None:
    if toolset.type == "mcp":
        config = {"url": toolset.url, "mode": "streamable-http"}
        headers = {"Authorization": f"Bearer {{{{ env.{toolset.auth_env} }}}}"} if toolset.auth_env else {}
        config |= {"headers": headers} if headers else {}  # type: ignore[dict-item]  # widened on purpose
        fields = {"enabled": True, "description": f"MCP server {toolset.instance}"}
        _put(made, _single("mcp_servers", toolset.instance, fields, toolset, config | dict(toolset.extra)))
        return None
    kind, names = toolset.type, profile.names(toolset.type)
    if names:
        config = profile.config(
            toolset.type, toolset.url, env=toolset.auth_env, tenant=toolset.tenant, verify=toolset.verify_tls
        )
        instance = Instance(unit=toolset.key, name=toolset.instance, config=config | dict(toolset.extra))
        for name in names:
            known = made.get(("toolsets", name))
            if known is not None and known.instances and not profile.instances:
                return f"HolmesGPT {_text(profile)} supports one instance only"
            before = known.instances if known is not None else ()
            _put(
                made,
                HolmesToolset(
                    section="toolsets",
                    name=name,
                    fields={"enabled": True},
                    instances=(*before, instance),
                    named=profile.instances,
                ),
            )
        return None
    if not profile.http:
        return f"HolmesGPT {_text(profile)} has no toolset for it"
    name = toolset.type if toolset.first else f"{toolset.type}-{toolset.instance}"
    fields = {
        "type": "http",
        "enabled": True,
        "llm_instructions": _INSTRUCTIONS.get(kind, _generic(kind)),
    }
    health = toolset.url + _HEALTH[toolset.type] if toolset.type in _HEALTH else toolset.health_url
    config = http_config(toolset.type, toolset.url, health, env=toolset.auth_env)
    _put(made, _single("toolsets", name, fields, toolset, config | dict(toolset.extra)))
    return None


def _single(section: str, name: str, fields: dict[str, Any], toolset: Toolset, config: dict[str, Any]) -> HolmesToolset:
    instance = Instance(unit=toolset.key, name=toolset.instance, config=config)
    return HolmesToolset(section=section, name=name, fields=fields, instances=(instance,))


def http_config(kind: str, url: str, health_url: str = "", *, env: str = "") -> dict[str, Any]:
    """The config of a toolset of type http: reading, at one host, below known paths."""
    parts = urlsplit(url)
    base = parts.path.rstrip("/")
    auth = {"type": "bearer", "token": f"{{{{ env.{env} }}}}"} if env else {"type": "none"}
    endpoint: dict[str, Any] = {
        "hosts": [f"{parts.scheme}://{parts.netloc}"],
        "paths": [f"{base}{path}" for path in _PATHS.get(kind, ("/*",))],
        "methods": ["GET"],
        "auth": auth,
    }
    if health_url:
        endpoint["health_check_url"] = health_url
    return {"endpoints": [endpoint]}


def _generic(kind: str) -> str:
    return f"An HTTP service of type {kind}. Read it with GET requests."


def _with_subtype(entry: HolmesToolset, model: Model, profile: HolmesProfile) -> HolmesToolset:
    """Set the subtype when all instances are VictoriaMetrics."""
    if entry.name != "prometheus/metrics" or not profile.victorialogs:
        return entry
    variants = {toolset.variant for toolset in model.toolsets if toolset.type == "prometheus"}
    if variants and all(variant.startswith("victoriametrics") for variant in variants):
        return replace(entry, fields={"subtype": "victoriametrics", **entry.fields})
    return entry


def document(entries: Entries, units: Collection[str] | None = None) -> dict[str, Any]:
    """The file as a value: all entries, or what comes from some units; never empty, never without toolsets."""
    made: dict[str, dict[str, Any]] = {"toolsets": {}, "mcp_servers": {}}
    for section, name in sorted(entries):
        entry: HolmesToolset | None = entries[section, name]
        if units is not None and entry is not None:
            entry = entry.only(units)
        if entry is not None:
            made[section][name] = _body(entry, named=units is not None and entry.named)
    if not made["toolsets"] and not made["mcp_servers"]:
        made["toolsets"]["kubernetes/core"] = {"enabled": False}  # an empty file would break the consumer's start
    return {section: body for section, body in made.items() if body}


def _body(entry: HolmesToolset, *, named: bool = False) -> dict[str, Any]:
    """The entry in the file; `named` keeps the name of a single instance too, so that parts can be joined."""
    body = dict(entry.fields)
    if not entry.instances:
        return body
    if len(entry.instances) == 1 and not named:
        config = {key: value for key, value in entry.instances[0].config.items() if key != "name"}
    else:
        ordered = sorted(entry.instances, key=lambda instance: instance.name)
        config = {"instances": [{"name": instance.name, **instance.config} for instance in ordered]}
    instructions = body.pop("llm_instructions", None)
    body["config"] = config
    return body if instructions is None else {**body, "llm_instructions": instructions}


def render_holmes(entries: Entries, units: Collection[str] | None = None) -> str:
    """The file as text."""
    return GENERATED + dump(document(entries, units))


def _text(profile: HolmesProfile) -> str:
    return ".".join(map(str, profile.version))
