"""Draws the screenshots of the status page: `python docs/screenshots.py`, when the page has changed.

What they show is the end of the demo with all four operators: real ones, on a simulated cluster, with a real named.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.support
from steersman.cli.demo.environment import Stage, wait_for
from steersman.cli.demo.script import Story
from steersman.cli.log_format import configure_logging
from steersman.crd import crd_manifest
from steersman.operators import load_operator
from tests.support.dns.named import Named
from tests.support.dns.zones import Site, serial
from tests.support.programs.browsers import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser

DOCS = Path(__file__).parent
FOLDER = DOCS / "screenshots"
SETTINGS = "toolset: {healthCheck: {enabled: false}}\n"  # nothing listens where the Services point
VIEWS = {
    "now": "/",
    "map": "/map",
    "history": "/history",
    "workload": "/workloads/deployment/shop/payments",
    "operators": "/operators#dns",
    "health": "/vitals",  # the toolset API answers at /health
}
SIZES = {"wide": (1200, 800), "narrow": (390, 800)}


async def draw() -> None:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Stage.open(operators="reload,dns,hourglass,toolset", config=SETTINGS) as stage,
            Named(Path(folder) / "ns1") as server,
            chromium() as browser,
        ):
            await company(stage)
            await Story(Console(file=io.StringIO()), "1s").run(stage)
            await zones(stage, server)
            await pictures(stage, browser)


async def company(stage: Stage) -> None:
    """What the other operators look after, beside the shop."""
    for name in ("dns", "hourglass", "toolset"):
        for kind in load_operator(name).kinds:
            await stage.apply(crd_manifest(kind))
    for name in ("monitoring", "kubernaut-system"):
        await stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    secret = {"name": "operator-keys", "namespace": "default"}
    await stage.apply({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"ecdsa": "demo"}})
    for name, port in (("prometheus", 9090), ("grafana", 3000), ("loki", 3100), ("alertmanager", 9093)):
        meta = {"name": name, "namespace": "monitoring", "labels": {"app.kubernetes.io/name": name}}
        spec = {"clusterIP": "None", "ports": [{"name": "web", "port": port}]}
        await stage.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})


async def zones(stage: Stage, server: Named) -> None:
    """Zones on a real server, and performers; the kinds are served by now."""
    for manifest in yaml.safe_load_all((DOCS.parent / "examples" / "hourglass.yaml").read_text()):
        await stage.apply(manifest)
        if manifest["kind"] == "Performer":
            easy = {"name": "prices", "namespace": "default"}
            await stage.apply({**manifest, "metadata": easy, "spec": {"avsAddress": "0x456", "image": "prices:3"}})
    site = Site(stage.client, "default", [server])
    await site.instances()
    for name in ("example.org", "shop.example"):
        await site.zone(name)
        await wait_for(partial(serial, server, name), f"{name} is served")


async def pictures(stage: Stage, browser: Browser) -> None:
    """Every view, in every size and colour."""

    async def sampled() -> bool:
        series = (await stage.status()).health.vitals.series
        return all(len(one.values) > 4 for one in series)

    await wait_for(sampled, "the charts have something to show")
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            viewport = {"width": width, "height": height}
            context = await browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
            page = await context.new_page()
            for name, path in VIEWS.items():
                await page.goto(stage.page + path)
                await page.locator("#live", has_text="Live").wait_for()
                if name == "map":
                    await page.locator("canvas[data-nodes]").wait_for()
                await page.wait_for_timeout(500)  # what was drawn is shown
                await page.screenshot(path=FOLDER / f"{name}-{size}-{scheme}.png")
            await context.close()


if __name__ == "__main__":
    configure_logging(level="error")
    asyncio.run(draw())
