"""The toolset operator: discovers observability Services and writes the toolset ConfigMap of a troubleshooting agent.

One pass of the reconciler, for one target ConfigMap:

    Services, EndpointSlices, ConfigMaps        health table ◄── probe controller ◄── Services answer probes
          │                                          │
          ▼                                          ▼
    read current ──► discover ──► render ──► plan ──► apply ──► status ──► Events, metrics, ToolsetConfig, API, page
    CurrentState     Discovery-   Desired-   Target-  server-     └──► notify the consumer
                     Result       State      Plan     side apply

Every arrow carries a value. `discovery` and `render` are pure except for the probes; `reconcile` reads and writes the
cluster. The probe controller only fills the health table and enqueues the target, it never writes a ConfigMap.
"""
