"""What a reconciler is given: one snapshot to read from, and a context to write with.

    async def reconcile(ctx, app):
        await ctx.apply(deployment_for(app))              # server-side apply; no request when nothing differs
        await ctx.status(app, conditions=…)
        ctx.event(app, "Deployed", "created deployment/web")

Own writes are visible in the snapshot at once. Every write passes `write_guard`: nothing is written in a dry run, or by
a process that lost its lease or its shard. `ownership` never changes objects of other owners; `conditions` and
`status_patch` write only what changed; `event_recorder` aggregates Events. A reconciler without `async` gets a
`BlockingContext` and a thread.
"""
