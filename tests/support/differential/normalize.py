"""What of an answer may rightly differ between two servers, and is therefore replaced before comparing.

Uids, object revisions, cluster IPs and node ports become tokens in the order a server first shows them: `rev3` on both
sides means that both gave the same object the same history, although the numbers differ. Times become `TIME`, because
two servers are asked at two moments. What the real server itself leaves to chance (the order of a Go map) is sorted.

The promise of the embedded server is the same code, reason and field, not the same sentence. So of a `Status` its code,
reason and details are compared, and of each cause its type and field; the messages are not.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["Normalizer"]

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_ADDRESS = re.compile(r"10\.\d{1,3}\.\d{1,3}\.\d{1,3}")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_NOISE = {"kube-root-ca.crt"}


class Normalizer:
    """The answers of one server, made comparable.

    Holds the tokens it has handed out, so it must see all answers of a sequence in order.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, str]] = {}

    def answer(self, status: int, body: Any, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
        """One response."""
        seen: dict[str, Any] = {"code": status, "body": self.value(body)}
        if warnings:
            seen["warnings"] = sorted(warnings)
        return seen

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        """One watch event."""
        return {"type": event["type"], "object": self.value(event["object"])}

    def value(self, body: Any) -> Any:
        """An object, a list or a Status."""
        if not isinstance(body, dict):
            return body
        if body.get("kind") == "Status":
            return self._status(body)
        if "items" in body:
            return self._list(body)
        return self._object(body)

    def _list(self, body: dict[str, Any]) -> dict[str, Any]:
        meta = body["metadata"]
        items = [self._object(item) for item in body["items"] if item["metadata"]["name"] not in _NOISE]
        seen = {key: value for key, value in meta.items() if key not in {"resourceVersion", "continue"}}
        return {**body, "metadata": {**seen, "more": bool(meta.get("continue"))}, "items": items}

    def _object(self, body: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, Any] = self._walk(body)
        meta = body.get("metadata", {})
        if "resourceVersion" in meta:
            seen["metadata"]["resourceVersion"] = self._token("rev", meta["resourceVersion"])
        if "managedFields" in meta:
            seen["metadata"]["managedFields"] = sorted(seen["metadata"]["managedFields"], key=_entry_key)
        return seen

    def _status(self, body: dict[str, Any]) -> dict[str, Any]:
        """A refusal by what is promised of it."""
        details = {key: self._walk(value) for key, value in (body.get("details") or {}).items() if key != "causes"}
        causes = (body.get("details") or {}).get("causes") or []
        kept = {key: body.get(key) for key in ("status", "code", "reason")}
        found = {(cause.get("reason", ""), cause.get("field", "")) for cause in causes}
        return {**kept, "details": details, "causes": sorted(found)}

    def _walk(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {self._text(name, ""): self._walk(item, name) for name, item in value.items()}
            case list():
                return [self._walk(item, key) for item in value]
            case str():
                return self._text(value, key)
            case int() if key in {"nodePort", "healthCheckNodePort"} and value:
                return self._token("port", str(value))
            case _:
                return value

    def _text(self, value: str, key: str) -> str:
        value = _UID.sub(lambda found: self._token("uid", found[0]), value)
        value = _TIME.sub("TIME", value)
        value = _TOKEN_VOLUME.sub(lambda found: self._token("volume", found[0]), value)
        if key in {"clusterIP", "clusterIPs"}:
            value = _ADDRESS.sub(lambda found: self._token("ip", found[0]), value)
        return value

    def _token(self, kind: str, value: str) -> str:
        known = self._tokens.setdefault(kind, {})
        return known.setdefault(value, f"{kind}{len(known) + 1}")


def _entry_key(entry: dict[str, Any]) -> tuple[str, ...]:
    """Entries are ordered by time, to the second; two servers are never asked in the same second for sure."""
    return tuple(str(entry.get(key, "")) for key in ("operation", "manager", "subresource", "apiVersion"))
