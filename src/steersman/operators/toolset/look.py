"""One look at everything: which services take part, what follows from them, and what the ConfigMaps should hold. Pure.

    Services ─► detect ─► admit ─► model ─► entries ─► overrides ─► layout

The reconciler, `steersman toolset render`, `diff`, `explain`, the API and the page all show this one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from steersman.errors import FormatError
from steersman.kube.resources import ObjectRef
from steersman.operators.toolset.detection import Candidate, Verdict, detect
from steersman.operators.toolset.health import Admission, Observed, State, admit
from steersman.operators.toolset.holmes import Profile, entries_of
from steersman.operators.toolset.layout import Layout, lay_out
from steersman.operators.toolset.model import Model, build_model
from steersman.operators.toolset.overrides import Merged, Overrides, merge_overrides, parse_overrides
from steersman.operators.toolset.types import INDEX_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.operators.toolset.objects import ServiceLook
    from steersman.operators.toolset.types import Settings

__all__ = ["Look", "Problem", "Seen", "Standing", "look_at"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster holds already that a look depends on."""

    text: str = ""  # everything written so far: a service whose URL is in it takes part already
    overrides: str | None = None
    last_valid: str | None = None  # the last overrides that could be read
    others: int = 0  # bytes of other people's keys, the overrides among them
    places: Mapping[str, int] = {}  # key -> part
    avoid: frozenset[int] = frozenset()  # parts whose names are somebody else's


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate."""

    candidate: Candidate
    admission: Admission
    observed: Observed | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something somebody should know."""

    reason: str  # of the Event
    kind: str  # type of toolset, for the metric
    message: str


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, and what follows."""

    verdicts: Mapping[ObjectRef, Verdict] = {}
    seen: tuple[Seen, ...] = ()  # all candidates, best first
    model: Model
    overrides: Overrides
    override_error: str = ""
    merged: Merged
    left_out: tuple[str, ...] = ()
    layout: Layout
    problems: tuple[Problem, ...] = ()

    @property
    def taking_part(self) -> tuple[Seen, ...]:
        """The candidates that are rendered."""
        return tuple(one for one in self.seen if one.admission.included)

    @property
    def settled(self) -> bool:
        """Whether every candidate is well."""
        return all(one.admission.state in (State.HEALTHY, State.UNCHECKED) for one in self.seen)

    @property
    def oversized(self) -> bool:
        """Whether the base itself does not fit."""
        return INDEX_KEY in self.layout.skipped


def look_at(
    services: Iterable[ServiceLook],
    settings: Settings,
    *,
    observed: Callable[[Candidate], Observed | None] = lambda _candidate: None,
    standing: Standing = Standing(),  # noqa: B008  # frozen
    verdict: Callable[[ServiceLook], Verdict] | None = None,
) -> Look:
    """Look at these Services; `verdict` may remember what `detect` said."""
    judge = verdict or (lambda service: detect(service, settings))
    verdicts = {service.ref: judge(service) for service in services}
    seen = []
    for found in verdicts.values():
        if found.candidate is not None:
            page = observed(found.candidate)
            written = f'"{found.candidate.url}"' in standing.text or f'"{found.candidate.url}/' in standing.text
            incumbent = (page is not None and page.included) or written
            admission = admit(found.candidate, page, settings, incumbent=incumbent)
            seen.append(Seen(candidate=found.candidate, admission=admission, observed=page))
    seen.sort(key=lambda one: one.candidate.rank)
    model = build_model((one.candidate for one in seen if one.admission.included), settings)
    profile = Profile(settings.profile)
    entries, left_out = entries_of(model, profile)
    overrides, error = _read(standing)
    merged = merge_overrides(entries, overrides, profile)
    layout = lay_out(
        model,
        merged.entries,
        settings.dialects,
        limit=settings.max_bytes,
        others=standing.others,
        places=standing.places,
        avoid=standing.avoid,
    )
    made = Look(
        verdicts=verdicts,
        seen=tuple(seen),
        model=model,
        overrides=overrides,
        override_error=error,
        merged=merged,
        left_out=left_out if "holmesgpt" in settings.dialects else (),
        layout=layout,
    )
    return msgspec.structs.replace(made, problems=tuple(_problems(made)))


def _read(standing: Standing) -> tuple[Overrides, str]:
    """The overrides, or the last ones that could be read and what is wrong with these."""
    error = ""
    for text in (standing.overrides, standing.last_valid):
        if text is None:
            break
        try:
            return parse_overrides(text), error
        except FormatError as problem:
            error = error or str(problem)
    return Overrides(), error


def _problems(look: Look) -> Iterable[Problem]:
    for ref, verdict in look.verdicts.items():
        for message in verdict.problems:
            kind = verdict.candidate.type if verdict.candidate is not None else ""
            reason = verdict.reason if verdict.candidate is None else "CredentialsWithheld"
            yield Problem(reason, kind, f"service {ref.namespace}/{ref.name}: {message}")
    for one in look.seen:
        if one.admission.state in (State.UNHEALTHY, State.NOT_IDENTIFIED, State.AUTH_REQUIRED) and one.observed:
            result = one.observed.result
            if result is not None and not one.admission.included:
                where = f"{one.candidate.namespace}/{one.candidate.service}"
                reason = "".join(word.title() for word in result.outcome.value.split("_"))
                yield Problem(f"Service{reason}", one.candidate.type, f"service {where}: {one.admission.message}")
    if look.override_error:
        yield Problem("OverridesInvalid", "", f"overrides.yaml {look.override_error}")
    for text in look.overrides.warnings:
        yield Problem("OverridesSecret", "", f"overrides.yaml: {text}")
    for text in look.merged.unmappable:
        yield Problem("UnmappableOverride", "", f"overrides.yaml: {text}")
    for text in look.left_out:
        yield Problem("NotLoadable", "", text)
    for key in look.layout.skipped:
        message = "what is always there and other people's keys" if key == INDEX_KEY else key
        yield Problem("SizeLimit", "", f"{message}: larger than one ConfigMap may be; left as it is")
