"""Steersman: cache."""
