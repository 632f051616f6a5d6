"""What users write: annotations, policies (custom resources) and the section `reload:` of the configuration.

    annotation on a workload ─┐
    ReloadPolicy              │
    annotation on a namespace ├─► Settings, one per layer ──planning.effective_policy──► the policy of one workload
    ClusterReloadPolicy       │
    reload: in the config    ─┘

`annotations.SETTINGS` declares each setting once: annotation, policy field, default, parsers. Everything is parsed
here, at the edge, into types that cannot hold an invalid value. Nothing here does I/O.
"""
