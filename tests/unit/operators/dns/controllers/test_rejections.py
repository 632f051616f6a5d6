"""An object that the API server rejected becomes a condition of its owner."""

from __future__ import annotations

import pytest

from steersman.kube.api.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Unavailable
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.rbac_hint import MissingRule
from steersman.operators.dns.api.config import LABEL_CLUSTER, LABEL_MANAGED_BY
from steersman.operators.dns.api.servers import Bind9Cluster, ClusterSpec
from steersman.operators.dns.controllers.cluster import _apply
from steersman.operators.dns.controllers.context import LONGEST_MESSAGE, rejection_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Invalid("no"), "ConfigurationInvalid"),
        (BadRequest("no"), "ConfigurationInvalid"),
        (Forbidden("exceeded quota"), "Forbidden"),
        (Conflict("no"), None),
        (Unavailable("no"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_an_answer_about_the_object_itself_is_a_condition(error, reason):
    found = rejection_of(error)
    assert (found[0] if found else None) == reason


def test_a_missing_right_is_left_to_the_runtime_which_says_what_role_would_help():
    error = Forbidden("cannot patch")
    error.rule = MissingRule(api_groups=[""], resources=["services"], verbs=["patch"])
    assert rejection_of(error) is None


def test_a_policy_may_say_anything_and_a_condition_not():
    assert len(rejection_of(Invalid("x" * 100_000))[1]) < LONGEST_MESSAGE + 100


class Refusing:
    """A context of an API server that has some namespaces."""

    def __init__(self, **answers):
        self.answers, self.made = answers, []

    async def apply(self, child, *, adopt):
        if child.namespace in self.answers:
            raise self.answers[child.namespace]
        self.made.append(child.namespace)


def child(namespace):
    labels = {LABEL_MANAGED_BY: "Bind9Cluster", LABEL_CLUSTER: "c"}
    return Bind9Cluster(metadata=ObjectMeta(name="c", namespace=namespace, labels=labels), spec=ClusterSpec())


async def test_a_child_that_is_refused_keeps_no_other_from_being_made():
    ctx = Refusing(nowhere=NotFound("namespaces nowhere not found"))
    reason, text = await _apply(ctx, [child("nowhere"), child("here")])
    assert (reason, ctx.made) == ("NamespaceMissing", ["here"])
    assert "nowhere" in text


async def test_what_may_pass_is_an_error_and_no_condition():
    with pytest.raises(Unavailable):
        await _apply(Refusing(here=Unavailable("later")), [child("here")])
