"""The controller runtime: from watched changes to reconciled objects, in one process or several.

    cache (informers) ──► controller: watches, predicates, mappings ──► workqueue ──► worker ──► your reconciler
                                                                                                    │ context:
    API server ◄── write guard (dry run, leadership, shard) ◄───────────────────────────────────────┘ apply, status, …

- `cluster`: one cluster as controllers see it: client, caches and snapshots.
- `workqueue`: which key is next. `controller`: a controller as a table, and the runner that works through its keys.
- `reconcile`: what a reconciler is given. `manager`: starts, supervises and stops everything in the process.
- `leaderelection` and `sharding`: which of several processes may act. `webhook`: admission. `http`: listeners and
  outbound requests. `observability`: metrics, health, readiness.
- `workloads` and `rbac`: what several operators need to know about pods, Deployments and rules.

Contract: a key is never reconciled twice at once, no change is lost, and a process that may not act writes nothing.
Nothing here knows an operator.
"""
