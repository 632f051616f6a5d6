"""Each view in a real browser, with what a real manager and the real operator know."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import expect

from steersman.testing import FaultProxy, eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

LONG = 90_000  # milliseconds that a fact may take on a busy machine
VIEWS = ("/", "/map", "/history", "/workloads/deployment/shop/search", "/operators", "/health", "/workloads/a/b/c")
expect.set_options(timeout=LONG)


async def go(page, shop, path):
    answer = await page.goto(shop.url + path)
    await expect(page.locator("#live")).to_have_text("Live")
    return answer


async def test_now_shows_what_waits_what_is_held_and_which_circuits_are_open(page, shop):
    await go(page, shop, "/")
    await expect(page.locator("h1")).to_have_text("2 problems need attention.")
    pending = page.locator("section.card", has_text="Pending")
    await expect(pending.locator(".workload .name")).to_have_text("search")
    await expect(pending.locator(".key")).to_have_text("shards")
    await expect(pending.locator(".countdown")).to_have_text(re.compile(r"in 11 h \d+ min"))
    circuits = page.locator("section.problem", has_text="Circuit open")
    await expect(circuits.locator(".workload .name")).to_have_text(["weekly-report", "cart", "checkout"])  # one cause
    await expect(circuits.locator("code.command")).to_have_text("steersman why cronjob/weekly-report -n shop")
    await expect(circuits).to_contain_text("budget used up (2 restarts in 24h)")
    await expect(page.locator("section.card", has_text="Held back")).to_contain_text(
        "steersman.dev/freeze on the workload"
    )


async def test_now_answers_for_every_operator_and_leads_to_the_next_step(page, shop):
    await go(page, shop, "/")
    operators = page.locator("section.operators .entry")
    await expect(operators).to_have_count(2)
    await expect(operators.filter(has_text="lamps")).to_contain_text("1 of 2 lamps ready, 1 failing")
    await expect(operators.filter(has_text="reload")).to_contain_text("circuit open")
    lamp = page.locator("section.problem", has_text="Failing")
    await expect(lamp.locator("code.command")).to_have_text("kubectl describe lamp '<b>'")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await lamp.get_by_role("button", name="Copy").click()
    await expect(lamp.get_by_role("button")).to_have_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == "kubectl describe lamp '<b>'"
    await lamp.get_by_role("link", name="Runbook").click()
    await expect(page.locator("h1")).to_have_text("SteersmanReconcileStuck")
    await expect(page.locator("article li").first).to_be_visible()


async def test_a_state_has_one_name_on_now_map_operators_and_status(page, shop):
    await go(page, shop, "/")
    problem = page.locator("section.problem .entry", has_text="cart")
    await expect(problem.locator(".state")).to_contain_text("Circuit open")
    await go(page, shop, "/map?text=cart")
    await expect(page.locator("#list .entry .state.bad")).to_contain_text("Circuit open")
    await expect(page.locator("#picture .key-signs")).to_contain_text("Circuit open")
    await go(page, shop, "/operators")
    row = page.locator("tbody tr", has_text="deployment/shop/cart").first
    await expect(row.locator(".state.bad")).to_contain_text("Circuit open")
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "steersman", "status", "--url", shop.url), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await asked.communicate()
    assert "Circuit open: cronjob/shop/weekly-report, deployment/shop/cart, deployment/shop/check" in printed.decode()
    assert asked.returncode == 3


async def test_a_change_shows_without_a_reload(page, shop):
    await go(page, shop, "/workloads/daemonset/shop/log-agent")
    await expect(page.locator("main")).to_contain_text("Never restarted")
    await page.evaluate("window.unloaded = 'not yet'")
    await shop.configure("logging", level="info", format="text")
    await expect(page.locator(".timeline")).to_contain_text("format")
    await expect(page.locator(".timeline")).to_contain_text("by kubectl-edit")
    assert await page.evaluate("window.unloaded") == "not yet"


async def test_history_is_found_by_text_and_has_permalinks(page, shop):
    await go(page, shop, "/history")
    await page.get_by_label("Search").fill("banner")
    await expect(page.locator(".timeline .entry")).to_have_count(1)
    await expect(page.locator(".timeline .name")).to_have_text("frontend")
    assert page.url.endswith("/history?text=banner")
    await page.locator("a.when").click()
    await expect(page.locator("h1")).to_have_text("Restart of frontend")
    await expect(page.locator(".facts")).to_contain_text("banner")
    again = await page.context.new_page()
    await again.goto(page.url)
    await expect(again.locator("h1")).to_have_text("Restart of frontend")


async def test_a_workload_says_which_sources_and_rules_restart_it(page, shop):
    await go(page, shop, "/workloads/deployment/shop/search")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.filter(has_text="search-index")).to_contain_text("Changed")
    await expect(rows.filter(has_text="configmap/logging")).to_contain_text("level")
    await go(page, shop, "/workloads/deployment/shop/legacy-erp")
    await expect(page.locator("main")).to_contain_text("steersman.dev/reload: off on the workload")


async def test_operators_show_their_tables_with_states_in_words(page, shop):
    await go(page, shop, "/operators")
    await expect(page.locator("tbody tr", has_text="kitchen")).to_contain_text("Ready")
    await expect(page.locator("tbody tr", has_text="broken")).to_contain_text("Failing")
    await expect(page.locator("h3", has_text="Switches")).to_be_visible()


async def test_long_addresses_do_not_push_the_state_of_a_row_out_of_sight(page, shop):
    await go(page, shop, "/operators")
    table = page.locator(".table", has_text="Sockets").locator(".scroll")
    assert await table.evaluate("box => box.scrollWidth <= box.clientWidth")
    await expect(table.locator("td", has_text="Waiting")).to_be_visible()


async def test_health_shows_watches_queues_and_charts(page, shop):
    await go(page, shop, "/health")
    await expect(page.locator("tr", has_text="reload-deployments")).to_be_visible()
    await expect(page.locator("tr", has_text="deployments.apps").first).to_contain_text("Ready")
    assert await page.locator("figure.chart").count() == 5
    line = page.locator("figure.chart .line").first
    await expect(line).to_have_attribute("d", re.compile("L"))  # two samples at least: it goes on by itself


async def test_without_javascript_every_view_reads(browser, shop):
    async with await browser.new_context(java_script_enabled=False) as context:
        page = await context.new_page()
        for path, told in (
            ("/", "Circuit open"),
            ("/map", "log-agent"),
            ("/history?text=banner", "frontend"),
            ("/workloads/deployment/shop/search", "configmap/search-index"),
            ("/operators", "kitchen"),
            ("/health", "reload-deployments"),
        ):
            await page.goto(shop.url + path)
            assert told in await page.locator("main").inner_text()


async def test_names_annotations_and_errors_are_text_and_never_markup(page, shop):
    evil = "<img src=x onerror=alert(1)>"
    await shop.annotate("recommendations", reload=f'{evil}"><script>alert(3)</script>')
    await go(page, shop, "/workloads/deployment/shop/recommendations")
    await expect(page.locator("main")).to_contain_text(evil)
    await go(page, shop, "/operators")
    await expect(page.locator("main")).to_contain_text(evil)
    await expect(page.locator("main")).to_contain_text("<script>alert(2)</script>")
    await page.goto(f"{shop.url}/history?text=%3Cscript%3Ealert(4)%3C/script%3E")
    assert await page.get_by_label("Search").input_value() == "<script>alert(4)</script>"
    assert await page.locator("main img, main script").count() == 0
    await shop.annotate("recommendations", reload="auto")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_view_is_accessible_in_light_and_dark(context, page, shop, scheme):
    await page.emulate_media(color_scheme=scheme)
    wrong = []
    for path in VIEWS:
        await page.goto(shop.url + path)
        found = await Axe().run(page)
        wrong += [(path, violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]]
    assert wrong == []


async def test_on_a_phone_nothing_is_wider_than_the_screen(page, shop):
    await page.set_viewport_size({"width": 360, "height": 740})
    for path in VIEWS:
        await page.goto(shop.url + path)
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, path
    await go(page, shop, "/")
    await page.get_by_role("link", name="History", exact=True).click()
    await expect(page.locator("h1")).to_have_text("History")


async def test_everything_is_reached_by_keyboard(page, shop):
    await go(page, shop, "/")
    await page.keyboard.press("Tab")
    assert await focused(page) == "Skip to content"
    names = []
    for _ in range(24):
        await page.keyboard.press("Tab")
        names.append(await focused(page))
    assert names[1:6] == ["Now", "Map", "History", "Operators", "Health"]
    assert any("cart" in name for name in names)
    await go(page, shop, "/history")
    await page.keyboard.press("/")
    await page.keyboard.type("banner")
    await expect(page.locator(".timeline .entry")).to_have_count(1)


async def focused(page):
    return await page.evaluate("document.activeElement.textContent.trim()")


async def test_typed_text_survives_a_change(page, shop):
    await go(page, shop, "/history")
    await page.get_by_label("Search").fill("format")
    await shop.configure("logging", level="info", format="columns")
    await expect(page.locator(".timeline .entry")).not_to_have_count(0)
    assert await page.get_by_label("Search").input_value() == "format"


async def test_a_theme_is_chosen_and_stays(page, shop):
    await go(page, shop, "/")
    await page.locator("#theme").click()
    await page.locator("#theme").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_lost_connection_shows_and_heals(page, shop):
    async with FaultProxy("127.0.0.1", shop.manager.health.port) as proxy:
        await page.goto(f"http://{proxy.address}/")
        await expect(page.locator("#live")).to_have_text("Live")
        proxy.refuse()
        await proxy.reset()
        await expect(page.locator("#live")).to_have_text("Connection lost")
        proxy.accept()
        await expect(page.locator("#live")).to_have_text("Live")


async def test_the_map_shows_and_follows_what_is_chosen(page, shop):
    await go(page, shop, "/map")
    canvas = page.locator("#picture canvas")
    await expect(canvas).to_have_attribute("data-nodes", re.compile(r"[12]\d"))
    await canvas.focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".panel")).to_contain_text("used by")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".panel")).to_contain_text("uses")
    name = await page.locator(".panel a").inner_text()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text(name)


async def test_a_map_that_cannot_be_had_is_not_an_error_and_comes_with_the_next_change(page, shop):
    await page.route("**/api/v1/map", lambda route: route.abort())
    async with page.expect_event("requestfailed"):
        await go(page, shop, "/map")
    await page.unroute("**/api/v1/map")
    await page.evaluate("document.dispatchEvent(new Event('steersman:change'))")
    await expect(page.locator("#picture canvas")).to_have_attribute("data-nodes", re.compile(r"[12]\d"))


async def test_the_map_list_is_searched(page, shop):
    await go(page, shop, "/map")
    await page.get_by_label("Search").fill("payment-gateway")
    await expect(page.locator("#list .entry")).to_have_count(2)
    await page.get_by_label("Search").fill("")
    await page.get_by_label("State").select_option("open")
    await eventually(lambda: shown(page), "only open circuits", timeout=LONG / 1000)


async def shown(page):
    texts = await page.locator("#list .entry").all_inner_texts()
    return texts and all("Circuit open" in text for text in texts)


async def test_the_map_is_readable_and_scrolls_on_a_phone(browser, shop):
    async with await browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    ) as context:
        page = await context.new_page()
        await go(page, shop, "/map")
        canvas = page.locator("#picture canvas")
        await expect(canvas).to_have_attribute("data-nodes", re.compile(r"[12]\d"))
        assert float(await canvas.get_attribute("data-zoom")) > 0.9  # names are as large as other text
        assert await canvas.evaluate("canvas => getComputedStyle(canvas).touchAction") == "pan-y"
        box = await canvas.bounding_box()
        await page.touchscreen.tap(box["x"] + 90, box["y"] + 44)
        await expect(page.locator(".panel")).to_contain_text("used by")


# the text of a view without its times
UNTIMED = """view => {
  const copy = view.cloneNode(true);
  copy.querySelectorAll("time").forEach(time => time.remove());
  return copy.textContent;
}"""


async def test_times_are_absolute_on_hover(page, shop):
    absolute = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
    for view in ("/", "/history", "/workloads/deployment/shop/frontend", "/health"):
        await go(page, shop, view)
        titles = await page.locator("time").evaluate_all("times => times.map(time => time.title)")
        assert titles, view
        assert [title for title in titles if not absolute.fullmatch(title)] == [], view
        told = await page.locator("main").evaluate(UNTIMED)
        assert not re.search(r"\d (s|min|h|d) ago", told), view


async def test_the_theme_button_says_what_it_shows_and_what_it_does(page, shop):
    await go(page, shop, "/")
    button = page.locator("#theme")
    await expect(button).to_have_text("Theme: auto")
    await expect(button).to_have_attribute("title", "Use the light theme")
    await button.click()
    await expect(button).to_have_text("Theme: light")


async def test_without_an_election_no_process_leads(page, shop):
    await go(page, shop, "/health")
    await expect(page.locator("#process")).to_have_text("Ready")
    await expect(page.locator(".facts")).to_contain_text("Leader election")
