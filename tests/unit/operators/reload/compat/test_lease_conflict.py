"""Other controllers: known by the Leases they renew, and compared with when we only watch."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from steersman.kube.api.errors import ConnectionFailed, Forbidden, KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_micro_time
from steersman.kube.api.types import Lease, Pod
from steersman.kube.api.types.authorization import SubjectAccessReviewStatus
from steersman.kube.api.types.coordination import LeaseSpec
from steersman.kube.api.types.pods import PodSpec
from steersman.operators.reload.api.config import ReloadConfig, ReloadOptions, RestartBudget
from steersman.operators.reload.compat.dialects.reloader import Reloader
from steersman.operators.reload.compat.lease_conflict import (
    ASK_SECONDS,
    FRESH_SECONDS,
    LEASES,
    LONGEST_SECONDS,
    MOST_LOGGED,
    LeaseConflictWatch,
    coexistence_bundle,
)
from steersman.operators.reload.compat.shadow import Shadow
from steersman.operators.reload.controllers.reconciler import NO_WINDOW, SharedContext
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from tests.support.reload.miniature import World, configmap, env_from, workload


def lease(clock, holder="pod-a", *, name="stakater-reloader-lock", namespace="ops", ago=0.0, seconds=15):
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=seconds, renew_time=format_micro_time(clock.time() - ago)
    )
    return Lease(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


@pytest.fixture
def rivals(clock):
    return LeaseConflictWatch(clock=clock, registry=CollectorRegistry(), own="ops/mine", home=["ops"])


def test_every_original_with_a_lease_is_known():
    assert set(LEASES) == {
        "helloworld-controller-leader",
        "stakater-reloader-lock",
        "reloader-leader-election",
        "wave",
    }


@pytest.mark.parametrize("name", LEASES)
def test_a_conflicting_controller_that_renews_its_lease_is_respected_and_named(rivals, clock, name):
    rivals.saw(lease(clock, name=name))
    assert rivals.problem() == f"pod-a leads as {LEASES[name]} (lease ops/{name}), so nothing is written"


async def test_a_conflicting_controller_that_stops_renewing_is_dead_after_the_duration_of_its_lease(rivals, clock):
    rivals.saw(lease(clock))
    await clock.advance(14)
    rivals.saw(lease(clock, ago=14))  # the same record, seen again
    assert rivals.problem() is not None
    await clock.advance(2)
    assert rivals.problem() is None


async def test_a_conflicting_controller_that_goes_on_renewing_stays_respected(rivals, clock):
    for _ in range(5):
        rivals.saw(lease(clock))
        await clock.advance(10)
        assert rivals.problem() is not None


@pytest.mark.parametrize("ahead", [0.0, 68 * 365 * 86400.0])
async def test_a_lease_claims_no_more_than_the_longest_duration_unless_it_is_seen_to_be_renewed(rivals, clock, ahead):
    claim = lease(clock, seconds=2**31 - 1, ago=-ahead)
    rivals.saw(claim)
    await clock.advance(LONGEST_SECONDS - 1)
    rivals.saw(claim)  # the same record, seen again
    assert rivals.problem() is not None
    await clock.advance(2)
    assert rivals.problem() is None
    rivals.saw(lease(clock, seconds=2**31 - 1))
    assert rivals.problem() is not None


class Reach:
    """Stands for a client: one Lease, which can be read or not."""

    def __init__(self, clock):
        self.clock = clock
        self.down, self.over = asyncio.Event(), False
        self.lists = 0
        self.now = lease(clock)

    async def list(self, _target, **_options):
        self.lists += 1
        await asyncio.sleep(0)
        if self.down.is_set():
            raise ConnectionFailed("refused")
        return SimpleNamespace(items=[self.now], resource_version="1")

    @asynccontextmanager
    async def watch(self, _target, **_options):
        async def events():
            if self.over:
                return
            await self.down.wait()
            raise ConnectionFailed("cut")
            yield

        yield events()


@pytest.mark.parametrize("renewed", [True, False])
async def test_a_conflicting_controller_does_not_die_because_we_cannot_read_its_lease(clock, renewed):
    client = Reach(clock)
    name = client.now.name
    rivals = LeaseConflictWatch([name], clock=clock, registry=CollectorRegistry(), home=["ops"])
    task = asyncio.create_task(rivals.run(client))
    await clock.advance(5)
    client.down.set()
    await clock.advance(100)
    assert rivals.problem() is not None
    if renewed:
        client.now = lease(clock)
    client.down.clear()
    await clock.advance(ASK_SECONDS)
    assert (rivals.problem() is not None) == renewed
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_ends_watches_at_once_is_not_asked_without_pause(clock):
    client = Reach(clock)
    client.over = True
    rivals = LeaseConflictWatch([client.now.name], clock=clock, registry=CollectorRegistry(), home=["ops"])
    task = asyncio.create_task(rivals.run(client))
    await clock.advance(10)
    assert 5 <= client.lists <= 12
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_leases_that_could_not_be_read_have_not_been_evaluated(clock):
    class Barred:
        trouble: KubeError = ConnectionFailed("refused")

        async def list(self, _target, **_options):
            raise Forbidden("no", code=403)

        async def get(self, *_args, **_options):
            raise self.trouble

    client = Barred()
    rivals = LeaseConflictWatch(["wave"], clock=clock, registry=CollectorRegistry(), home=["ops"])
    task = asyncio.create_task(rivals.run(client))
    await clock.advance(100)
    assert not rivals.all_observed.is_set()
    client.trouble = NotFound("no lease", code=404)
    await clock.advance(ASK_SECONDS)
    assert rivals.all_observed.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_lease_given_back_or_gone_or_renewed_long_ago_is_not_a_conflict(rivals, clock):
    rivals.saw(lease(clock, ago=3600))
    assert rivals.problem() is None
    rivals.saw(lease(clock, holder=""))
    assert rivals.problem() is None
    rivals.saw(lease(clock))
    rivals.lost("ops/stakater-reloader-lock")
    assert rivals.problem() is None


def test_a_clock_that_is_a_little_off_expires_no_member(rivals, clock):
    rivals.saw(lease(clock, ago=50))
    assert rivals.problem() is not None


def test_our_own_lease_is_not_a_conflict(rivals, clock):
    rivals.saw(lease(clock, name="mine"))
    assert rivals.problem() is None


def test_the_metric_says_whether_a_conflicting_controller_leads(clock):
    registry = CollectorRegistry()
    rivals = LeaseConflictWatch(clock=clock, registry=registry, home=["ops"])
    assert registry.get_sample_value("steersman_reload_rival") == 0
    rivals.saw(lease(clock))
    assert registry.get_sample_value("steersman_reload_rival") == 1


def test_without_a_lease_to_check_nothing_is_read_and_nothing_waits():
    shared = SharedContext()
    assert (
        coexistence_bundle(ReloadConfig(rivals=()), RuntimeEnvironment(), shared, registry=CollectorRegistry()).tasks
        == ()
    )
    assert shared.guard.blocked_by() is None


# ---------------------------------------------------------------------------------------------- how far a Lease reaches
@pytest.mark.parametrize("name", LEASES)
def test_a_lease_that_anybody_could_have_made_holds_its_own_namespace_and_no_other(rivals, clock, name):
    rivals.saw(lease(clock, name=name, namespace="tenant"))
    assert rivals.problem() is None
    assert rivals.problem("shop") is None
    assert rivals.problem("tenant") == (
        f"pod-a leads as {LEASES[name]} (lease tenant/{name}), so nothing is written in tenant"
    )


@pytest.mark.parametrize(
    ("name", "namespace", "everywhere"),
    [
        ("stakater-reloader-lock", "default", False),  # where ordinary users work: its holder is verified there too
        ("wave", "default", False),
        ("stakater-reloader-lock", "reloader", True),
        ("stakater-reloader-lock", "kube-system", True),
        ("stakater-reloader-lock", "wave", False),
        ("wave", "wave", True),
        ("helloworld-controller-leader", "shipshape", False),  # it acts where its Lease is
        ("helloworld-controller-leader", "default", False),
    ],
)
def test_where_an_original_lives_by_its_documentation_its_lease_holds_everything(
    rivals, clock, name, namespace, everywhere
):
    rivals.saw(lease(clock, name=name, namespace=namespace))
    assert (rivals.problem("shop") is not None) is everywhere
    assert rivals.problem(namespace) is not None


def test_the_configuration_says_where_leases_hold_everything(clock):
    named = LeaseConflictWatch(["platform/wave"], clock=clock, registry=CollectorRegistry())
    named.saw(lease(clock, name="wave", namespace="platform"))
    assert named.problem() is not None
    trusting = LeaseConflictWatch(clock=clock, registry=CollectorRegistry(), trusted=["platform"])
    trusting.saw(lease(clock, namespace="default"))
    assert trusting.problem() is None
    trusting.saw(lease(clock, namespace="platform"))
    assert trusting.problem() is not None


async def test_a_lease_in_a_tenant_namespace_is_reported_once_counted_and_forgotten(clock):
    registry = CollectorRegistry()
    rivals = LeaseConflictWatch(clock=clock, registry=registry)
    with capture_logs() as logs:
        for _ in range(3):
            rivals.saw(lease(clock, namespace="tenant"))
            await clock.advance(5)
        assert registry.get_sample_value("steersman_reload_rival_namespaces") == 1
        await clock.advance(15)
        rivals.report()
    assert [entry["lease"] for entry in logs] == ["tenant/stakater-reloader-lock"]
    assert registry.get_sample_value("steersman_reload_rival") == 0
    assert registry.get_sample_value("steersman_reload_rival_namespaces") == 0


def test_leases_made_by_the_hundred_do_not_fill_the_log(clock):
    rivals = LeaseConflictWatch(clock=clock, registry=CollectorRegistry())
    with capture_logs() as logs:
        for number in range(3 * MOST_LOGGED):
            rivals.saw(lease(clock, namespace=f"tenant-{number}"))
    assert len(logs) == MOST_LOGGED


class Server:
    """Pods by namespace and name with their service accounts, and who of those may change workloads everywhere."""

    def __init__(self, pods=None, mighty=(), error=None):
        self.pods, self.mighty, self.error = pods or {}, set(mighty), error
        self.questions = 0

    async def list(self, target, *, namespace, field_selector):
        assert target is Pod
        self.questions += 1
        if self.error is not None:
            raise self.error
        name = field_selector.removeprefix("metadata.name=")
        found = self.pods.get((namespace, name))
        spec = PodSpec(service_account_name=found) if found is not None else PodSpec()
        pods = [] if found is None else [Pod(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)]
        return SimpleNamespace(items=pods)

    async def create(self, review):
        asked = review.spec
        assert (asked.resource_attributes.group, asked.resource_attributes.namespace) == ("apps", "")
        allowed = asked.user in self.mighty and asked.resource_attributes.verb == "update"
        return replace(review, status=SubjectAccessReviewStatus(allowed=allowed))


@asynccontextmanager
async def asking(clock, server):
    """A watch that asks about holders; nothing is listed: the test says what is seen."""
    rivals = LeaseConflictWatch(clock=clock, registry=CollectorRegistry(), asks=True)
    rivals._all_listed.set()
    task = asyncio.create_task(rivals._ask_about_holders(server))
    try:
        yield rivals
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


RELOADER = "system:serviceaccount:tools:reloader"


@pytest.mark.parametrize("holder", ["reloader-7", "reloader-7_1b9d6bcd-bbfd-4b2d"])
async def test_a_pod_that_may_change_workloads_everywhere_holds_everything_wherever_it_is(clock, holder):
    async with asking(clock, Server({("tools", "reloader-7"): "reloader"}, [RELOADER])) as rivals:
        rivals.saw(lease(clock, holder, namespace="tools"))
        assert rivals.problem() is None  # nobody knows yet, and anybody can make a Lease
        await clock.advance(2)
        assert rivals.problem("shop") == (
            f"{holder} leads as Reloader (lease tools/stakater-reloader-lock; serviceaccount/reloader may update"
            " deployments in all namespaces), so nothing is written"
        )


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        ("nobody", "stakater-reloader-lock"),  # there is no such pod
        ("ci", "stakater-reloader-lock"),  # there is, and it may do nothing elsewhere
        ("reloader-7", "helloworld-controller-leader"),  # which acts where its Lease is
    ],
)
async def test_a_tenant_blocks_nothing_else_whatever_holder_it_writes(clock, holder, name):
    server = Server({("tools", "ci"): "default", ("tools", "reloader-7"): "reloader"}, [RELOADER])
    async with asking(clock, server) as rivals:
        with capture_logs() as logs:
            rivals.saw(lease(clock, holder, namespace="tools", name=name))
            await clock.advance(2)
        assert rivals.problem("shop") is None
        assert rivals.problem("tools") is not None
        (told,) = [
            entry
            for entry in logs
            if entry["event"] == "another controller leads in one namespace; nothing is written there"
        ]
        assert told["advice"] == f"if it acts in all namespaces, add tools/{name} to reload.rivals"


async def test_the_pod_must_be_in_the_namespace_of_the_lease(clock):
    async with asking(clock, Server({("tools", "reloader-7"): "reloader"}, [RELOADER])) as rivals:
        rivals.saw(lease(clock, "reloader-7", namespace="tenant"))
        await clock.advance(2)
        assert rivals.problem("shop") is None


@pytest.mark.parametrize(("holder", "everywhere"), [("reloader-7", True), ("pod-a", False)])
async def test_in_the_default_namespace_too_a_lease_holds_everything_only_for_a_holder_with_rights(
    clock, holder, everywhere
):
    mighty = "system:serviceaccount:default:reloader"
    async with asking(clock, Server({("default", "reloader-7"): "reloader"}, [mighty])) as rivals:
        rivals.saw(lease(clock, holder, namespace="default"))
        await clock.advance(2)
        assert (rivals.problem("shop") is not None) is everywhere
        assert rivals.problem("default") is not None


async def test_a_lease_that_vanishes_while_the_holder_of_another_is_asked_about_is_left_out(clock):
    class Vanishing(Server):
        watch: LeaseConflictWatch

        async def list(self, target, **options):
            self.watch.lost("b/stakater-reloader-lock")
            return await super().list(target, **options)

    server = Vanishing({("a", "reloader-7"): "reloader"}, ["system:serviceaccount:a:reloader"])
    async with asking(clock, server) as rivals:
        server.watch = rivals
        rivals.saw(lease(clock, "reloader-7", namespace="a"))
        rivals.saw(lease(clock, "reloader-7", namespace="b"))
        await clock.advance(2)
        assert rivals.problem("shop") is not None
        assert rivals.all_observed.is_set()  # the questions go on


async def test_a_holder_that_changes_all_the_time_is_asked_about_seldom(clock):
    server = Server()
    async with asking(clock, server) as rivals:
        for number in range(60):
            rivals.saw(lease(clock, f"pod-{number}", namespace="tenant"))
            await clock.advance(1)
        assert server.questions <= 60 / ASK_SECONDS + 1


async def test_rights_that_are_taken_away_are_noticed(clock):
    server = Server({("tools", "reloader-7"): "reloader"}, [RELOADER])
    async with asking(clock, server) as rivals:
        rivals.saw(lease(clock, "reloader-7", namespace="tools", seconds=3600))
        await clock.advance(2)
        assert rivals.problem() is not None
        server.mighty.clear()
        await clock.advance(FRESH_SECONDS)
        assert rivals.problem() is None


@pytest.mark.parametrize(
    ("error", "asked"), [(Forbidden("no", code=403), 1), (ConnectionFailed("gone"), 1 + 60 // int(ASK_SECONDS))]
)
async def test_without_an_answer_a_lease_holds_its_namespace_and_nothing_waits(clock, error, asked):
    server = Server(error=error)
    async with asking(clock, server) as rivals:
        rivals.saw(lease(clock, "reloader-7", namespace="tools", seconds=3600))
        await clock.advance(1)
        assert rivals.all_observed.is_set()
        await clock.advance(59)
        assert (rivals.problem(), rivals.problem("tools") is not None) == (None, True)
        assert abs(server.questions - asked) <= 1


# -------------------------------------------------------------------------------------------------------- in the shadow
class Beside:
    """A world in which Reloader acts and we only compare."""

    def __init__(self, clock):
        self.clock = clock
        self.registry = CollectorRegistry()
        self.shadow = Shadow(clock=clock, registry=self.registry)
        self.world = World(ReloadOptions(window=NO_WINDOW, budget=RestartBudget(restarts=0)), dialects=[Reloader()])
        self.world.put(configmap("app", mode="a"))
        self.world.put(workload("web", uses=[env_from("app")], annotations={"reloader.stakater.com/auto": "true"}))
        self.evaluate()

    def evaluate(self):
        look = self.world.evaluate("Deployment", "web")
        self.world.reconcilers["Deployment"].tracker.keep(look.workload.ref, look.plan.remembered_in_shadow())
        self.shadow.evaluated(look, written=False)

    def change(self, mode):
        self.world.put(configmap("app", mode=mode))
        self.evaluate()

    def they_restart(self, value):
        container = {"name": "main", "envFrom": [{"configMapRef": {"name": "app"}}]}
        container["env"] = [{"name": "STAKATER_APP_CONFIGMAP", "value": value}]
        self.world.edit("Deployment", "web", {"spec": {"template": {"spec": {"containers": [container]}}}})
        self.evaluate()

    def counts(self):
        return tuple(self.shadow.report().counts.values())


@pytest.fixture
def beside(clock):
    return Beside(clock)


async def test_a_restart_that_both_make_is_agreed_on_whichever_is_first(beside, clock):
    beside.change("b")
    await clock.advance(5)
    beside.they_restart("1")
    assert beside.counts() == (1, 0, 0)
    beside.they_restart("2")
    await clock.advance(5)
    beside.change("c")
    assert beside.counts() == (2, 0, 0)
    assert beside.registry.get_sample_value("steersman_reload_shadow_total", {"outcome": "agreed"}) == 2
    assert beside.world.patches == 0


async def test_a_restart_that_only_we_would_make_is_reported_with_its_sources(beside, clock):
    beside.change("b")
    await clock.advance(61)
    (difference,) = beside.shadow.report().differences
    assert (difference.outcome, difference.workload, difference.sources) == (
        "only ours",
        "deployment/web",
        "configmap/app#mode",
    )


async def test_a_restart_that_only_they_make_is_reported(beside, clock):
    beside.they_restart("1")
    await clock.advance(61)
    (difference,) = beside.shadow.report().differences
    assert difference.outcome == "only theirs"
    assert beside.registry.get_sample_value("steersman_reload_shadow_total", {"outcome": "only theirs"}) == 1
