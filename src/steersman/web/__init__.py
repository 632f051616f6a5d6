"""The status page and its JSON API: what a running process knows, read-only, names and digests but never a value.

    manager ──► HealthReader (health) ─────────► Vitals ───────┐
    reload  ──► reload_snapshot ──► ChangeAuthors ──► PageSnapshot ──► SnapshotCache ──► views ──► api    JSON
                                                                                          │    └► pages  HTML
                                                                                          └► event_stream: "fetch again"

`views` are pure functions from these values to what one path shows, so the page, the API and `steersman status` never
disagree. `site` routes requests, `access` decides who may read.
"""
