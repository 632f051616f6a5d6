"""The page below a path of somebody else's server, as an ingress or `kubectl proxy` serves it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

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
