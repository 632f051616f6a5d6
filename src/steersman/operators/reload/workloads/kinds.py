"""The kinds of workloads: where their pod template is, how they are restarted, and what a restart reaches.

    kind               template                        restart
    Deployment         spec.template                   stamp the template
    StatefulSet        spec.template                   stamp the template
    DaemonSet          spec.template                   stamp the template
    CronJob            spec.jobTemplate.spec.template  stamp the template: its next Jobs have it; with `run`, the
                                                       template stays as it is and a Job starts at once
    Rollout            spec.template or workloadRef    stamp the template; with workloadRef set spec.restartAt
    DeploymentConfig   spec.template                   stamp the template
    Job                spec.template                   recreate; only when the configuration lists it

Any other kind takes part when the configuration names it with the path of its template, and perhaps with the path of a
field that restarts it when a time is written there. A restart that cannot reach the pods at once (paused, OnDelete, a
partition) is made all the same, since the template is what later pods start from, and an Event says what is missing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Struct
from steersman.kube.api.selectors import Selector
from steersman.operators.reload.sources.references import PodView
from steersman.operators.reload.workloads.rollout_status import RolloutProgress, progress_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.reload.api.annotations import KindAliases
    from steersman.operators.reload.api.config import KindConfig

STAMP: Final = "template"
RECREATE: Final = "recreate"
RUN: Final = "run"


class KindRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind is handled."""

    kind: Kind
    template: tuple[str, ...] = ("spec", "template")
    restart: str = STAMP  # STAMP, RECREATE, RUN, or the path of a field that takes a time
    built_in: bool = False
    installed: bool = True  # False: the kind exists only in clusters that have its CustomResourceDefinition

    @property
    def restarts_without_patch(self) -> bool:
        """Whether a restart creates another object: then the right to patch serves the record only."""
        return self.restart in (RECREATE, RUN)

    def __str__(self) -> str:
        return self.kind.kind


def _apps(kind: str) -> KindRule:
    return KindRule(kind=Kind(group="apps", version="v1", kind=kind, plural=f"{kind.lower()}s"), built_in=True)


BUILT_IN: Final = (
    _apps("Deployment"),
    _apps("StatefulSet"),
    _apps("DaemonSet"),
    KindRule(
        kind=Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs"),
        template=("spec", "jobTemplate", "spec", "template"),
        built_in=True,
    ),
    KindRule(
        kind=Kind(group="argoproj.io", version="v1alpha1", kind="Rollout", plural="rollouts"),
        built_in=True,
        installed=False,
    ),
    KindRule(
        kind=Kind(group="apps.openshift.io", version="v1", kind="DeploymentConfig", plural="deploymentconfigs"),
        built_in=True,
        installed=False,
    ),
)
JOB: Final = KindRule(
    kind=Kind(group="batch", version="v1", kind="Job", plural="jobs"), restart=RECREATE, built_in=True
)


def kind_rules(
    rows: Iterable[KindConfig], served: Iterable[Kind] | None = None, *, later: bool = False
) -> tuple[KindRule, ...]:
    """The kinds that the configuration asks for; all built-in ones (but Job) when it names none.

    `served` is what the cluster has; kinds of others' CustomResourceDefinitions take part when it has theirs, and with
    `later` also when it has not got them yet. Without it they are left out, unless the configuration names them.
    """
    rules = [_rule(row, f"reload.kinds[{place}]") for place, row in enumerate(rows)]
    if rules:
        return tuple(rules)
    known = {(kind.group, kind.kind) for kind in served or ()}
    later = later and served is not None
    return tuple(rule for rule in BUILT_IN if rule.installed or later or (rule.kind.group, rule.kind.kind) in known)


@lru_cache(maxsize=16)
def kind_aliases(rows: tuple[KindConfig, ...]) -> KindAliases:
    """What people may call the kinds that the configuration describes in full."""
    own = [row for row in rows if row.version]
    return frozenset(
        (word, row.kind) for row in own for word in (row.kind.lower(), row.plural.lower() or f"{row.kind.lower()}s")
    )


def _rule(row: KindConfig, field: str) -> KindRule:
    if not (row.group or row.version or row.template):
        for rule in (*BUILT_IN, JOB):
            if row.kind.lower() in (rule.kind.kind.lower(), rule.kind.plural):
                return rule if not row.restart else msgspec.structs.replace(rule, restart=_verb(row, field))
        names = ", ".join(rule.kind.kind for rule in (*BUILT_IN, JOB))
        raise ConfigError(f'"{row.kind}" is not built in ({names}); name its version and template too', field=field)
    if not row.version or not row.template:
        raise ConfigError(
            f"{row.kind} needs version and template (try version: v1, template: spec.template)", field=field
        )
    kind = Kind(
        group=row.group, version=row.version, kind=row.kind, plural=row.plural.lower() or f"{row.kind.lower()}s"
    )
    return KindRule(kind=kind, template=tuple(row.template.strip(".").split(".")), restart=_verb(row, field))


def _verb(row: KindConfig, field: str) -> str:
    verb = row.restart.strip(".") or STAMP
    if verb in (STAMP, RECREATE, RUN) or verb.startswith("spec."):
        if verb == RECREATE and row.kind.lower() not in ("job", "jobs"):
            raise ConfigError("only a Job can be recreated (try restart: template)", field=f"{field}.restart")
        if verb == RUN and row.kind.lower() not in ("cronjob", "cronjobs"):
            raise ConfigError("only a CronJob can be run (try restart: template)", field=f"{field}.restart")
        return verb
    raise ConfigError(
        f'unknown restart "{row.restart}" (try template, or the path of a field such as spec.restartAt)',
        field=f"{field}.restart",
    )


# ------------------------------------------------------------------------------------------------- reading an object
class _TemplateMeta(Struct):
    annotations: dict[str, str] | None = None


class TemplateView(Struct):
    """A pod template, as far as the operator reads it."""

    metadata: _TemplateMeta | None = None
    spec: PodView | None = None


class _JobSpec(Struct):
    template: TemplateView | None = None


class _JobTemplate(Struct):
    spec: _JobSpec | None = None


class _RollingUpdate(Struct):
    partition: Any = None


class _UpdateStrategy(Struct):
    type: str = ""
    rolling_update: _RollingUpdate | None = None


class _WorkloadRef(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class SpecView(Struct):
    """The spec of a built-in kind, as far as the operator reads it."""

    template: TemplateView | None = None
    job_template: _JobTemplate | None = None
    replicas: int | None = None
    selector: Any = None
    paused: bool | None = None
    suspend: bool | None = None
    update_strategy: _UpdateStrategy | None = None
    workload_ref: _WorkloadRef | None = None
    restart_at: str | None = None


class ParsedSpec(msgspec.Struct, frozen=True):
    """What was found in a spec."""

    pod: PodView
    template_annotations: dict[str, str]
    note: str | None = None  # what a restart does not reach, for people
    follows: str | None = None  # the name of the Deployment whose template it uses
    has_template: bool = True
    progress: RolloutProgress = RolloutProgress()
    restart_at: str = ""  # what is in the field that takes a time, of kinds that have one
    selector: str = ""  # of its pods
    paused: bool = False  # a Deployment or Rollout that rolls nothing out
    may_lack_pods: bool = True  # when none is found there is none: whose pods are whose is known, or it wants none


_NOTHING: Final = msgspec.Raw(b"")
_spec: Final = msgspec.json.Decoder(SpecView)
_plain: Final = msgspec.json.Decoder(dict[str, Any])


def view(rule: KindRule, spec: msgspec.Raw, status: msgspec.Raw = _NOTHING, generation: int = 0) -> ParsedSpec:
    """What an object of that kind says; ValidationError when it is not such a spec."""
    if not bytes(spec):
        return ParsedSpec(PodView(), {}, has_template=False)
    if not rule.built_in:
        plain = _plain.decode(spec)
        made = _found(_dig(plain, rule.template[1:]))
        none = plain.get("replicas") == 0
        return msgspec.structs.replace(made, selector=_pods(plain.get("selector")), may_lack_pods=none)
    found = _spec.decode(spec)
    template = found.template
    if rule.kind.kind == "CronJob":
        template = found.job_template.spec.template if found.job_template and found.job_template.spec else None
    follows = found.workload_ref.name if found.workload_ref and found.workload_ref.kind == "Deployment" else None
    made = _found(template, _note(rule, found), None if template and template.spec else follows)
    return msgspec.structs.replace(
        made,
        progress=progress_of(rule, found, status, generation),
        restart_at=found.restart_at or "",
        paused=bool(found.paused),
        selector=_pods(found.selector),
    )


def _found(template: TemplateView | None, note: str | None = None, follows: str | None = None) -> ParsedSpec:
    if template is None:
        return ParsedSpec(PodView(), {}, note, follows, has_template=False)
    annotations = (template.metadata.annotations if template.metadata else None) or {}
    return ParsedSpec(template.spec or PodView(), annotations, note, follows)


def _pods(selector: Any) -> str:
    """A selector as text, whole or not at all: a part of it would mean other pods too.

    Empty when there is none, or none that can be read. A DeploymentConfig's is the labels themselves.
    """
    if not isinstance(selector, dict):
        return ""
    whole = {"matchLabels", "matchExpressions"} & selector.keys()
    try:
        return str(Selector.from_wire(selector if whole else {"matchLabels": selector}))
    except FormatError:
        return ""


def _dig(value: Any, path: Iterable[str]) -> TemplateView | None:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else msgspec.convert(value, TemplateView)


def _note(rule: KindRule, spec: SpecView) -> str | None:
    if spec.paused:
        return "it is paused, so its pods are replaced when it is resumed"
    if spec.suspend:
        return "it is suspended, so nothing runs until it is resumed"
    strategy = spec.update_strategy
    if strategy is not None and strategy.type == "OnDelete":
        return "its update strategy is OnDelete, so each pod has the new configuration once it is deleted"
    partition = strategy.rolling_update.partition if strategy is not None and strategy.rolling_update else None
    if isinstance(partition, int) and partition > 0:
        return f"pods below ordinal {partition} keep what they have until the partition is lowered"
    is_stamped = rule.kind.kind == "CronJob" and rule.restart == STAMP
    return "its next Jobs start with the new configuration" if is_stamped else None


# ------------------------------------------------------------------------------------------------ restarting an object
def restart_patch(
    rule: KindRule, stamps: Mapping[str, str | None], at: str, *, has_template: bool = True
) -> dict[str, Any]:
    """The part of a merge patch that makes new pods: stamps on the template, or a time in the field that takes one."""
    if rule.restart not in (STAMP, RECREATE, RUN):
        return _nested(rule.restart.split("."), at)
    if not has_template:
        return _nested(["spec", "restartAt"], at)
    return _nested([*rule.template, "metadata", "annotations"], dict(stamps))


def _nested(path: Iterable[str], value: Any) -> dict[str, Any]:
    for part in reversed(list(path)):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested
