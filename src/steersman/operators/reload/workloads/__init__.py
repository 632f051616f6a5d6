"""Workloads: the kinds and how each is restarted, what is kept of an object, its pods, and how far a rollout is."""
