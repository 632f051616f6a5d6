"""Hashes over the values of several sources together, for the dialects that have one.

Values are not kept, so such a hash cannot be computed from what is in memory. The sources of the one workload are read,
hashed and dropped; it costs a read per source when the workload is first seen and when it is restarted, and only for
workloads that take part in such a dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from steersman.kube.errors import Forbidden, NotFound
from steersman.operators.reload.forms import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.types import SourceRef
    from steersman.operators.reload.workloads import Workload

__all__ = ["read_totals", "total_sources", "with_totals"]


def total_sources(workload: Workload, dialects: Sequence[Dialect]) -> frozenset[SourceRef]:
    """The sources whose values are needed; usually none."""
    return frozenset().union(*(one.total.over(workload) for one in dialects if one.total is not None))


def with_totals(
    workload: Workload, dialects: Sequence[Dialect], objects: Mapping[SourceRef, Mapping[str, Any]]
) -> Workload:
    """The workload with the hashes over these sources; those that are not among them do not exist."""
    totals = {
        dialect.name: dialect.total.hash(workload, objects)
        for dialect in dialects
        if dialect.total is not None and dialect.total.over(workload)
    }
    return replace(workload, facts=replace(workload.facts, totals=totals)) if totals else workload


async def read_totals(client: Any, workload: Workload, dialects: Sequence[Dialect]) -> Workload:
    """The workload with such hashes, over values read now; without them where one may not be read."""
    objects: dict[SourceRef, Mapping[str, Any]] = {}
    for source in sorted(total_sources(workload, dialects)):
        try:
            objects[source] = await client.get(SOURCES[source.kind].KIND, source.name, namespace=source.namespace)
        except NotFound:
            continue
        except Forbidden:
            return workload
    return with_totals(workload, dialects, objects)
