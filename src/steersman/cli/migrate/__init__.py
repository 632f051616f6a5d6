"""`steersman migrate`: moving from another program to this one.

`from` reports what stays, what improves and what is missing, and writes the chart's values (`originals`), with every
setting that has a place there and a list of the others (`carry_over`); `check` runs the plan of our operator against
the cluster as it is and reports every visible effect (`check`). Neither writes anything to the cluster.
"""
