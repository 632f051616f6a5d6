"""Steersman: kube."""
