"""Steersman: web."""
