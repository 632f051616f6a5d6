"""`steersman dns`: import, plan and check zones, explain a name, and run the sidecar."""
