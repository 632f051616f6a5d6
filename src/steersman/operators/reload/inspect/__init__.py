"""Read-only questions about restarts, for the commands and the status page.

    offline       objects from files or a cluster in a static cache, evaluated by the operator's own code
    forecast      `plan`: what would restart if manifests were applied
    explain       `why`, `history`: what one workload restarts for, waits for, and did
    graph         `graph`: which workloads depend on which sources
    audit         `audit`, and a metric: pods that started before the last change of a key they use
    trigger       `reload trigger`: a restart requested by a user, as a plan
    live_status   the page and `status`: what the running operator knows

Nothing here decides anything: all of it shows what `planning` decides.
"""
