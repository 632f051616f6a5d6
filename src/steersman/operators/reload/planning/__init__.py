"""What to do about a workload, decided from values only: snapshot → effective policy → plan.

`snapshot` holds what one pass knows, `edges` the sources a workload depends on, `state` what its pods were started for,
`diff` what changed since. `gates` is the chain of reasons to wait; `restart_order` knows the other workloads,
`rollouts` the restarts in progress, `hooks` the user's function. `evaluate` is the whole way in one call.
"""
