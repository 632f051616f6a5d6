"""The Kubernetes objects of managed servers: manifests, TSIG keys, the sidecar container and the rollout order. Pure.

`allowlist` decides which fields of an instance may reach beyond DNS; `controllers.instance` applies the result.
"""
