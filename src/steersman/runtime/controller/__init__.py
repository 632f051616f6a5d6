"""A controller as a table of watches and predicates, and the runner that works through its keys.

    Controller(DNSZone, reconcile).when(generation).watches(Pod, to=zones_of).with_options(concurrency=4)

A `Controller` is a value and does nothing by itself (`builder`, `predicates`, `watches`, `schedule`, `channel`). The
manager gives each one a `ControllerRunner`: sources and schedules add keys to its queue, workers reconcile them, and
`result` says when a key is next. A reconciler that raises, hangs or writes for ever concerns its own key only, and
`stuck_keys` reports it.
"""
