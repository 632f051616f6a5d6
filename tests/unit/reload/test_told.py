"""The account of what has been told: whoever dies when, each restart is told at least once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from steersman.operators.reload.state import Past, next_history
from steersman.operators.reload.told import Account, changes_in
from steersman.operators.reload.types import WorkloadId

WORKLOADS = [WorkloadId("Deployment", "shop", name) for name in ("api", "db", "web")]


class Cluster:
    """What outlives every process: the pasts of workloads, their revisions, and the mark."""

    def __init__(self):
        self.pasts = dict.fromkeys(WORKLOADS, ())
        self.revisions = dict.fromkeys(WORKLOADS, 1)
        self.mark = None
        self.told = set()

    def everything(self):
        return {(who, one.at) for who, past in self.pasts.items() for one in past}


class Leader:
    """A process, with a clock of its own."""

    def __init__(self, cluster, now):
        self.cluster, self.now = cluster, now
        self.account = Account()
        since = self.account.resume(cluster.mark, now)
        if cluster.mark is None:
            cluster.mark = since  # nothing is restarted before
        self.open = []  # messages: who, when

    def restart(self, who, step):
        """Begin a restart, and get as far as `step`: sent, written, answered."""
        cluster, revision = self.cluster, self.cluster.revisions[who]
        self.look(who)
        past = (*cluster.pasts[who], Past(self.now, "configmap/app"))
        at = self.account.begin(who, past, str(revision))
        if step >= 1:
            cluster.pasts[who] = (*cluster.pasts[who], replace(past[-1], at=at))
            cluster.revisions[who] += 1
        if step >= 2:
            self.account.made(who, at)
            self.open.append((who, at))

    def look(self, who):
        for one in self.account.saw(who, self.cluster.pasts[who], str(self.cluster.revisions[who])):
            self.open.append((who, one.at))

    def sweep(self):
        for who in WORKLOADS:
            self.look(who)
        self.account.complete = True

    def deliver(self):
        """The oldest message arrives."""
        if self.open:
            who, at = self.open.pop(0)
            self.account.told(at, [who])
            self.cluster.told.add((who, at))

    def write(self, *, lost):
        """The mark is written; `lost`: nobody hears that it was."""
        mark = self.account.next_mark([at for _, at in self.open], self.now)
        if mark > self.account.since:
            self.cluster.mark = mark
            if not lost:
                self.account.marked(mark)


STEPS = st.one_of(
    st.tuples(st.just("restart"), st.sampled_from(WORKLOADS), st.integers(0, 2)),
    st.tuples(st.sampled_from(["look"]), st.sampled_from(WORKLOADS), st.none()),
    st.tuples(st.sampled_from(["sweep", "deliver", "write", "lose", "wait"]), st.none(), st.none()),
    st.tuples(st.just("die"), st.none(), st.integers(-20, 20)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whoever_dies_when_each_restart_is_told(steps):
    cluster = Cluster()
    leader = Leader(cluster, 1000)
    for what, who, number in steps:
        if what == "die":  # the clock of the next one may be off
            leader = Leader(cluster, leader.now + number)
        elif what == "restart":
            leader.restart(who, number)
        elif what == "look":
            leader.look(who)
        elif what == "wait":
            leader.now += 1
        elif what in ("write", "lose"):
            leader.write(lost=what == "lose")
        else:
            getattr(leader, what)()
    last = Leader(cluster, leader.now)
    last.sweep()
    while last.open:
        last.deliver()
    assert cluster.everything() <= cluster.told
    last.write(lost=False)
    assert len(last.account) == 0
    after = Leader(cluster, last.now)
    after.sweep()
    assert after.open == []  # and then no more


def test_a_record_that_was_cut_names_no_key_that_there_is_not():
    keys = [f"key-{number}" for number in range(40)]
    told = f"configmap/app#{','.join(keys)} secret/db#pw"
    (past,) = next_history((), 1, told, ("", None))
    (change,) = changes_in(past.told, "shop")
    assert set(change.keys) < set(keys)
    assert len(past.told) < len(told)
