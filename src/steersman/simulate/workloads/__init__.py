"""Planners of the simulated workloads: from a template to pods and a status, one module per kind. Pure."""
