"""The page below a path of somebody else's server, as an ingress or `kubectl proxy` serves it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

import pytest
from playwright.async_api import expect
from prometheus_client import CollectorRegistry

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_micro_time
from steersman.kube.api.types import Lease, LeaseSpec
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock
from steersman.runtime.manager.manager import Manager
from steersman.testing import eventually
from steersman.web.site import attach

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

LINKS = "[...document.querySelectorAll('a[href], form[action]')].map(one => one.href || one.action)"


async def test_every_link_of_every_view_stays_below_the_path(page, shop, below):
    root = await below(shop.url)
    todo = {view_of(root, root): root}
    seen = set()
    while todo:
        view, address = todo.popitem()
        answer = await page.goto(address)
        assert answer.status == 200, address
        seen.add(view)
        links = await page.evaluate(LINKS)
        assert [link for link in links if not link.startswith(root)] == []
        todo |= {view_of(link, root): link for link in links if view_of(link, root) not in seen}
    assert seen >= {"", "map", "history", "history/…", "workloads/…", "operators", "health", "api/…"}


def view_of(link, root):
    """The view that a link leads to, so that one of each is visited."""
    first, *rest = link.removeprefix(root).partition("?")[0].partition("#")[0].split("/")
    return f"{first}/…" if rest else first


async def test_changes_come_and_the_map_is_drawn_below_the_path(page, shop, below):
    root = await below(shop.url)
    await page.goto(root)
    await expect(page.locator("#live")).to_have_text("Live")
    await page.goto(f"{root}map")
    canvas = page.locator("#picture canvas")
    await expect(canvas).to_have_attribute("data-nodes", re.compile(r"[12]\d"))
    await canvas.focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowRight")
    name = await page.locator(".panel a").inner_text()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text(name)
    assert page.url.startswith(f"{root}workloads/")


async def test_a_standby_behind_the_pod_proxy_links_to_the_page_of_the_leader(page, shop, below):
    now, hour = format_micro_time(datetime.now(UTC)), 3600
    held = LeaseSpec(holder_identity="steersman-a_0f3a", lease_duration_seconds=hour, acquire_time=now, renew_time=now)
    await shop.client.create(Lease(metadata=ObjectMeta(name="standby", namespace="default"), spec=held))
    elector = LeaderElector(LeaseLock(shop.client, "standby", "default"), identity="steersman-b_77c1")
    manager = Manager(shop.client, [], elector=elector, listen="127.0.0.1:0", registry=CollectorRegistry())
    attach(manager)
    running = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: elector.leader, "the elector has read the Lease", timeout=90)
        url = f"http://127.0.0.1:{manager.health.port}"
        root = await below(url, "/api/v1/namespaces/ops/pods/http:steersman-b:8080/proxy")
        await page.goto(root)
        await expect(page.locator("#process")).to_have_text("Standby")
        link = page.locator("#leader")
        await expect(link).to_be_visible()
        there = root.replace("steersman-b", "steersman-a")
        assert await link.evaluate("link => link.href") == there
        await page.goto(url)  # without the proxy there is no way from here to another pod: a command instead
        await expect(page.locator(".standby")).to_contain_text("kubectl port-forward -n default pod/steersman-a 8080")
        await expect(page.locator("#leader")).to_be_hidden()
    finally:
        manager.stop()
        await running
