"""Steersman: apiserver."""
