"""Objects that were listed once, found by the indexes that the operator has on its caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.dns.selection import label_values, leaving_values, published_values, selector_values

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Shelf"]

_INDEXES: Any = {
    "dns-labels": label_values,
    "dns-records-from": selector_values,
    "dns-zone-name": lambda zone: [zone.spec.zone_name.lower()],
    "dns-leaving": leaving_values,
    "dns-published": published_values,
    "dns-instance": lambda pod: [f"{pod.namespace}/{pod.labels.get('app.kubernetes.io/instance', '')}"],
}


class Shelf:
    """Objects of a kind, found as in a cache."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = {row.ref: row for row in rows}
        self._built: dict[str, dict[str, list[Any]]] = {}

    def get(self, ref: Any) -> Any:
        return self._rows.get(ref)

    def list(self, *, namespace: str | None = None) -> list[Any]:
        return [row for row in self if namespace in (None, row.namespace)]

    def by_index(self, index: str, value: str) -> Sequence[Any]:
        if index not in self._built:
            built = self._built[index] = {}
            for row in self:
                for key in _INDEXES[index](row):
                    built.setdefault(key, []).append(row)
        return self._built[index].get(value, [])

    def __iter__(self) -> Any:
        return iter([self._rows[ref] for ref in sorted(self._rows)])
