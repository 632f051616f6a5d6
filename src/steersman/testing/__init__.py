"""Steersman: testing."""
