"""The map of a large cluster: all of it is drawn, and what a frame costs is reported."""

from __future__ import annotations

import statistics

import pytest
from playwright.async_api import expect

from steersman.apiserver import EmbeddedServer
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.runtime.manager.operator_bundle import OperatorBundle
from steersman.web.model import Edge, PageSnapshot, SourceNode, WorkloadNode, WorkloadView

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

WORKLOADS, NAMESPACES = 2_000, 20
COMMON = [RestartState.CURRENT] * 17 + [RestartState.PENDING, RestartState.OPEN, RestartState.ROLLING]


def large():
    """2,000 workloads in 20 namespaces, each of which uses three of forty sources."""
    sources, workloads = [], []
    for space in range(NAMESPACES):
        name = f"team-{space:02}"
        for number in range(40):
            kind = "secret" if number % 4 == 0 else "configmap"
            sources.append(
                SourceNode(id=f"{kind}/{name}/c{number}", kind=kind, namespace=name, name=f"c{number}", keys=["mode"])
            )
        mine = sources[-40:]
        for number in range(WORKLOADS // NAMESPACES):
            node = WorkloadNode(
                id=f"deployment/{name}/service-{number}",
                kind="deployment",
                namespace=name,
                name=f"service-{number}",
                standing=COMMON[(space + number) % len(COMMON)],
            )
            used = [mine[(number * step) % 40] for step in (1, 3, 7)]
            edges = [Edge(source=item.id, changed=node.standing is RestartState.PENDING) for item in used]
            workloads.append(WorkloadView(workload=node, edges=edges))
    return PageSnapshot(workloads=workloads, sources=sources, running=True)


async def test_a_map_of_2000_workloads_is_drawn_moved_and_zoomed(page, managed, record_property, capsys):
    async with EmbeddedServer() as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        snapshot = large()
        async with (
            Client.connect(config) as client,
            managed(client, OperatorBundle(controllers=()), lambda: snapshot) as shop,
        ):
            await page.goto(f"{shop.url}/map")
            canvas = page.locator("#picture canvas")
            await expect(canvas).to_have_attribute("data-nodes", str(WORKLOADS + 40 * NAMESPACES), timeout=90_000)
            far = await frames(page, canvas, "")
            near = await frames(page, canvas, "+++++++")
            await page.get_by_label("Search").fill("team-07")
            await expect(page.locator("#list .entry")).to_have_count(100)
    told = (
        f"{WORKLOADS} workloads, {3 * WORKLOADS} edges: a frame takes {far[0]:.1f} ms from afar, {near[0]:.1f} ms"
        f" from near; one every {far[1]:.0f} and {near[1]:.0f} ms without a GPU"
    )
    record_property("map frame", told)
    with capsys.disabled():
        print(f"\n{told}")  # noqa: T201  # the number is what people want from this test


async def frames(page, canvas, keys):
    """The median time to draw a frame while somebody drags the map about, and that between two frames."""
    await canvas.focus()
    for key in keys:
        await page.keyboard.press(key)
    await page.evaluate("performance.clearMeasures('map frame')")
    box = await canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down()
    for step in range(30):
        await page.mouse.move(x + 4 * step, y + 3 * step)
    await page.mouse.up()
    taken = await page.evaluate("performance.getEntriesByName('map frame').map((one) => one.duration)")
    assert taken
    return statistics.median(taken), statistics.median(await page.evaluate(INTERVALS))


# the time from one picture on the screen to the next, while the map moves with each of them
INTERVALS = """async () => {
  const canvas = document.querySelector("#picture canvas");
  const event = (kind, at) => new PointerEvent(kind, { pointerId: 1, clientX: 400 + at, clientY: 400 });
  const send = (kind, at) => canvas.dispatchEvent(event(kind, at));
  canvas.setPointerCapture = () => {};
  send("pointerdown", 0);
  const times = [];
  for (let at = 1; at <= 60; at += 1) {
    send("pointermove", at);
    times.push(await new Promise(requestAnimationFrame));
  }
  send("pointercancel", 60);
  return times.slice(1).map((time, place) => time - times[place]);
}"""
