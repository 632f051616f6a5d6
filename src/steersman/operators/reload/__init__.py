"""The reload operator: restarts workloads when the ConfigMaps and Secrets they use change, and never without a reason.

    watch ─► observer (notes the change: controllers/change_tracker, planning/rollouts)
          └► predicate ─► mapping (who uses the source) ─► queue ─► mark the affected workloads (planning/restart_order)

    controllers/reconciler, one pass over one workload:

    read      planning/snapshot          caches, once: workload, settings, edges, sources, what is remembered
      │       sources/                   references, digests, comparison rules
    policy    planning/effective_policy  workload > ReloadPolicy > namespace > ClusterReloadPolicy > configuration
      │
    plan      planning/plan              applied state against sources: planning/state, planning/diff
      │       planning/gates             one chain: missing, action, freeze, approval, budget, … concurrency, hook
    apply     actions/                   one patch per plan; or call pods, evict pods, recreate a Job
      │
    observe   planning/rollouts          by the workload's own status; pods are read only when it takes long
      │
    report    controllers/report         Events, metrics; listeners: notify/, compat/shadow

What pods were started for is recorded on the workload (`steersman.dev/applied`); everything in memory can be lost.
`inspect/` answers questions (`plan`, `why`, `audit`, the page) with the same snapshot and plan; `compat/` speaks the
annotations of other reloaders and stands in for their processes; `api/` is what people write.
"""
