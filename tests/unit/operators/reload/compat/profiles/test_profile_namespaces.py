"""Annotations of namespaces in profiles: read where the rights allow it, and said where not."""

from __future__ import annotations

import pytest

from steersman.kube.api.errors import Forbidden
from steersman.operators.reload.compat.profiles import read_profile
from steersman.operators.reload.compat.profiles.process import UNREAD, with_namespaces


class Server:
    """Answers what the caller may do."""

    def __init__(self, *verbs):
        self.verbs = verbs
        self.asked = []

    async def create(self, review):
        attributes = review.spec.resource_attributes
        self.asked.append((attributes.verb, attributes.resource))
        if not self.verbs:
            raise Forbidden("no questions", code=403)
        review.status.allowed = attributes.verb in self.verbs
        return review


@pytest.mark.parametrize("name", ["reloader", "wave", "xing"])
async def test_a_profile_with_the_right_to_them_reads_namespaces(name):
    server = Server("list", "watch")
    made = await with_namespaces(read_profile(name, (), {}), server)
    assert made.config.options().watch_namespaces
    assert not any(UNREAD in note for note in made.notes)
    assert server.asked == [("list", "namespaces"), ("watch", "namespaces")]


@pytest.mark.parametrize("name", ["reloader", "wave", "xing"])
@pytest.mark.parametrize("verbs", [(), ("list",), ("get",)], ids=str)
async def test_a_profile_without_it_asks_for_nothing_and_says_so(name, verbs):
    made = await with_namespaces(read_profile(name, (), {}), Server(*verbs))
    assert not made.config.options().watch_namespaces
    assert UNREAD in made.notes[-1]


async def test_a_profile_of_some_namespaces_says_that_their_annotations_are_not_read():
    server = Server("list", "watch")
    made = await with_namespaces(read_profile("wave", ("--namespaces=shop",), {}), server)
    assert UNREAD in made.notes[-1]
    assert not server.asked
