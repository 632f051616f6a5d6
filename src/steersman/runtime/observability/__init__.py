"""What a process reports about itself: metrics, health and readiness.

Metric names are controller-runtime's where it has one. Nothing is counted here: runners, queues and electors count with
plain numbers, which are read at each scrape or probe.
"""
