from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from steersman.kube.api.types.authorization import SubjectAccessReview, TokenReview, TokenReviewStatus, UserInfo
from steersman.runtime.http.authentication import AccessDenied
from steersman.testing.clock import VirtualClock
from steersman.web.access import AccessMode, PageAccess
from steersman.web.site import _inside


class Transport:
    def __init__(self, peer: str):
        self._peer = peer

    def get_extra_info(self, name, default=None):
        return (self._peer, 1) if name == "peername" else default


def request(peer="127.0.0.1", host="localhost:8080", **headers):
    return make_mocked_request("GET", "/", {"Host": host, **headers}, transport=Transport(peer))


class Cluster:
    """Knows one token, and lets its owner in or not."""

    def __init__(self, *, allowed: bool = True):
        self.allowed = allowed
        self.asked = []

    async def create(self, review):
        self.asked.append(review)
        if isinstance(review, TokenReview):
            known = review.spec.token == "good"
            user = UserInfo(username="ann", groups=["team"]) if known else None
            return TokenReview(status=TokenReviewStatus(authenticated=known, user=user))
        answer = SubjectAccessReview(spec=review.spec)
        answer.status.allowed = self.allowed
        return answer


@pytest.mark.parametrize(
    ("peer", "host", "let_in"),
    [
        ("127.0.0.1", "localhost:8080", True),
        ("::1", "[::1]:8080", True),
        ("::ffff:127.0.0.1", "127.0.0.1:8080", True),
        ("10.0.0.7", "localhost:8080", False),
        ("127.0.0.1", "evil.example:8080", False),
        ("127.0.0.1", "", False),
    ],
)
async def test_a_local_page_answers_to_local_callers_under_local_names(peer, host, let_in):
    access = PageAccess(AccessMode.LOCAL)
    if let_in:
        await access.check(request(peer, host))
    else:
        with pytest.raises(AccessDenied) as denied:
            await access.check(request(peer, host))
        assert denied.value.status == 403


async def test_an_open_page_answers_to_everybody():
    await PageAccess(AccessMode.OPEN).check(request("10.0.0.7", "page.example"))


async def test_a_token_is_reviewed_and_its_owner_must_have_the_right():
    cluster = Cluster()
    await PageAccess(AccessMode.TOKEN, cluster).check(request(Authorization="Bearer good"))
    review = cluster.asked[1].spec
    assert (review.user, review.groups) == ("ann", ["team"])
    assert (review.non_resource_attributes.path, review.non_resource_attributes.verb) == ("/steersman/page", "get")


@pytest.mark.parametrize(
    ("headers", "allowed", "status"),
    [
        ({}, True, 401),
        ({"Authorization": "Bearer bad"}, True, 401),
        ({"Authorization": "Basic good"}, True, 401),
        ({"Authorization": "Bearer good"}, False, 403),
        ({"Cookie": "steersman_token=bad"}, True, 401),
    ],
)
async def test_without_a_known_token_and_the_right_no_client_is_admitted(headers, allowed, status):
    with pytest.raises(AccessDenied) as denied:
        await PageAccess(AccessMode.TOKEN, Cluster(allowed=allowed)).check(request(**headers))
    assert denied.value.status == status


async def test_an_answer_about_a_token_is_remembered_for_a_minute():
    cluster, clock = Cluster(), VirtualClock()
    access = PageAccess(AccessMode.TOKEN, cluster, clock=clock)
    for _ in range(3):
        await access.check(request(Cookie="steersman_token=good"))
    assert len(cluster.asked) == 2
    await clock.advance(61)
    cluster.allowed = False
    with pytest.raises(AccessDenied):
        await access.check(request(Cookie="steersman_token=good"))


async def test_a_flood_of_wrong_tokens_asks_the_cluster_little_and_keeps_out_no_known_caller():
    cluster, clock = Cluster(), VirtualClock()
    access = PageAccess(AccessMode.TOKEN, cluster, clock=clock)
    await access.check(request(Authorization="Bearer good"))
    statuses = set()
    for number in range(500):
        with pytest.raises(AccessDenied) as denied:
            await access.check(request(Authorization=f"Bearer wrong-{number}"))
        statuses.add(denied.value.status)
    assert statuses == {401, 429}
    assert len(cluster.asked) < 50
    await access.check(request(Authorization="Bearer good"))


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\nb"]
)
def test_no_redirect_leaves_the_site_after_signing_in(target):
    assert _inside(target) == "/"
    assert _inside("/history?text=a") == "/history?text=a"
