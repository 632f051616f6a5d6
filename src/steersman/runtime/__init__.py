"""Steersman: runtime."""
