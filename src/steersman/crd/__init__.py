"""Steersman: crd."""
