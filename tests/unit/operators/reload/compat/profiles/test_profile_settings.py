"""Profiles: flags and variables of the originals, with their defaults, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from steersman.errors import ConfigError
from steersman.operators.reload.api.config import SourceKind, Window
from steersman.operators.reload.compat.profiles import PROFILES, read_profile
from steersman.operators.reload.controllers.rbac import rules
from steersman.operators.reload.notify.message import Notification, check_template


def window(quiet, limit, interval=0):
    return Window(quiet=timedelta(seconds=quiet), limit=timedelta(seconds=limit), interval=timedelta(seconds=interval))


def test_a_profile_that_does_not_exist_is_reported_with_those_that_do():
    with pytest.raises(ConfigError, match=r'--profile: "wav" is not a profile \(try shipshape, xing, reloader, wave\)'):
        read_profile("wav", (), {})


# ---------------------------------------------------------------------------------------------------------- shipshape
def test_without_variables_shipshape_has_the_defaults_of_the_original():
    profile = read_profile("shipshape", (), {})
    options = profile.config.options()
    (scope,) = options.scopes
    assert (scope.namespace, str(scope.selector), scope.env_label) == ("shipshape", "app=helloworld", "env")
    assert options.window == window(0.5, 1, 5)
    assert options.namespaces == {"shipshape"}
    assert not options.watch_secrets
    assert [row.kind for row in options.kinds] == ["Deployment"]
    assert profile.listen == ":8080"
    lease = profile.lease
    assert (lease.name, lease.namespace) == ("helloworld-controller-leader", "shipshape")
    assert (lease.lease_seconds, lease.renew_seconds, lease.retry_seconds) == (15, 10, 2)
    assert profile.stop_seconds == 45
    assert profile.info == {"version": "0.2.2", "revision": "unknown"}
    assert "shipshape.io/restartedAt" in profile.dialects[0].annotations


def test_shipshape_takes_every_variable_of_the_original():
    profile = read_profile(
        "shipshape",
        (),
        {
            "WATCH_NAMESPACE": "shop",
            "APP_SELECTOR": "app=myapp, tier = web",
            "ROLLOUT_ANNOTATION_KEY": "example.org/restarted",
            "DEBOUNCE_SECONDS": "30",
            "LOG_LEVEL": "debug",
            "HEALTH_PORT": "9000",
            "LEADER_ELECTION_LEASE_NAME": "mine",
            "LEADER_ELECTION_IDENTITY": "me",
            "LEADER_ELECTION_LEASE_DURATION_SECONDS": "30",
            "LEADER_ELECTION_RENEW_DEADLINE_SECONDS": "20",
            "LEADER_ELECTION_RETRY_PERIOD_SECONDS": "19",
            "LEADER_ELECTION_CONTROLLER_STOP_TIMEOUT_SECONDS": "50",
            "APP_VERSION": "1.0",
            "GIT_SHA": "abc",
        },
    )
    options = profile.config.options()
    assert str(options.scopes[0].selector) == "app=myapp,tier=web"
    assert options.window.interval == timedelta(seconds=30)
    assert profile.listen == ":9000"
    assert profile.logs.level == "debug"
    assert (profile.lease.name, profile.lease.namespace, profile.lease.identity) == ("mine", "shop", "me")
    assert profile.lease.renew_seconds > profile.lease.jitter * profile.lease.retry_seconds
    assert profile.stop_seconds == 50
    assert profile.info == {"version": "1.0", "revision": "abc"}
    assert {"example.org/restarted", "example.org/config-hash-*"} == profile.dialects[0].annotations


def test_a_debounce_of_zero_restarts_at_once():
    assert read_profile("shipshape", (), {"DEBOUNCE_SECONDS": "0"}).config.options().window == window(0, 0)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("WATCH_NAMESPACE", "  ", "must be a non-empty string"),
        ("APP_SELECTOR", "", "must name at least one label"),
        ("APP_SELECTOR", "app in", "APP_SELECTOR: "),
        ("ROLLOUT_ANNOTATION_KEY", "a/b/c", "is not the name of an annotation"),
        ("DEBOUNCE_SECONDS", "", "must be an integer"),
        ("DEBOUNCE_SECONDS", "soon", 'must be an integer, got: "soon"'),
        ("DEBOUNCE_SECONDS", "-1", "must be >= 0, got: -1"),
        ("HEALTH_PORT", "70000", "must be <= 65535, got: 70000"),
        ("HEALTH_PORT", "0", "must be >= 1, got: 0"),
        ("LEADER_ELECTION_LEASE_DURATION_SECONDS", "0", "must be >= 1"),
        ("LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "15", "must be < LEADER_ELECTION_LEASE_DURATION_SECONDS"),
        ("LEADER_ELECTION_RETRY_PERIOD_SECONDS", "10", "must be < LEADER_ELECTION_RENEW_DEADLINE_SECONDS"),
        ("LEADER_ELECTION_ENABLED", "ture", "is neither true nor false"),
    ],
)
def test_a_variable_of_shipshape_that_makes_no_sense_is_reported_with_its_name(variable, value, message):
    with pytest.raises(ConfigError) as told:
        read_profile("shipshape", (), {variable: value})
    assert str(told.value).startswith(f"{variable}: ")
    assert message in str(told.value)


@pytest.mark.parametrize("text", ["1", "true", "yes", "on", " TRUE ", "On"])
def test_the_election_of_shipshape_is_on_for_every_yes_of_the_original(text):
    assert read_profile("shipshape", (), {"LEADER_ELECTION_ENABLED": text}).lease is not None


@pytest.mark.parametrize("text", ["0", "false", "no", "off", "", " False "])
def test_the_election_of_shipshape_is_off_for_every_no(text):
    assert read_profile("shipshape", (), {"LEADER_ELECTION_ENABLED": text}).lease is None


@pytest.mark.parametrize(
    ("environ", "identity"),
    [
        ({"HOSTNAME": "pod-a", "POD_NAME": "pod-b"}, "pod-a"),
        ({"POD_NAME": "pod-b"}, "pod-b"),
        ({}, None),
        ({"LEADER_ELECTION_IDENTITY": "x", "HOSTNAME": "pod-a"}, "x"),
    ],
)
def test_the_identity_of_shipshape_is_the_pod_and_never_the_same_for_two(environ, identity):
    assert read_profile("shipshape", (), environ).lease.identity == identity


@pytest.mark.parametrize("selector", ["app==x", "app!=x", "tier in (a,b)"])
def test_selectors_that_the_original_misreads_mean_here_what_they_mean_to_the_server(selector):
    (scope,) = read_profile("shipshape", (), {"APP_SELECTOR": selector}).config.options().scopes
    labels = {"app==x": {"app": "x"}, "app!=x": {"app": "y"}, "tier in (a,b)": {"tier": "b"}}[selector]
    assert scope.group("shipshape", {**labels, "env": "test"}) == "test"


# --------------------------------------------------------------------------------------------------------------- xing
def test_without_flags_xing_has_the_defaults_of_the_original():
    profile = read_profile("xing", (), {})
    options = profile.config.options()
    assert options.window == window(5, 5)
    assert [row.kind for row in options.kinds] == ["Deployment", "StatefulSet"]
    assert options.namespaces is None
    assert not options.watch_namespaces
    assert (profile.listen, profile.lease) == (":10254", None)


@pytest.mark.parametrize(
    ("argv", "environ", "seconds"),
    [
        (("-r", "9"), {}, 9),
        (("-r9", "-c500", "-v", "2"), {}, 9),
        (("--restart-grace-period=9",), {"RESTART_GRACE_PERIOD": "7"}, 9),
        ((), {"RESTART_GRACE_PERIOD": "7", "VERBOSE": "3", "RESTART_CHECK_PERIOD": "100"}, 7),
        (("-r", "-1"), {}, 0),
    ],
)
def test_a_flag_of_xing_wins_over_its_variable(argv, environ, seconds):
    assert read_profile("xing", argv, environ).config.options().window == window(seconds, seconds)


def test_the_level_of_xing_s_log_is_a_number():
    assert read_profile("xing", ("-v", "2"), {}).logs.level == "debug"
    assert read_profile("xing", (), {}).logs.level == "info"
    with pytest.raises(ConfigError, match="--verbose: must be an integer"):
        read_profile("xing", ("-v", "loud"), {})


def test_an_empty_pattern_of_ignored_errors_ignores_nothing_and_is_reported():
    notes = read_profile("xing", (), {"IGNORED_ERRORS": "a;;b"}).notes
    assert any("an empty pattern would ignore everything" in note for note in notes)


def test_a_check_period_that_would_end_the_original_is_refused():
    with pytest.raises(ConfigError, match="--restart-check-period: must be >= 1, got: 0"):
        read_profile("xing", ("-c", "0"), {})


# ----------------------------------------------------------------------------------------------------------- reloader
def test_without_flags_reloader_has_the_defaults_of_the_original():
    profile = read_profile("reloader", (), {})
    options = profile.config.options()
    assert [row.kind for row in options.kinds] == ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"]
    assert options.namespaces is None
    assert options.watch_secrets
    assert options.watch_configmaps
    assert (profile.listen, profile.lease, profile.notes) == (":9090", None, ())


def test_reloader_takes_the_flags_of_the_original():
    profile = read_profile(
        "reloader",
        (
            "--auto-reload-all=true",
            "--reload-strategy=annotations",
            "--is-Argo-Rollouts=true",
            "--enable-ha",
            "--resources-to-ignore=SECRETS",
            "--ignored-workload-types=jobs,cronjobs",
            "--namespaces-to-ignore=kube-system,monitoring",
            "--namespace-selector=team:a,live:*",
            "--resource-label-selector=app=web",
            "--configmap-annotation=example.org/configmaps",
            "--auto-annotation=example.org/auto",
            "--log-format=json",
            "--log-level=warn",
            "--sync-after-restart",
            "--reload-on-create=true",
        ),
        {"POD_NAMESPACE": "ops", "POD_NAME": "reloader-0", "METRICS_COUNT_BY_NAMESPACE": "enabled"},
    )
    options = profile.config.options()
    assert [row.kind for row in options.kinds] == ["Deployment", "StatefulSet", "DaemonSet", "Rollout"]
    assert not options.watch_secrets
    assert options.ignored_namespaces == {"kube-system", "monitoring"}
    assert options.namespace_selector.matches({"team": "a", "live": "x"})
    assert not options.namespace_selector.matches({"team": "a"})
    assert options.source_selector == "app=web"
    (dialect,) = profile.dialects
    assert {"example.org/configmaps", "example.org/auto"} <= dialect.annotations
    assert "reloader.stakater.com/auto" not in dialect.annotations
    lease = profile.lease
    assert (lease.name, lease.namespace, lease.identity) == ("stakater-reloader-lock", "ops", "reloader-0")
    assert (profile.logs.form, profile.logs.level) == ("json", "warning")
    assert profile.by_namespace
    assert len(profile.notes) == 1


def test_one_namespace_is_what_a_namespaced_reloader_watches():
    assert read_profile("reloader", (), {"KUBERNETES_NAMESPACE": "shop"}).config.options().namespaces == {"shop"}
    told = read_profile("reloader", ("--namespaces", "a,b"), {"KUBERNETES_NAMESPACE": "shop"})
    assert told.config.options().namespaces == {"a", "b"}


def test_the_flags_that_version_2_of_reloader_adds_are_taken():
    argv = ("--metrics-addr=:9999", "--health-addr=:8081", "--enable-ha=true", "--leader-election-id=x")
    profile = read_profile("reloader", (*argv, "--leader-election-lease-duration=30s"), {})
    assert (profile.listen, profile.further_listens) == (":9999", (":8081",))
    assert (profile.lease.name, profile.lease.lease_seconds) == ("x", 30)


@pytest.mark.parametrize(
    ("sink", "form"),
    [("slack", "slack"), ("teams", "teams"), (" GChat ", "googlechat"), ("webhook", "text"), ("", "text")],
)
def test_alerts_of_reloader_become_notifications(sink, form):
    environ = {"ALERT_ON_RELOAD": "true", "ALERT_SINK": sink, "ALERT_WEBHOOK_URL": "https://hooks.example.org/x"}
    config = read_profile("reloader", (), environ).config
    (notify,) = config.notify
    assert (notify.url, notify.format, notify.proxy) == ("https://hooks.example.org/x", form, "")
    config.options()  # and it is understood
    assert read_profile("reloader", (), {**environ, "ALERT_ON_RELOAD": "True"}).config.notify == ()


def test_alerts_of_reloader_go_through_its_proxy_and_begin_with_what_it_adds():
    environ = {
        "ALERT_ON_RELOAD": "true",
        "ALERT_WEBHOOK_URL": "https://hooks.example.org/x",
        "ALERT_WEBHOOK_PROXY": "http://proxy:3128",
        "ALERT_ADDITIONAL_INFO": " $5 cluster ",
    }
    profile = read_profile("reloader", (), environ)
    (notify,) = profile.config.notify
    assert (notify.proxy, profile.notes) == ("http://proxy:3128", ())
    assert (
        Notification(id="1", at=0.0, changes=(), workloads=())
        .text(notify.template)
        .startswith("$5 cluster : finished: ")
    )
    check_template(notify.template, "template")
    with pytest.raises(ConfigError, match="ALERT_WEBHOOK_PROXY"):
        read_profile("reloader", (), {**environ, "ALERT_WEBHOOK_PROXY": "proxy:3128"})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--webhook-url=secret",), "--webhook-url: is not an address"),
        (("--reload-strategy=magic",), '--reload-strategy: "magic" is not a strategy (try env-vars or annotations)'),
        (("--resources-to-ignore=configmaps,secrets",), "only one of configmaps and secrets"),
        (("--resources-to-ignore=pods",), '"pods" is neither configmaps nor secrets'),
        (("--ignored-workload-types=pods",), '"pods" is neither jobs nor cronjobs'),
        (("--is-argo-rollouts=true",), "(did you mean --is-Argo-Rollouts?)"),
        (("--reload-on-create=yes",), '--reload-on-create: "yes" is neither true nor false'),
        (("--log-level=loud",), '--log-level: "loud" is not a level'),
        (("--log-level",), "--log-level: needs a value"),
        (("--enable-ha=maybe",), '--enable-ha: "maybe" is neither true nor false'),
        (("auto",), "auto: reloader has no such flag (flags begin with --)"),
    ],
)
def test_a_flag_of_reloader_that_cannot_be_honoured_is_reported_with_its_name(argv, message):
    with pytest.raises(ConfigError) as told:
        read_profile("reloader", argv, {})
    assert message in str(told.value)


def test_every_annotation_of_reloader_can_be_renamed():
    profile = read_profile("reloader", ("--secret-auto-annotation=a/s", "--configmap-auto-annotation=a/c"), {})
    names = profile.dialects[0]._names
    assert names.typed_auto[SourceKind.SECRET] == "a/s"
    assert names.typed_auto[SourceKind.CONFIGMAP] == "a/c"


# --------------------------------------------------------------------------------------------------------------- wave
def test_without_flags_wave_has_the_defaults_of_the_original():
    profile = read_profile("wave", (), {})
    assert [row.kind for row in profile.config.options().kinds] == ["Deployment", "StatefulSet", "DaemonSet"]
    assert (profile.listen, profile.lease) == (":8080", None)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_wave_takes_the_arguments_of_its_chart(dashes):
    argv = (
        f"{dashes}leader-election=true",
        f"{dashes}leader-election-id=wave-wave",
        f"{dashes}leader-election-namespace=ops",
        f"{dashes}sync-period=5h",
        f"{dashes}namespaces=a,b",
    )
    profile = read_profile("wave", argv, {})
    assert (profile.lease.name, profile.lease.namespace) == ("wave-wave", "ops")
    assert profile.config.options().namespaces == {"a", "b"}
    assert len(profile.notes) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--enable-webhooks",), "--enable-webhooks: pods are not held back by a webhook here"),
        (("--leader-election",), "--leader-election-id: --leader-election needs the name of a Lease"),
        (("--sync-period=often",), "--sync-period: "),
    ],
)
def test_a_flag_of_wave_that_cannot_be_honoured_is_reported_with_its_name(argv, message):
    with pytest.raises(ConfigError) as told:
        read_profile("wave", argv, {})
    assert message in str(told.value)


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_limits_how_often_a_workload_restarts_unless_requested(name):
    assert read_profile(name, (), {}).config.options().budget.restarts == 0


@pytest.mark.parametrize(("argv", "watched"), [([], False), (["--enable-csi-integration"], True)])
def test_reloader_watches_what_the_csi_driver_mounts_when_it_is_asked_to(argv, watched):
    profile = read_profile("reloader", argv, {})
    groups = {group for rule in rules(profile.config) for group in rule.api_groups or ()}
    assert ("secrets-store.csi.x-k8s.io" in groups) is watched
    assert profile.notes == ()


# ------------------------------------------------------------------------------- variables that only look like flags
@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("xing", {"version": "1.2.3"}),
        ("xing", {"verbose": "loud", "ignored-errors": "x"}),
        ("reloader", {"namespaces": "elsewhere", "log-level": "shouting", "enable-ha": "perhaps"}),
        ("reloader", {"webhook-url": "http://example.org"}),
        ("wave", {"leader-election": "perhaps", "sync-period": "soon"}),
    ],
)
def test_a_variable_that_is_named_like_a_flag_says_nothing(name, environ):
    said, silent = (replace(read_profile(name, (), variables), dialects=()) for variables in (environ, {}))
    assert said == silent


def test_the_quotes_that_the_chart_of_reloader_passes_belong_to_the_list_and_not_to_the_selector():
    argv = ['--namespace-selector="env=test"', '--resource-label-selector="a=b,c=d",e:*']
    config = read_profile("reloader", argv, {}).config
    assert config.namespace_selector == "env=test"
    assert config.source_selector == "a=b,c=d,e"
    config.options()


def test_what_appears_or_is_deleted_restarts_as_the_flags_of_reloader_say():
    both = read_profile("reloader", ["--reload-on-create=true", "--reload-on-delete=true"], {}).config
    neither = read_profile("reloader", [], {}).config
    assert (both.reload_on_create, both.reload_on_delete) == (True, True)
    assert (neither.reload_on_create, neither.reload_on_delete) == (False, False)
