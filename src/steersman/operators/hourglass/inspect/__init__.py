"""Read-only answers for the command line and the page: the plan of manifests, why a pod is pending, tables."""
