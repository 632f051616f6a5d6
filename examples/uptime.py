"""Background work: a timer that probes a site, a daemon that follows its messages, and a handler for one field.

A Site is probed every few seconds, and its status says whether it answers. A daemon stays connected to the site's
stream of messages for as long as `spec.follow` says so. An address that cannot be one is a PlanError, which the runtime
reports on the object.

steersman crds examples/uptime.py | kubectl apply -f -
steersman run examples/uptime.py
"""

from typing import Annotated

import aiohttp

import steersman as sm


class Site(sm.Resource, group="example.org", version="v1"):
    """A web site to watch."""

    class Spec(sm.Struct):
        """Where it is."""

        url: str
        """Its address, with http:// or https://."""
        follow: bool = False
        """Whether to stay connected to its messages."""

    class Status(sm.Struct):
        """How it is doing."""

        probes: Annotated[int, sm.Column("Probes")] = 0
        """How often it was probed since this process works on it."""
        message: Annotated[str, sm.Column("Message")] = ""
        """The last message of its stream."""
        conditions: list[sm.Condition] | None = None
        """Ready: whether it answers."""

    spec: Spec
    status: Status = Status()


def check_url(site: Site) -> None:
    """Raise PlanError for an address that cannot be one; the object gets the condition Stalled and an Event."""
    if not site.spec.url.startswith(("http://", "https://")):
        raise sm.PlanError("must begin with http:// or https://", reason="InvalidURL", field="spec.url")


async def reconcile(_ctx: sm.Context, site: Site) -> None:
    """There are no children: all there is to do is to check the spec."""
    check_url(site)


async def url_changed(ctx: sm.Context, site: Site, change: sm.FieldChange) -> None:
    """Another address is another site: count from the beginning."""
    ctx.memory["probes"] = 0
    ctx.event(site, "Moved", f"from {change.old} to {change.new}")


async def probe(ctx: sm.Context, site: Site) -> None:
    """Ask the site whether it answers, and say so in its status."""
    check_url(site)
    ctx.memory["probes"] = count = ctx.memory.get("probes", 0) + 1
    try:
        async with aiohttp.ClientSession() as session, session.get(site.spec.url) as answer:
            ready, message = answer.ok, f"{answer.status} {answer.reason}"
    except aiohttp.ClientError as error:
        ready, message = False, str(error)
    reason = "Answers" if ready else "NoAnswer"
    await ctx.set_condition(site, "Ready", ready, reason=reason, message=message, probes=count)


async def follow(ctx: sm.DaemonContext, site: Site) -> None:
    """Keep the last message of the site in its status. When the connection ends, the daemon fails and starts again."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{site.spec.url}/messages") as stream:
        async for message in stream:
            with ctx.snapshot() as now:
                await now.status(site, message=message.data)
    raise sm.DriverError("the connection ended", server=site.spec.url)


def controllers() -> list[sm.Controller]:
    """What `steersman run` runs."""
    return [
        sm.Controller(Site, reconcile)
        .when(sm.generation)
        .on_field("spec.url", url_changed)
        .timer(probe, every="5s", initial_delay="1s")
        .daemon(follow, running_while=lambda site: site.spec.follow),
    ]
