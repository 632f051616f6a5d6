"""Steersman."""
