"""The administrator's `overrides.yaml`: parsed within bounds, and merged with precedence over discovery. Pure.

Its bytes are never changed. Accepted are a map of names to entries, the wrapper `toolsets:`/`mcp_servers:`, and the
list `tools:`. A name is a type (`prometheus`), a toolset of HolmesGPT (`prometheus/metrics`), `custom-TYPE` for one
more instance of a type, or a new toolset with a type of its own. Maps merge, scalars and lists replace, null deletes,
`enabled: false` disables. What the consumer cannot express is left out of its file and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.api.durations import parse_duration
from steersman.operators.toolset.render.holmes import (
    BASE_UNIT,
    NAMES,
    Entries,
    HolmesProfile,
    HolmesToolset,
    Instance,
    http_config,
)
from steersman.operators.toolset.render.yaml import load

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECTIONS: Final = ("toolsets", "mcp_servers")
_CUSTOM: Final = "custom-"
_OWN_TYPES: Final = frozenset({"http", "mcp", "database", "mongodb"})
ENTRY_FIELDS: Final = frozenset(
    (
        *(
            "enabled",
            "description",
            "docs_url",
            "icon_url",
            "installation_instructions",
            "prerequisites",
            "tools",
            "tags",
        ),
        *("config", "llm_instructions", "additional_instructions", "transformers", "approval_required_tools", "type"),
        *("url", "path", "subtype", "expose_remotely", "status_refresh_interval_seconds"),
    )
)
_ALIASES: Final = {"opensearch": "elasticsearch", "thanos": "prometheus", "victoriametrics": "prometheus"}
_HTTP_TYPES: Final = frozenset({"jaeger", "alertmanager", "pyroscope"})
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET: Final = re.compile(r"(?i)(api_?key|token|password|secret)$")
_PLACEHOLDER: Final = re.compile(r"\$\{|\{\{")


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed overrides."""

    toolsets: Mapping[str, Any] = {}  # name -> entry, or None to delete
    mcp_servers: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.toolsets) + len(self.mcp_servers)


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The entries with the overrides in them."""

    entries: Entries
    conflicts: tuple[str, ...] = ()  # names that replace discovered values
    unmappable: tuple[str, ...] = ()  # name: why


def parse_overrides(text: str) -> Overrides:
    """Parse overrides; FormatError names the problem."""
    value = load(text)
    if value is None:
        return Overrides()
    if not isinstance(value, dict):
        raise FormatError("must be a map of toolsets")
    toolsets: dict[str, Any] = {}
    servers: dict[str, Any] = {}
    for name, entry in value.items():
        if name == "tools" and isinstance(entry, list):
            toolsets |= dict(_listed(entry))
        elif name in _SECTIONS:
            (toolsets if name == "toolsets" else servers).update(_map(entry, name))
        else:
            toolsets[name] = entry
    for name, entry in (*toolsets.items(), *servers.items()):
        if entry is not None and not isinstance(entry, dict):
            raise FormatError(f"{name}: must be a map, or null to delete it")
        if isinstance(entry, dict) and not isinstance(entry.get("config") or {}, dict):
            raise FormatError(f"{name}.config: must be a map")
        if isinstance(entry, dict) and not isinstance(entry.get("enabled", True), bool):
            raise FormatError(f"{name}.enabled: must be true or false")
    warnings = tuple(
        f"{path}: looks like a secret; use ${{VARIABLE}} instead" for path in _secrets(toolsets | servers, "")
    )
    return Overrides(toolsets=_translated(toolsets), mcp_servers=_translated(servers), warnings=warnings)


def read_overrides(text: str | None, last_valid: str | None) -> tuple[Overrides, str]:
    """Parse the overrides, or else the last valid ones; also returns the problem of the first."""
    error = ""
    for each in (text, last_valid):
        if each is None:
            break
        try:
            return parse_overrides(each), error
        except FormatError as problem:
            error = error or str(problem)
    return Overrides(), error


def _map(value: Any, field: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"{field}: must be a map")
    return value


def _listed(tools: list[Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
            raise FormatError(f"tools[{number}].name: is missing")
        entry = {key: value for key, value in tool.items() if key not in ("name", "endpoint", "namespace", "metadata")}
        kind = entry.pop("type", None)
        if kind is not None:
            entry["toolset"] = kind
        if "endpoint" in tool:
            entry["url"] = tool["endpoint"]
        yield tool["name"], entry


def _secrets(value: Any, path: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key}".lstrip(".")
            if isinstance(item, str) and item and _SECRET.search(key) and not _PLACEHOLDER.search(item):
                yield here
            yield from _secrets(item, here)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _secrets(item, f"{path}[{number}]")


def _translated(value: Any) -> Any:
    """Replace `${X}`, which HolmesGPT does not expand, by its own syntax."""
    if isinstance(value, dict):
        return {key: _translated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_translated(item) for item in value]
    return _VARIABLE.sub(r"{{ env.\1 }}", value) if isinstance(value, str) else value


# -- merging -----------------------------------------------------------------------------------------------------------


def merge_overrides(entries: Entries, overrides: Overrides, profile: HolmesProfile) -> Merged:
    """The entries as the administrator wants them."""
    merge = _Merge(dict(entries), profile)
    for name, entry in overrides.toolsets.items():
        merge.attempt("toolsets", name, entry)
    for name, entry in overrides.mcp_servers.items():
        merge.attempt("mcp_servers", name, entry)
    return Merged(entries=merge.entries, conflicts=tuple(merge.conflicts), unmappable=tuple(merge.unmappable))


class _Merge:
    def __init__(self, entries: Entries, profile: HolmesProfile) -> None:
        self.entries = entries
        self.conflicts: list[str] = []
        self.unmappable: list[str] = []
        self._profile = profile

    def attempt(self, section: str, name: str, entry: dict[str, Any] | None) -> None:
        try:
            if section == "mcp_servers":
                self._raw(section, name, entry)
            else:
                self._toolset(name, entry)
        except FormatError as error:
            self.unmappable.append(f"{name}: {error}")

    def _toolset(self, name: str, entry: dict[str, Any] | None) -> None:
        kind = _ALIASES.get(name, name)
        if kind == "kubernetes":
            self._switch(list(self._named("kubernetes/")), name, entry)
        elif kind in NAMES:
            self._type(kind, name, entry)
        elif ("toolsets", name) in self.entries or "/" in name:
            self._raw("toolsets", name, entry)
        elif entry is None:
            raise FormatError("no such toolset to delete")
        elif entry.get("type") in _OWN_TYPES or {"description", "tools"} <= entry.keys():
            self._raw("toolsets", name, entry)
        else:
            self._add_instance(name, entry)

    def _switch(self, known: list[HolmesToolset], name: str, entry: dict[str, Any] | None) -> None:
        """Toolsets without settings can only be enabled and disabled."""
        for toolset in known:
            if entry is None:
                del self.entries[toolset.key]
            elif "enabled" in entry:
                self.entries[toolset.key] = replace(toolset, fields={**toolset.fields, "enabled": entry["enabled"]})
        if known and (entry is None or entry.get("enabled") is False):
            self.conflicts.append(name)
        if entry is not None and entry.keys() - {"enabled"}:
            raise FormatError("HolmesGPT supports no setting of it except enabled")

    def _type(self, kind: str, name: str, entry: dict[str, Any] | None) -> None:
        """A type: its best instance gets the settings."""
        names = self._profile.names(kind)
        if not names:
            raise FormatError(f"HolmesGPT {'.'.join(map(str, self._profile.version))} has no toolset for {kind}")
        if any(("toolsets", toolset) in self.entries for toolset in names):
            self.conflicts.append(name)
        for toolset in names:
            key = ("toolsets", toolset)
            if entry is None:
                self.entries.pop(key, None)
                continue
            config = self._config(kind, entry)
            known = self.entries.get(key) or HolmesToolset(section="toolsets", name=toolset, fields={"enabled": True})
            if known.instances:
                best, *rest = known.instances
                known = replace(known, instances=(replace(best, config=_deep(best.config, config)), *rest))
            elif entry.get("enabled", True):
                if self._profile.url_field(kind) not in config:
                    raise FormatError("no such service was discovered, and the entry has no url")
                known = replace(known, instances=(Instance(unit=BASE_UNIT, name=name, config=config),))
            if "enabled" in entry:
                known = replace(known, fields={**known.fields, "enabled": entry["enabled"]})
            self.entries[key] = known

    def _add_instance(self, name: str, entry: dict[str, Any]) -> None:
        """One more instance of a type, by the name `custom-TYPE` or a field with the type."""
        named = (
            entry.get("toolset")
            or entry.get("type")
            or (name.removeprefix(_CUSTOM) if name.startswith(_CUSTOM) else name)
        )
        kind = _ALIASES.get(str(named), str(named))
        config = self._config(kind, entry)
        names = self._profile.names(kind)
        if not entry.get("enabled", True):
            if names or kind in _HTTP_TYPES:
                return  # a disabled instance is not rendered
            raise FormatError(f"no toolset of type {kind}")
        url = config.get(self._profile.url_field(kind))
        if not isinstance(url, str) or not url:
            raise FormatError(f"no toolset of type {kind}; set a url, or a known type")
        if not names:
            if not self._profile.http:
                raise FormatError(f"no toolset of type {kind}")
            fields = {"type": "http", "enabled": True, "llm_instructions": f"An HTTP service of type {kind}."}
            instance = Instance(unit=BASE_UNIT, name=name, config=http_config(kind, url))
            self._checked(HolmesToolset(section="toolsets", name=_clean(name), fields=fields, instances=(instance,)))
            return
        for toolset in names:
            fields = {"enabled": True}
            known = self.entries.get(("toolsets", toolset)) or HolmesToolset(
                section="toolsets", name=toolset, fields=fields
            )
            if known.instances and not self._profile.instances:
                raise FormatError("this version of HolmesGPT supports one instance of it only")
            taken = {other.name for other in known.instances}
            unique = name if name not in taken else f"{name}-override"
            instance = Instance(unit=BASE_UNIT, name=_clean(unique), config=config)
            self._checked(replace(known, instances=(*known.instances, instance)))

    def _raw(self, section: str, name: str, entry: dict[str, Any] | None) -> None:
        """A toolset in HolmesGPT's own format."""
        known = self.entries.get((section, name))
        if known is not None:
            self.conflicts.append(name)
        if entry is None:
            if known is None:
                raise FormatError("no such toolset to delete")
            del self.entries[section, name]
            return
        unknown = sorted(entry.keys() - ENTRY_FIELDS)
        if unknown:
            raise FormatError(f"unknown field of a HolmesGPT toolset: {', '.join(unknown)}")
        fields = {
            "enabled": True,
            **(known.fields if known else {}),
            **{k: v for k, v in entry.items() if k != "config"},
        }
        instances = known.instances if known is not None else ()
        config = entry.get("config")
        if config:
            best, *rest = instances or (Instance(unit=BASE_UNIT, name=name, config={}),)
            whole = "instances" in config
            merged = dict(config) if whole else _deep(best.config, config)
            instances = (replace(best, config=merged), *([] if whole else rest))
        fields = {key: value for key, value in fields.items() if value is not None}
        self._checked(HolmesToolset(section=section, name=name, fields=fields, instances=instances))

    def _checked(self, entry: HolmesToolset) -> None:
        """Store an entry whose keys the loader accepts: a dot in a key rejects the whole file."""
        for key in (entry.name, *_keys(entry.fields), *_keys([instance.config for instance in entry.instances])):
            if "." in key:
                raise FormatError(f"the key {key!r} has a dot, for which HolmesGPT would reject the whole file")
        self.entries[entry.key] = entry

    def _config(self, kind: str, entry: dict[str, Any]) -> dict[str, Any]:
        """The settings of an entry with the field names of the consumer."""
        profile, config = self._profile, dict(entry.get("config") or {})
        for field in ("url", "apiKey", "api_key", "timeout", "headers"):
            if field in entry and field not in config:
                config[field] = entry[field]
        made: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for field, value in config.items():
            if field in ("url", "api_url", "prometheus_url", "endpoint"):
                made[profile.url_field(kind)] = value
            elif field in ("apiKey", "api_key") and isinstance(value, str):
                made |= profile.credential(kind, value, headers)
            elif field in ("headers", "additional_headers") and isinstance(value, dict):
                headers |= value
            elif field == "timeout":
                made |= _timeout(kind, value)
            else:
                made[field] = value
        if headers:
            made[profile.headers_field] = headers
        for key in _keys(made):
            if "." in key:
                raise FormatError(f"the key {key!r} has a dot, for which HolmesGPT would reject the whole file")
        return made

    def _named(self, prefix: str) -> Iterable[HolmesToolset]:
        return [entry for (_, name), entry in self.entries.items() if name.startswith(prefix)]


def _timeout(kind: str, value: Any) -> dict[str, Any]:
    """A timeout such as 30s in seconds, with the field name of the consumer."""
    field = {"prometheus": "query_timeout_seconds_default"}.get(kind, "timeout_seconds")
    if isinstance(value, int):
        return {field: value}
    try:
        return {field: max(1, round(parse_duration(value).total_seconds()))}
    except FormatError as error:
        raise FormatError(f"timeout: {error}") from None


def _deep(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), Mapping):
            merged[key] = _deep(merged[key], value)
        else:
            merged[key] = value
    return merged


def _keys(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _keys(item)


def _clean(name: str) -> str:
    return name.replace(".", "-")
