"""Draws the screenshots of the status page: `python docs/screenshots.py`, when the page has changed.

What they show is the end of the demo: a real operator on a simulated cluster.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from rich.console import Console

from steersman.cli.logs import configure_logging
from steersman.cli.stage import Stage, wait_for
from steersman.cli.story import Story
from steersman.testing.browsers import chromium

FOLDER = Path(__file__).with_name("screenshots")
VIEWS = {
    "now": "/",
    "map": "/map",
    "history": "/history",
    "workload": "/workloads/deployment/shop/payments",
    "operators": "/operators",
    "health": "/health",
}
SIZES = {"wide": (1200, 800), "narrow": (390, 800)}


async def draw() -> None:
    """All of them."""
    async with Stage.open() as stage, chromium() as browser:
        await Story(Console(file=io.StringIO()), "1s").tell(stage)

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
