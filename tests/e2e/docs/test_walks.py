"""Every command of the documentation is typed, page by page, on a simulated cluster of the page's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.simulate import simulation
from steersman.testing.controlplane.binaries import BinariesError, find_program
from steersman.testing.plugin import unavailable
from tests.support.dns.named import NamedUnavailable, find_named
from tests.support.docs.pages import COMMANDS, Command, LeftOut, blocks_of, steps_of
from tests.support.docs.walks import Walk

ROOT = Path(__file__).parents[3]
GIVEN = Path(__file__).with_name("given")  # files that a reader has already, by page
BLOCKS = {
    str(page.relative_to(ROOT)): blocks_of(page, ROOT)
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
}
STEPS = {page: [step for block in blocks for step in steps_of(block)] for page, blocks in BLOCKS.items()}
WALKS = [page for page, steps in STEPS.items() if any(isinstance(step, Command) for step in steps)]

LEFT_OUT = 15  # blocks; one more needs a reason here, too


def test_what_is_left_out_has_a_reason_and_is_counted():
    left = [step for steps in STEPS.values() for step in steps if isinstance(step, LeftOut)]
    assert all(len(step.reason.split()) > 3 for step in left)
    assert len(left) == LEFT_OUT, [f"{step.place}: {step.reason}" for step in left]


def test_every_block_of_commands_is_walked_or_left_out():
    shown = {block.place for blocks in BLOCKS.values() for block in blocks if block.language in COMMANDS}
    taken = {step.place for steps in STEPS.values() for step in steps}
    assert shown <= taken


@pytest.mark.real  # kubectl and helm
@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS)
async def test_a_page_can_be_followed(page, tmp_path):
    if any(isinstance(step, Command) and step.text.startswith("named ") for step in STEPS[page]):
        try:
            find_named()
        except NamedUnavailable as error:
            unavailable(error)
    folder = tmp_path / "reader"
    folder.mkdir()
    for name in ("examples", "charts"):
        (folder / name).symlink_to(ROOT / name)
    for given in sorted((GIVEN / page.removesuffix(".md").replace("/", "-")).glob("*")):
        (folder / given.name).symlink_to(given)
    async with EmbeddedServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with (
            Client.connect(load_config(tmp_path / "kubeconfig")) as client,
            simulation(client),
            Walk(folder, environment(tmp_path)) as walk,
        ):
            for step in STEPS[page]:
                await walk.take(step)
            await walk.end()


def environment(home: Path) -> dict[str, str]:
    """What a reader's shell has: our programs, kubectl, helm, and a kubeconfig."""
    programs = home / "bin"
    programs.mkdir()
    try:
        for name in ("kubectl", "helm"):
            (programs / name).symlink_to(find_program(name))
    except BinariesError as error:
        unavailable(error)
    return {
        "HOME": str(home),
        "KUBECONFIG": str(home / "kubeconfig"),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin",
        **{
            name: os.environ[name]
            for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
            if name in os.environ
        },
    }
