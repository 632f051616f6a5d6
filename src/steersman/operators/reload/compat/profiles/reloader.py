"""The profile of stakater/Reloader: the flags of version 1, and those that version 2 adds.

Where the two differ, version 1 counts. Changes restart at once. What was missed is always found again, so
`--sync-after-restart` has nothing to add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.reload.api.config import (
    BudgetConfig,
    KindConfig,
    ReceiverConfig,
    ReloadConfig,
    ReloaderConfig,
    SourceKind,
    Strategy,
    WebhookConfig,
)
from steersman.operators.reload.compat.dialects.reloader import Names, Reloader
from steersman.operators.reload.compat.profiles.arguments import Arguments, Flag, read_arguments
from steersman.operators.reload.compat.profiles.profile import GATHER_LIMIT, GATHER_QUIET, Logs, Profile, ProfileLease
from steersman.operators.reload.notify.message import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RENAMES: Final = {  # flag -> field of Names, and the kind of source where it has one
    "auto-annotation": ("auto", None),
    "auto-search-annotation": ("search", None),
    "search-match-annotation": ("match", None),
    "ignore-annotation": ("ignore", None),
    "pause-deployment-annotation": ("pause", None),
    "pause-deployment-time-annotation": ("paused_at", None),
    "configmap-auto-annotation": ("typed_auto", SourceKind.CONFIGMAP),
    "secret-auto-annotation": ("typed_auto", SourceKind.SECRET),
    "secretproviderclass-auto-annotation": ("typed_auto", SourceKind.PROVIDER_CLASS),
    "configmap-annotation": ("named", SourceKind.CONFIGMAP),
    "secret-annotation": ("named", SourceKind.SECRET),
    "secretproviderclass-annotation": ("named", SourceKind.PROVIDER_CLASS),
    "configmap-exclude-annotation": ("exclude", SourceKind.CONFIGMAP),
    "secret-exclude-annotation": ("exclude", SourceKind.SECRET),
    "secretproviderclass-exclude-annotation": ("exclude", SourceKind.PROVIDER_CLASS),
}
_BOOLEANS: Final = (
    "auto-reload-all",
    "sync-after-restart",
    "enable-ha",
    "enable-csi-integration",
    "enable-pprof",
    "leader-election-release-on-cancel",
)
_VALUES: Final = (
    "reload-strategy",
    "reload-on-create",
    "reload-on-delete",
    "is-Argo-Rollouts",
    "is-openshift",
    "webhook-url",
    "resources-to-ignore",
    "ignored-workload-types",
    "namespaces",
    "namespaces-to-ignore",
    "namespace-selector",
    "resource-label-selector",
    "log-format",
    "log-level",
    "pprof-addr",
    "metrics-addr",
    "health-addr",
    "leader-election-id",
    "leader-election-namespace",
    "leader-election-lease-duration",
    "leader-election-renew-deadline",
    "leader-election-retry-period",
    *_RENAMES,
)
_ALERTS: Final = {
    "alert-on-reload": "ALERT_ON_RELOAD",
    "alert-sink": "ALERT_SINK",
    "alert-webhook-url": "ALERT_WEBHOOK_URL",
    "alert-proxy": "ALERT_WEBHOOK_PROXY",
    "alert-additional-info": "ALERT_ADDITIONAL_INFO",
}
FLAGS: Final = (
    *(Flag(name=name, boolean=True) for name in _BOOLEANS),
    *(Flag(name=name) for name in _VALUES),
    *(Flag(name=name, variable=variable, boolean=name == "alert-on-reload") for name, variable in _ALERTS.items()),
)
_SINKS: Final = {"slack": "slack", "teams": "teams", "gchat": "googlechat"}
_LEVELS: Final = {"trace": "debug", "fatal": "error", "panic": "error", "warn": "warning"}


def read_reloader(argv: Sequence[str], environ: Mapping[str, str]) -> Profile:
    """What the original would make of these flags and variables."""
    said = read_arguments("reloader", FLAGS, argv, environ)
    level = said.text("log-level", "info").lower()
    level = _LEVELS.get(level, level)
    if level not in ("debug", "info", "warning", "error"):
        raise said.wrong("log-level", f'"{level}" is not a level (try info)')
    if said.text("log-format") not in ("", "json"):
        raise said.wrong("log-format", f'"{said.text("log-format")}" is not a format (try json, or leave it out)')
    health = said.text("health-addr")
    config = _config(said)
    strategy, auto_all = config.reloader.reload_strategy, config.reloader.auto_reload_all
    return Profile(
        name="reloader",
        config=config,
        dialects=(Reloader(strategy=strategy, auto_all=auto_all, names=_names(said)),),
        listen=said.text("metrics-addr", ":9090"),
        further_listens=(health,) if health else (),
        lease=_lease(said),
        logs=Logs(level=level, form="json" if said.text("log-format") == "json" else "text"),
        by_namespace=said.text("METRICS_COUNT_BY_NAMESPACE") == "enabled",
        notes=tuple(_notes(said)),
    )


def _config(said: Arguments) -> ReloadConfig:
    ignored = {word.lower() for word in said.words("resources-to-ignore")}
    if unknown := ignored - {"configmaps", "secrets"}:
        raise said.wrong("resources-to-ignore", f'"{min(unknown)}" is neither configmaps nor secrets')
    if len(ignored) > 1:
        raise said.wrong("resources-to-ignore", "only one of configmaps and secrets can be ignored, not both")
    alone = said.text("KUBERNETES_NAMESPACE")
    return ReloadConfig(
        quiet_period=GATHER_QUIET,
        max_delay=GATHER_LIMIT,
        dialects=("reloader",),
        reloader=ReloaderConfig(auto_reload_all=said.truth("auto-reload-all"), reload_strategy=_strategy(said)),
        kinds=_kinds(said),
        budget=BudgetConfig(restarts=0),
        namespaces=said.words("namespaces") or ((alone,) if alone else ()),
        secrets="secrets" not in ignored,
        secret_provider_classes=said.truth("enable-csi-integration"),
        config_maps="configmaps" not in ignored,
        ignore_namespaces=said.words("namespaces-to-ignore"),
        namespace_selector=_labels(said, "namespace-selector"),
        source_selector=_labels(said, "resource-label-selector"),
        namespace_settings=False,
        reload_on_create=_truth(said, "reload-on-create"),
        reload_on_delete=_truth(said, "reload-on-delete"),
        notify=_notify(said),
        webhook=_webhook(said),
    )


def _kinds(said: Arguments) -> tuple[str | KindConfig, ...]:
    ignored = {word.lower() for word in said.words("ignored-workload-types")}
    if unknown := ignored - {"jobs", "cronjobs"}:
        raise said.wrong("ignored-workload-types", f'"{min(unknown)}" is neither jobs nor cronjobs')
    kinds: list[str | KindConfig] = ["Deployment", "StatefulSet", "DaemonSet"]
    kinds += [KindConfig(kind="CronJob", restart="run")] * ("cronjobs" not in ignored)
    kinds += ["Job"] * ("jobs" not in ignored)
    if _truth(said, "is-Argo-Rollouts"):
        kinds.append("Rollout")
    if said.text("is-openshift", "auto") == "true":
        kinds.append("DeploymentConfig")
    return tuple(kinds)


def _strategy(said: Arguments) -> Strategy:
    text = said.text("reload-strategy", Strategy.ENV_VARS.value)
    if text not in tuple(Strategy):
        raise said.wrong("reload-strategy", f'"{text}" is not a strategy (try {" or ".join(Strategy)})')
    return Strategy(text)


def _names(said: Arguments) -> Names:
    changes: dict[str, object] = {}
    for flag, (field, kind) in _RENAMES.items():
        if not said.text(flag):
            continue
        if kind is None:
            changes[field] = said.text(flag)
        else:
            held = changes.setdefault(field, dict(getattr(Names(), field)))
            assert isinstance(held, dict)
            held[kind] = said.text(flag)
    return Names(**changes)  # type: ignore[arg-type]  # the fields of the table above


def _labels(said: Arguments, name: str) -> str:
    """A selector; `key:value` and `key:*` are the original's older spelling."""
    spelled = []
    for word in said.words(name):
        key, colon, value = word.partition(":")
        spelled.append(word if not colon or "=" in word else (key if value == "*" else f"{key}={value}"))
    return ",".join(spelled)


def _lease(said: Arguments) -> ProfileLease | None:
    if not said.truth("enable-ha"):
        return None
    return ProfileLease(
        name=said.text("leader-election-id", "stakater-reloader-lock"),
        namespace=said.text("leader-election-namespace") or said.text("POD_NAMESPACE") or None,
        lease_seconds=said.seconds("leader-election-lease-duration", 15.0),
        renew_seconds=said.seconds("leader-election-renew-deadline", 10.0),
        retry_seconds=said.seconds("leader-election-retry-period", 2.0),
        identity=said.text("POD_NAME") or None,
    )


def _webhook(said: Arguments) -> WebhookConfig:
    url = said.text("webhook-url").strip()
    if url and not url.startswith(("http://", "https://")):
        raise said.wrong("webhook-url", "is not an address (try https://HOST/PATH)")  # which may hold a secret
    return WebhookConfig(url=url)


def _notify(said: Arguments) -> tuple[ReceiverConfig, ...]:
    """Alerts, as version 1 turns them on: only by exactly `true`."""
    if said.text("alert-on-reload") != "true":
        return ()
    url = said.text("alert-webhook-url").strip()
    if not url:
        raise said.wrong("alert-webhook-url", "ALERT_ON_RELOAD needs an address to send to")
    proxy = said.text("alert-proxy").strip()
    if proxy and not proxy.startswith(("http://", "https://")):
        raise said.wrong("alert-proxy", f'"{proxy}" is not a proxy (try http://HOST:PORT)')
    form = _SINKS.get(said.text("alert-sink").strip().lower(), "text")
    prefix = said.text("alert-additional-info").strip().replace("$", "$$")
    return (ReceiverConfig(url=url, format=form, proxy=proxy, template=f"{prefix} : {DEFAULT}" if prefix else None),)


def _notes(said: Arguments) -> list[str]:
    found = []
    if said.truth("sync-after-restart"):
        found.append(
            "sync-after-restart: what changed while the controller was down is always found, and nothing else restarts"
        )
    if said.truth("enable-pprof"):
        found.append("enable-pprof: this program has no Go profiler")
    return found


def _truth(said: Arguments, name: str) -> bool:
    text = said.text(name, "false")
    if text not in ("true", "false"):
        raise said.wrong(name, f'"{text}" is neither true nor false')
    return text == "true"
