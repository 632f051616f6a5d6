"""Steersman: operators."""
