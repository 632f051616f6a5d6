"""What people write in annotations and in the configuration, and what they are told when it makes no sense."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import ConfigError
from steersman.kube.api.times import format_time
from steersman.operators.reload.api.annotations import LONGEST_LIST as MOST
from steersman.operators.reload.api.annotations import (
    NATIVE_ANNOTATIONS,
    Mode,
    read_namespace_settings,
    read_settings,
    read_source_settings,
)
from steersman.operators.reload.api.config import ReloadConfig, ReloadOptions, SourceKind, SourceRef, Window, WorkloadId
from steersman.operators.reload.workloads.kinds import kind_aliases, kind_rules

PREFIX = "steersman.dev/"


def settings(**annotations):
    return read_settings({PREFIX + name.replace("_", "-"): text for name, text in annotations.items()}, "shop")


def test_a_workload_can_ask_for_everything_at_once():
    read = settings(
        reload="configmap/app*, secret/db",
        reload_extra="configmap/flags,configmap/lab/shared",
        reload_ignore="configmap/app#debug*",
        quiet_period="1m",
        max_delay="10m",
        freeze="until=2030-01-01T00:00:00Z",
    )
    assert read.mode is Mode.NAMED
    assert [str(pattern) for pattern in read.named] == ["configmap/app*", "secret/db"]
    assert read.extra == (
        SourceRef(SourceKind.CONFIGMAP, "shop", "flags"),
        SourceRef(SourceKind.CONFIGMAP, "lab", "shared"),
    )
    assert read.ignore[0].matches_key("debug-level")
    assert not read.ignore[0].matches_key("mode")
    assert read.window(Window()) == Window(quiet=timedelta(minutes=1), limit=timedelta(minutes=10))
    assert read.freeze.holds(1_800_000_000)
    assert not read.freeze.holds(1_900_000_000)
    assert read.problems == ()


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"reload": "yes"}, 'steersman.dev/reload: "yes" is neither auto, off nor a list of sources'),
        ({"reload": "deployment/x"}, '"deployment/x" is not a source'),
        ({"reload_extra": "configmap/a/b/c"}, '"configmap/a/b/c" is not a source'),
        ({"reload_ignore": "configmap/a#"}, '"configmap/a#" is not a source'),
        ({"quiet_period": "5 sec"}, 'steersman.dev/quiet-period: "5 sec" is not a duration (try 5s)'),
        ({"max_delay": "-5s"}, "is negative"),
        ({"freeze": "until=tomorrow"}, "is not an RFC 3339 time"),
        ({"freeze": "maybe"}, '"maybe" is not a freeze'),
        ({"budget": "often"}, 'steersman.dev/budget: "often" is not a budget (try 5/1h)'),
        ({"budget": "5/0s"}, '"5/0s" is not a budget'),
        ({"budget": "201/1h"}, "201 restarts are more than are recorded (at most 200; 0 means no limit)"),
        ({"budget": "5/x"}, '"x" is not a duration'),
        ({"windows": "at night"}, 'steersman.dev/windows: "at night" is not a window'),
        ({"windows": f"0{' ' * 200_000}2"}, "is not a window"),
        ({"windows": "0 2 29 2 * for 1m;" * 5_000}, "5000 windows are too many (at most 50)"),
        ({"quiet_period": f"{'9' * 5_000}s"}, "is too long for a duration"),
        ({"windows": ""}, "steersman.dev/windows: it is empty and has no effect"),
        ({"windows": " ; "}, "steersman.dev/windows: it is empty and has no effect"),
        ({"reload": "configmap/[a"}, 'steersman.dev/reload: "configmap/[a" has a [ without a ]'),
        ({"reload_ignore": "configmap/a#x[1-"}, '"configmap/a#x[1-" has a [ without a ]'),
        ({"wave": "first"}, 'steersman.dev/wave: "first" is not a wave'),
        ({"wave": "9" * 400}, "is not a wave"),
        ({"depends_on": "db"}, 'steersman.dev/depends-on: "db" is not a workload (try deployment/NAME'),
        ({"depends_on": "deployment/db,pod/x"}, '"pod/x" is not a workload'),
        ({"max_concurrent": "-1"}, 'steersman.dev/max-concurrent: "-1" is not a limit'),
        ({"on_failure": "panic"}, 'steersman.dev/on-failure: "panic" is neither halt nor continue'),
        ({"rollout_deadline": "soon"}, 'steersman.dev/rollout-deadline: "soon" is not a duration'),
        ({"guard": "150%"}, 'steersman.dev/guard: "150%" is not a guard (try 10 or 30%)'),
        ({"guard": "many"}, '"many" is not a guard'),
        ({"approve": "zzz"}, 'steersman.dev/approve: "zzz" is not the digest of a change'),
    ],
)
def test_a_value_that_makes_no_sense_is_named_and_the_others_still_count(annotations, problem):
    good = {"reload_extra": "secret/db"} if "reload_extra" not in annotations else {"reload": "auto"}
    read = settings(**annotations, **good)
    assert len(read.problems) == 1
    assert problem in read.problems[0]
    assert read.mode is Mode.AUTO if "reload_extra" in annotations else read.extra


@given(st.dictionaries(st.sampled_from(sorted(NATIVE_ANNOTATIONS)), st.text(max_size=300)))
def test_no_annotation_can_break_anything(annotations):
    assert isinstance(read_settings(annotations, "shop").problems, tuple)
    assert isinstance(read_source_settings(annotations).problems, tuple)


@pytest.mark.parametrize("glob", ["[a", "a[", "x[]", "[!]", "[ab][c", "[a]["])
def test_a_set_of_characters_without_an_end_is_reported(glob):
    assert "has a [ without a ]" in settings(reload=f"configmap/{glob}").problems[0]


@pytest.mark.parametrize(("glob", "name"), [("[ab]", "b"), ("[[]", "["), ("[]a]", "]"), ("[!a]x", "bx"), ("a]", "a]")])
def test_a_glob_that_is_read_matches_what_it_says(glob, name):
    (pattern,) = settings(reload=f"configmap/{glob}").named
    assert pattern.matches(SourceRef(SourceKind.CONFIGMAP, "shop", name))


@pytest.mark.parametrize(("text", "urgent", "told"), [("true", True, 0), ("false", False, 0), ("yes", False, 1)])
def test_urgent_is_true_or_false_and_anything_else_is_reported(text, urgent, told):
    read = read_source_settings({"steersman.dev/urgent": text})
    assert (read.urgent, len(read.problems)) == (urgent, told)


def test_what_means_nothing_on_a_namespace_is_reported_and_the_rest_counts():
    marks = {"reload": "configmap/app", "reload-extra": "secret/a", "reload-ignore": "secret/b", "wave": "2"}
    read = read_namespace_settings({f"steersman.dev/{name}": text for name, text in marks.items()}, "shop")
    assert (read.mode, read.named, read.extra, read.ignore, read.wave) == (None, (), (), (), 2)
    assert read.problems == (
        "steersman.dev/reload: sources are named on a workload (try auto or off)",
        "steersman.dev/reload-extra: sources are named on a workload",
        "steersman.dev/reload-ignore: sources are named on a workload or in a policy",
    )


def test_the_end_of_a_freeze_always_has_a_name_in_the_calendar():
    until = settings(freeze="until=9999-12-31T23:59:59.999999Z").freeze.until
    assert format_time(until).startswith("9999-12-31")
    assert format_time(round(until, 1)).startswith("9999-12-31")


def test_a_longer_quiet_period_than_maximum_delay_counts_as_both():
    assert settings(quiet_period="1h").window(Window()) == Window(quiet=timedelta(hours=1), limit=timedelta(hours=1))


def test_a_source_says_who_may_use_it_and_how_urgent_it_is():
    read = read_source_settings({"steersman.dev/share-with": "shop, lab", "steersman.dev/urgent": "true"})
    assert read.grants("shop")
    assert read.grants("lab")
    assert not read.grants("prod")
    assert read.urgent
    assert read_source_settings({"steersman.dev/share-with": "*"}).grants("anywhere")
    assert read_source_settings({"steersman.dev/reload": "off"}).off


def config(text):
    return msgspec.yaml.decode(text, type=ReloadConfig).options()


@pytest.mark.parametrize(
    ("name", "entry", "field"),
    [
        ("reload", "configmap/app-%d", "named"),
        ("reload_extra", "secret/db-%d", "extra"),
        ("reload_ignore", "configmap/app-%d#key", "ignore"),
        ("depends_on", "deployment/db-%d", "depends"),
    ],
)
def test_of_a_list_that_is_too_long_the_beginning_counts_and_a_warning_is_reported(name, entry, field):
    fits = settings(**{name: ",".join(entry % number for number in range(MOST))})
    assert (len(getattr(fits, field)), fits.problems) == (MOST, ())
    read = settings(**{name: ",".join(entry % number for number in range(5_000))})
    assert getattr(read, field) == getattr(fits, field)
    mark = PREFIX + name.replace("_", "-")
    assert read.problems == (f"{mark}: it has 5000 entries, of which the first {MOST} count",)


@pytest.mark.parametrize("word", ["PodSet", "podset", "strimzipodsets"])
def test_a_workload_may_depend_on_one_of_a_kind_that_the_configuration_describes(word):
    text = "kinds: [Deployment, {kind: PodSet, group: g, version: v1, plural: strimzipodsets, template: spec.template}]"
    words = kind_aliases(config(text).kinds)
    read = read_settings({f"{PREFIX}depends-on": f"{word}/kafka"}, "shop", words)
    assert (read.depends, read.problems) == ((WorkloadId("PodSet", "shop", "kafka"),), ())
    assert read_settings({f"{PREFIX}depends-on": f"{word}/kafka"}, "shop").problems


def test_the_configuration_is_read_into_options():
    options = config("""
quietPeriod: 1s
maxDelay: 2m
selectors: [{namespace: shop, selector: "app=web", envLabel: stage}]
kinds: [Deployment, {group: kafka.strimzi.io, version: v1, kind: StrimziPodSet, template: spec.podTemplate}]
budget: {restarts: 2, per: 10m}
maxConcurrent: 3
""")
    assert options.window == Window(quiet=timedelta(seconds=1), limit=timedelta(minutes=2))
    assert options.scopes[0].group("shop", {"app": "web", "stage": "test"}) == "test"
    assert options.scopes[0].group("lab", {"app": "web", "stage": "test"}) is None
    assert options.scopes[0].group("shop", {"app": "other", "stage": "test"}) is None
    assert options.scopes[0].group("shop", {"app": "web"}) is None
    assert [rule.kind.qualified for rule in kind_rules(options.kinds)] == [
        "deployments.apps",
        "strimzipodsets.kafka.strimzi.io",
    ]
    assert options.max_concurrent == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("quietPeriod: 5 sec", 'reload.quietPeriod: "5 sec" is not a duration (try 5s)'),
        ("budget: {per: 0s}", "reload.budget.per: must be longer than 0"),
        ("budget: {restarts: -1}", "reload.budget.restarts"),
        ("budget: {restarts: 201}", "reload.budget.restarts: must be from 0 (no limit) to 200"),
        ("selectors: [{selector: 'a in ('}]", "reload.selectors[0].selector"),
        ("selectors: [{selector: ''}]", "reload.selectors[0].selector: must not be empty"),
        ("selectors: [{selector: 'a=b', envLabel: '-x'}]", "reload.selectors[0].envLabel"),
        ("narrow: sometimes", 'reload.narrow: "sometimes" is not one of never, refused, always'),
        ("{narrow: always, selectors: [{selector: 'a=b'}]}", "reload.selectors: need all ConfigMaps of a namespace"),
        ("{configMapNames: [a], selectors: [{selector: 'a=b'}]}", "reload.selectors: need all ConfigMaps"),
        ("maxConcurrent: -1", "reload.maxConcurrent"),
        ("maxConcurrentPerNamespace: -1", "reload.maxConcurrentPerNamespace"),
        ("guard: {workloads: -1}", "reload.guard.workloads"),
        ("guard: {percent: -1}", "reload.guard.percent"),
        ("rolloutDeadline: later", "reload.rolloutDeadline"),
        ("windows: [{cron: '* *', duration: 1h}]", 'reload.windows[0]: "* *" is not a cron expression'),
        (
            "windows: [{cron: '0 2 * * *', duration: 1h, timeZone: Mars}]",
            'reload.windows[0]: "Mars" is not a time zone',
        ),
        ("kinds: [Pod]", 'reload.kinds[0]: "Pod" is not built in'),
        ("kinds: [{kind: Foo, group: g}]", "reload.kinds[0]: Foo needs version and template"),
        ("kinds: [{kind: Deployment, restart: recreate}]", "reload.kinds[0].restart: only a Job can be recreated"),
        ("kinds: [{kind: Rollout, restart: bounce}]", 'reload.kinds[0].restart: unknown restart "bounce"'),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_its_field(text, complaint):
    with pytest.raises(ConfigError) as error:
        kind_rules(config(text).kinds)
    assert complaint in str(error.value)


def test_without_configuration_every_built_in_kind_takes_part_but_jobs_and_kinds_that_are_not_installed():
    assert [str(rule) for rule in kind_rules(ReloadOptions().kinds)] == [
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "CronJob",
    ]
