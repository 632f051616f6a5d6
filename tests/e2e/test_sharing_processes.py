"""Three processes share the namespaces of a cluster: nothing is left undone, and nothing is done by two at once."""

from __future__ import annotations

import itertools
import signal
import sys
from collections import defaultdict

import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.patches import PatchType
from steersman.kube.api.types import ConfigMap, Lease, Namespace
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Every line says: from when to when (a clock that all processes of a machine share) this process worked on which
# state of which object. It never stops working, so that a hand-over always finds something to hand over.
OPERATOR = """
import asyncio, os, time
import steersman as sm

def note(what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(what + "\\n")

async def work(ctx, found):
    began = time.monotonic()
    try:
        await asyncio.sleep(0.05)
    finally:
        note(f"{os.environ['NAME']} {found.namespace} {(found.data or {}).get('n')} {began} {time.monotonic()}")
    return sm.requeue(after=0.05)

def controllers():
    return [sm.Controller(sm.ConfigMap, work, "shared").select(label_selector="suite=sharing")]
"""


class Group:
    """The processes, and what they wrote down."""

    def __init__(self, folder, kubeconfig, namespace) -> None:
        self.folder, self.kubeconfig, self.namespace = folder, kubeconfig, namespace
        (folder / "operator.py").write_text(OPERATOR)
        self.members: dict[str, Child] = {}

    def start(self, name: str) -> None:
        program = [sys.executable, "-m", "steersman", "run", self.folder / "operator.py", "--listen", "127.0.0.1:0"]
        options = ["--shard", "--lease", f"{self.namespace}/sharing", "--kubeconfig", self.kubeconfig]
        environment = {"NOTES": str(self.folder / f"{name}.notes"), "NAME": name, "PATH": ""}
        self.members[name] = Child([*program, *options], log=self.folder / f"{name}.log", environment=environment)

    def notes(self) -> list[tuple[str, str, str, float, float]]:
        lines = [line.split() for file in self.folder.glob("*.notes") for line in file.read_text().splitlines()]
        return [(name, namespace, n, float(began), float(ended)) for name, namespace, n, began, ended in lines]

    def sharers(self, n: str) -> dict[str, set[str]]:
        """Who worked on which namespaces in their state `n`."""
        found = defaultdict(set)
        for name, namespace, state, *_ in self.notes():
            if state == n:
                found[name].add(namespace)
        return found


@pytest.fixture
async def group(embedded, namespace, tmp_path):
    embedded.write_kubeconfig(tmp_path / "kubeconfig")
    made = Group(tmp_path, tmp_path / "kubeconfig", namespace)
    yield made
    for child in made.members.values():
        await child.stop(deadline=30)


async def test_members_that_come_and_go_leave_no_gap_and_never_overlap(group, embedded, namespace):
    teams = [f"{namespace}-{number}" for number in range(16)]
    async with Client.connect(load_config(group.kubeconfig)) as client:

        async def change(n: int) -> None:
            """A new state everywhere: somebody must come to see each of them."""
            patch = {"data": {"n": str(n)}}
            for team in teams:
                await client.patch(ConfigMap, "a", patch, type=PatchType.MERGE, namespace=team)

        async def seen(n: int, *by: str) -> None:
            """Every team is worked on in state `n`, and each of `by` does its part."""

            def all_of_it() -> bool:
                sharers = group.sharers(str(n))
                return set().union(*sharers.values()) == set(teams) and set(by) <= sharers.keys()

            await eventually(all_of_it, f"state {n} is seen everywhere, by {by}", timeout=90)

        for team in teams:
            await client.create(Namespace(metadata=ObjectMeta(name=team)))
            await client.create(
                ConfigMap(metadata=ObjectMeta(name="a", namespace=team, labels={"suite": "sharing"}), data={"n": "0"})
            )
        group.start("one")
        await seen(0, "one")
        group.start("two")
        group.start("three")
        await eventually(lambda: {name for name, *_ in group.notes()} == {"one", "two", "three"}, timeout=90)
        await change(1)
        await seen(1, "one", "two", "three")

        group.members["one"].signal(signal.SIGTERM)  # leaves in order
        assert await group.members.pop("one").wait() == 0
        await change(2)
        await seen(2, "two", "three")

        group.members["two"].kill()  # does not
        await group.members.pop("two").wait()
        await change(3)
        await seen(3, "three")

        group.members["three"].signal(signal.SIGTERM)
        assert await group.members.pop("three").wait() == 0
        leases = [lease.name for lease in (await client.list(Lease, namespace=namespace)).items]
        assert leases.count("sharing-shards") == 1
        assert len(leases) <= 2, "only the one that was killed left its lease behind"

    work = sorted(group.notes(), key=lambda note: (note[1], note[3]))
    assert {name for name, *_ in work} == {"one", "two", "three"}
    for (first, team, _, _, ended), (second, other, _, began, _) in itertools.pairwise(work):
        assert team != other or first == second or ended <= began, f"{first} and {second} worked on {team} at once"
