"""Every workload runs the configuration it is meant to run, and nothing restarts without a reason."""
