"""A real Kubernetes control plane on this machine: built once, started and stopped by tests."""
