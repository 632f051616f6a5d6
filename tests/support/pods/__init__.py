"""Pods whose containers are processes on this machine."""
