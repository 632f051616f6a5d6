"""Leader election over a Lease: at most one process acts.

`rules` is the pure part: (state, event, now) -> (state, action). `elector` carries the actions out on a Lease. Safe as
long as clocks run at similar rates; they need not agree on the time.
"""
