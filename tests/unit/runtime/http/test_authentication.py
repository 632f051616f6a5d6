"""Who calls a listener, and what it costs to ask."""

from __future__ import annotations

import asyncio

import pytest

from steersman.kube.api.errors import Unavailable
from steersman.kube.api.types.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from steersman.runtime.http import authentication
from steersman.runtime.http.authentication import AccessDenied, CallerRates, TokenAuthenticator, TooManyAttempts

ANN = UserInfo(username="ann", groups=["team"])
READ = ResourceAttributes(verb="get", resource="toolsets")


class Cluster:
    """Knows some tokens, and counts what it is asked."""

    def __init__(self, *tokens: str, audiences: tuple[str, ...] = ()) -> None:
        self.tokens, self.allowed, self.audiences = set(tokens), True, list(audiences)
        self.asked: list[object] = []
        self.open = asyncio.Event()
        self.open.set()
        self.down = False

    async def create(self, review):
        self.asked.append(review)
        await self.open.wait()
        if self.down:
            raise Unavailable("no answer")
        if isinstance(review, TokenReview):
            known = review.spec.token in self.tokens
            status = TokenReviewStatus(authenticated=known, user=ANN if known else None, audiences=self.audiences)
            return TokenReview(status=status)
        answer = SubjectAccessReview(spec=review.spec)
        answer.status.allowed = self.allowed
        return answer


async def test_an_answer_counts_for_a_while_a_good_one_for_longer(clock):
    cluster = Cluster("good")
    reviews = TokenAuthenticator(cluster, clock=clock)
    for _ in range(3):
        assert await reviews.user_of("good", peer="a") == ANN
        assert await reviews.user_of("bad", peer="a") is None
    assert len(cluster.asked) == 2
    await clock.advance(authentication.BAD_SECONDS + 1)
    cluster.tokens = {"bad"}
    assert await reviews.user_of("bad", peer="a") == ANN
    assert await reviews.user_of("good", peer="a") == ANN
    await clock.advance(authentication.GOOD_SECONDS + 1)
    assert await reviews.user_of("good", peer="a") is None
    assert await reviews.user_of("good", peer="a") is None
    assert len(cluster.asked) == 4


async def test_requests_that_show_a_token_at_the_same_moment_ask_once_and_one_who_leaves_spoils_nothing():
    cluster = Cluster("good")
    cluster.open.clear()
    reviews = TokenAuthenticator(cluster)
    tasks = [asyncio.create_task(reviews.user_of("good", peer="a")) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    cluster.open.set()
    answers = await asyncio.gather(*tasks[1:])
    assert answers == [ANN] * 49
    assert len(cluster.asked) == 1


async def test_a_flood_of_unknown_tokens_costs_the_cluster_little_and_keeps_out_no_known_caller(clock):
    cluster = Cluster("good", "other")
    reviews = TokenAuthenticator(cluster, clock=clock)
    assert await reviews.user_of("good", peer="proxy") == ANN
    refused = 0
    for number in range(5000):
        try:
            assert await reviews.user_of(f"guess-{number}", peer="proxy") is None
        except TooManyAttempts:
            refused += 1
    assert len(cluster.asked) <= 1 + authentication.ATTEMPTS_AT_ONCE
    assert refused >= 5000 - authentication.ATTEMPTS_AT_ONCE
    assert await reviews.user_of("good", peer="proxy") == ANN  # remembered
    assert await reviews.user_of("other", peer="elsewhere") == ANN  # of another peer
    await clock.advance(authentication.GOOD_SECONDS)
    for number in range(authentication.ATTEMPTS_AT_ONCE):
        await reviews.user_of(f"more-{number}", peer="proxy")
    with pytest.raises(TooManyAttempts):
        await reviews.user_of("one too many", peer="proxy")
    assert await reviews.user_of("good", peer="proxy") == ANN  # no longer fresh, and asked again all the same


async def test_what_is_remembered_is_bounded_and_bad_answers_drive_out_no_good_one(clock, monkeypatch):
    monkeypatch.setattr(authentication, "REMEMBERED", 10)
    cluster = Cluster("good")
    reviews = TokenAuthenticator(cluster, clock=clock)
    await reviews.user_of("good", peer="a")
    for number in range(100):
        await reviews.user_of(f"guess-{number}", peer=f"peer-{number}")
    cluster.asked.clear()
    assert await reviews.user_of("good", peer="a") == ANN
    assert cluster.asked == []
    assert await reviews.user_of("guess-0", peer="a") is None
    assert len(cluster.asked) == 1  # forgotten


async def test_no_answer_of_the_cluster_is_remembered_as_none():
    cluster = Cluster("good")
    reviews = TokenAuthenticator(cluster)
    cluster.down = True
    with pytest.raises(Unavailable):
        await reviews.user_of("good", peer="a")
    cluster.down = False
    assert await reviews.user_of("good", peer="a") == ANN


@pytest.mark.parametrize(("audiences", "known"), [(("us",), True), (("others",), False), ((), False)])
async def test_a_token_that_is_meant_for_others_is_not_valid(audiences, known):
    reviews = TokenAuthenticator(Cluster("good", audiences=audiences), audiences=["us"])
    assert (await reviews.user_of("good", peer="a") is not None) == known


async def test_rights_are_remembered_for_each_user_and_question(clock):
    cluster = Cluster()
    reviews = TokenAuthenticator(cluster, clock=clock)
    for _ in range(3):
        assert await reviews.may(ANN, resource=READ)
    assert len(cluster.asked) == 1
    cluster.allowed = False
    for _ in range(3):
        assert not await reviews.may(UserInfo(username="bob"), resource=READ)
        assert not await reviews.may(ANN, resource=ResourceAttributes(verb="create", resource="toolsets"))
    assert len(cluster.asked) == 3
    await clock.advance(authentication.GOOD_SECONDS + 1)
    assert not await reviews.may(ANN, resource=READ)


async def test_tokens_are_not_kept():
    reviews = TokenAuthenticator(Cluster("a-very-good-token"))
    await reviews.user_of("a-very-good-token", peer="a")
    await reviews.user_of("a-very-bad-token", peer="a")
    assert "a-very" not in repr([vars(reviews._users), vars(reviews._rights)])


async def test_what_one_caller_uses_up_no_other_misses(clock):
    rates = CallerRates(per_second=2, burst=3, clock=clock)
    assert [rates.take("ann") for _ in range(5)] == [True, True, True, False, False]
    assert rates.take("bob")
    await clock.advance(1)
    assert [rates.take("ann") for _ in range(3)] == [True, True, False]


async def test_callers_who_were_silent_for_longest_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(authentication, "REMEMBERED", 2)
    rates = CallerRates(per_second=1, burst=1, clock=clock)
    for caller in ("ann", "bob", "cid"):
        assert rates.take(caller)
    assert not rates.take("cid")
    assert rates.take("ann")


async def test_a_caller_who_is_not_let_in_learns_why_with_the_status_to_answer(clock):
    cluster = Cluster("good")
    reviews = TokenAuthenticator(cluster, clock=clock)
    apps = ResourceAttributes(verb="get", group="example.org", resource="apps", namespace="shop")
    user = await reviews.authenticate("good", peer="a")
    await reviews.authorize(user, resource=apps)

    cluster.allowed = False
    await clock.advance(authentication.GOOD_SECONDS + 1)
    with pytest.raises(AccessDenied, match=r"ann may not get apps\.example\.org in namespace shop") as denied:
        await reviews.authorize(user, resource=apps)
    assert (denied.value.status, denied.value.headers) == (403, {})
    for token, status in (("", 401), ("bad", 401)):
        with pytest.raises(AccessDenied) as denied:
            await reviews.authenticate(token, peer="a")
        assert (denied.value.status, denied.value.headers) == (status, {"WWW-Authenticate": "Bearer"})

    cluster.down = True
    with pytest.raises(AccessDenied, match="could not be reviewed") as denied:
        await reviews.authenticate("other", peer="a")
    assert (denied.value.status, denied.value.headers) == (503, {"Retry-After": "1"})
    cluster.down = False
    statuses = set()
    for number in range(authentication.ATTEMPTS_AT_ONCE + 1):
        with pytest.raises(AccessDenied) as denied:
            await reviews.authenticate(f"guess {number}", peer="a")
        statuses.add(denied.value.status)
    assert statuses == {401, 429}
