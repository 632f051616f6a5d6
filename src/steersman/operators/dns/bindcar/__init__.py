"""The HTTP interface of the original's sidecar: a driver that speaks it, and a sidecar of our own that serves it."""
