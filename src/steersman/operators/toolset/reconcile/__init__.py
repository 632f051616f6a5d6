"""One pass over a target: current state, desired state, plan, apply, status; with targets, notification and wiring."""
