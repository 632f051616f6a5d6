"""A browser for tests: the system's Chromium, driven by Playwright.

    async with chromium() as browser:
        page = await browser.new_page()

Playwright's own browsers are not used: a distribution's is there already, gets its updates, and is what people have.
"""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["NoBrowser", "chromium", "find_chromium"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowser(SteersmanError):  # noqa: N818  says what is wrong
    """There is no Chromium on this machine."""


def find_chromium() -> str:
    """Where Chromium is; NoBrowser says how to get one."""
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise NoBrowser("there is no Chromium on this machine (on Debian: apt-get install chromium)")


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A browser, until the block ends."""
    path = find_chromium()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_OPTIONS), timeout=120_000)
        try:
            yield browser
        finally:
            await browser.close()
