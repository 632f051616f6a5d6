"""`running_least_privilege`: controllers at work with the rights that follow from them, and no others."""

from __future__ import annotations

import pytest

import steersman as sm
from steersman.testing import eventually, running_least_privilege


@pytest.fixture
def server(cluster):
    return cluster


@pytest.fixture
def client(steersman_client):
    return steersman_client


async def copies(ctx: sm.Context, config: sm.ConfigMap) -> None:
    if config.name == "menu":
        metadata = sm.ObjectMeta(name="copy", namespace=config.namespace)
        await ctx.apply(sm.Secret(metadata=metadata), owner=None)


def any_kind():
    """Its kind is known only when it runs."""
    return getattr(sm, "secret".title())


async def reads_anything(ctx: sm.Context, config: sm.ConfigMap) -> None:
    if config.name == "menu":
        try:
            await ctx.client.get(any_kind(), "missing", namespace=config.namespace)
        except sm.NotFound:
            await ctx.delete(config)


async def create_menu(client, namespace):
    await client.create(sm.ConfigMap(metadata=sm.ObjectMeta(name="menu", namespace=namespace)))


async def is_gone(client, namespace):
    return "menu" not in {config.name for config in (await client.list(sm.ConfigMap, namespace=namespace)).items}


async def test_what_follows_from_the_controllers_is_enough(server, client, namespace):
    async with running_least_privilege(server, sm.Controller(sm.ConfigMap, copies), namespace=namespace):
        await create_menu(client, namespace)
        await eventually(lambda: client.get(sm.Secret, "copy", namespace=namespace))


async def test_a_missing_right_fails_the_test_at_once_with_the_rule_to_add(server, client, namespace):
    with pytest.raises(AssertionError) as failed:  # noqa: PT012  the whole block fails
        async with running_least_privilege(server, sm.Controller(sm.ConfigMap, reads_anything), namespace=namespace):
            await create_menu(client, namespace)
            await eventually(lambda: is_gone(client, namespace))
    first, second = str(failed.value).splitlines()
    assert first == 'the controllers need a right that is not theirs: .needs(rule("secrets", "get"))'
    assert "cannot tell what ctx.client.get(any_kind(), 'missing', namespace=config.namespace) needs" in second


async def test_a_declared_right_is_granted(server, client, namespace):
    controller = sm.Controller(sm.ConfigMap, reads_anything).needs(sm.rule("secrets", "get"))
    async with running_least_privilege(server, controller, namespace=namespace):
        await create_menu(client, namespace)
        await eventually(lambda: is_gone(client, namespace))


async def test_kinds_without_a_namespace_are_watched_and_get_events(server, client, namespace):
    async def greet(ctx, found: sm.Namespace):
        ctx.event(found, "Greeted", f"hello {found.name}")

    controller = sm.Controller(sm.Namespace, greet).select(field_selector=f"metadata.name={namespace}")
    async with running_least_privilege(server, controller, namespace=namespace):

        async def greeted():
            events = (await client.list(sm.Event, namespace="default")).items
            return any(event.message == f"hello {namespace}" for event in events)

        await eventually(greeted)


async def test_a_test_that_fails_by_itself_fails_as_it_does(server, namespace):
    with pytest.raises(ZeroDivisionError):
        async with running_least_privilege(server, sm.Controller(sm.ConfigMap, copies), namespace=namespace):
            _ = 1 / 0
