"""A workload as it is kept: who it is, what it refers to, what people wrote on it. Nothing else of it stays in memory.

Objects of every kind become the same struct. The spec is read and dropped when an object is decoded, so a workload is
scanned once per change of it and not once per evaluation.
"""

from __future__ import annotations

import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import field
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.operators.reload.api.annotations import (
    NO_KIND_ALIASES,
    PREFIX,
    KindAliases,
    LayerSettings,
    misspelt_dialect,
    read_settings,
)
from steersman.operators.reload.api.config import WorkloadId
from steersman.operators.reload.sources.references import Reference, Variable, references, variables
from steersman.operators.reload.workloads.kinds import KindRule, view
from steersman.operators.reload.workloads.rollout_status import RolloutProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.api.gvk import Kind

_NOTHING: Final = msgspec.Raw(b"")
_UNTOUCHED: Final = (b"", b"{}", b"null")  # the status before any controller has written one
_MARKS: Final = "STAKATER_"  # environment variables that are another program's marks; values of others are not kept


class WorkloadName(msgspec.Struct, frozen=True, order=True):
    """Which workload."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


class WorkloadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from the object."""

    references: tuple[Reference, ...] = ()
    settings: LayerSettings = LayerSettings()
    template_annotations: dict[str, str] = {}
    containers: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()  # those that are another program's marks
    totals: dict[str, str] = {}  # hashes over all sources together, by dialect; only during a pass
    note: str | None = None  # what a restart does not reach
    follows: str | None = None  # the name of the Deployment whose template it uses
    has_template: bool = True
    progress: RolloutProgress = RolloutProgress()
    restart_at: str = ""  # what is in the field that takes a time, of kinds that have one
    selector: str = ""  # of its pods
    paused: bool = False  # it rolls nothing out
    may_lack_pods: bool = True  # when none is found there is none
    fresh: bool = False  # its controller has not observed it yet: it has just been created


class Workload(Resource):
    """Something that runs pods."""

    spec: msgspec.Raw = _NOTHING  # on the wire only
    status: msgspec.Raw = _NOTHING  # on the wire only
    facts: WorkloadFacts = field(default=WorkloadFacts(), name="steersman.dev/facts")

    @property
    def title(self) -> str:
        """How people call it: `deployment/web`."""
        return f"{type(self).KIND.kind.lower()}/{self.name}"


def workload_id(workload: Workload) -> WorkloadId:
    """Its name among workloads of all kinds."""
    return WorkloadId(type(workload).KIND.kind, workload.namespace, workload.name)


@lru_cache(maxsize=256)
def workload_class(kind: Kind) -> type[Workload]:
    """The class for the objects of a kind; always the same one."""
    made = types.new_class(
        kind.kind,
        (Workload,),
        {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
            "plural": kind.plural,
            "namespaced": kind.namespaced,
        },
        lambda body: body.update(__module__=__name__, __doc__=f"{kind.kind} as a workload.", __annotations__={}),
    )
    return cast("type[Workload]", made)


@lru_cache(maxsize=256)
def workload_transform(
    rule: KindRule, annotations: frozenset[str], words: KindAliases = NO_KIND_ALIASES
) -> Callable[[Workload], Workload]:
    """What the cache keeps of a workload: always the same function for the same arguments, as caches ask for.

    `annotations` are the names (or prefixes that end in `*`) worth keeping; a name is kept on the object and on its
    template. `words` are names of kinds besides those that are built in.
    """
    exact = frozenset(name for name in annotations if not name.endswith("*"))
    prefixes = (PREFIX, *(name[:-1] for name in annotations if name.endswith("*")))  # ours, to tell of misspelt ones

    def kept(all_of_them: Any) -> dict[str, str]:
        return {
            name: value for name, value in (all_of_them or {}).items() if name in exact or name.startswith(prefixes)
        }

    def read(workload: Workload) -> Workload:
        meta = workload.metadata
        mine = kept(meta.annotations)
        if bytes(workload.spec):
            seen = view(rule, workload.spec, workload.status, meta.generation)
            settings = read_settings(mine, meta.namespace, words)
            if wrong := misspelt_dialect(
                {**(meta.annotations or {}), **(seen.template_annotations or {})}, annotations
            ):
                settings = replace(settings, problems=(*settings.problems, *wrong))
            facts = WorkloadFacts(
                references=references(seen.pod),
                settings=settings,
                template_annotations=kept(seen.template_annotations),
                containers=tuple(container.name for container in seen.pod.containers or ()),
                variables=variables(seen.pod, _MARKS),
                note=seen.note,
                follows=seen.follows,
                has_template=seen.has_template,
                progress=seen.progress,
                restart_at=seen.restart_at,
                paused=seen.paused,
                selector=seen.selector,
                may_lack_pods=seen.may_lack_pods,
                fresh=meta.generation <= 1 and bytes(workload.status) in _UNTOUCHED,
            )
        else:
            facts = workload.facts
        return type(workload)(
            metadata=ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                generation=meta.generation,
                creation_timestamp=meta.creation_timestamp,
                deletion_timestamp=meta.deletion_timestamp,
                labels=meta.labels,
                annotations=mine or None,
                owner_references=meta.owner_references,
            ),
            facts=facts,
        )

    return read
