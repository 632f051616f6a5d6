"""Which objects a list or a watch is about: a namespace, a label selector, a field selector.

A `Selection` is made once per request, with the server's own errors for selectors it cannot take, and then asked about
one record after another. Which fields a kind lets one select by is in its `ResourceInfo`; how each is read is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.errors import SteersmanError
from steersman.kube.api.selectors import FieldSelector, Selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record

# Selectable names that are not simply the path of the field. Values are stored paths, tried in order.
_ALIASES: dict[str, tuple[str, ...]] = {
    "source": ("source.component", "reportingComponent"),
    "reportingController": ("reportingComponent",),
    "status.successful": ("status.succeeded",),
    **{
        f"regarding.{field}": (f"involvedObject.{field}",)
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
}
# What the real server selects by when the field is not set.
_UNSET = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.replicas": "0", "status.successful": "0"}


class Selection:
    """One request's view of a table."""

    __slots__ = ("_fields", "_labels", "everything", "label", "name", "namespace")

    def __init__(
        self, namespace: str = "", labels: Selector = Selector.EVERYTHING, fields: FieldSelector | None = None
    ) -> None:
        fields = fields or FieldSelector.EVERYTHING
        self.namespace = namespace
        self.name = fields.exact("metadata.name")  # a single object: watched and listed without a scan
        self._labels = None if labels.empty else labels.matches
        self._fields = tuple((req.value, req.negated, _reader(req.field)) for req in fields.requirements)
        self.everything = self._labels is None and not self._fields  # within the namespace
        self.label = (namespace, str(labels), str(fields))  # equal selections have equal labels

    @classmethod
    def parse(cls, info: ResourceInfo, namespace: str, labels: str, fields: str) -> Selection:
        """The selection that query parameters ask for."""
        try:
            label_selector = Selector.parse(labels)
            field_selector = FieldSelector.parse(fields)
        except SteersmanError as error:
            raise status_errors.bad_request(str(error)) from error
        for requirement in field_selector.requirements:
            _check(info, requirement.field)
        return cls(namespace, label_selector, field_selector)

    def matches(self, record: Record) -> bool:
        """Whether a record of this table is meant."""
        if self.namespace and not record.key.startswith(f"{self.namespace}/"):
            return False
        if self.everything:
            return True
        obj = record.obj
        if self._labels is not None and not self._labels(obj["metadata"].get("labels") or {}):
            return False
        return all((read(obj) == value) is not negated for value, negated, read in self._fields)

    def filter(self, records: Iterable[Record]) -> Iterable[Record]:
        """The records that are meant; the namespace is already taken care of by the scan."""
        return records if self.everything else (record for record in records if self.matches(record))


def _check(info: ResourceInfo, field: str) -> None:
    if field == "metadata.name" or field in info.selectable:
        return
    if field == "metadata.namespace" and (info.kind.namespaced or not info.selectable):
        return
    known = ", ".join(("metadata.name", "metadata.namespace", *info.selectable))
    raise status_errors.bad_request(f"field label not supported: {field} (supported: {known})")


def _reader(field: str) -> Callable[[dict[str, Any]], str]:
    paths = [tuple(path.split(".")) for path in _ALIASES.get(field, (field,))]
    unset = _UNSET.get(field, "")

    def read(obj: dict[str, Any]) -> str:
        for path in paths:
            value: Any = obj
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
            if value not in (None, ""):
                return _text(value)
        return unset

    return read


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
