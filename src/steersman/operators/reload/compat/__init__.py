"""Living with other reload controllers: their annotations, their flags, and their Leases.

    dialects/        their annotations, understood on workloads and sources and kept up to date
    profiles/        their process: flags, variables, ports, Lease and metrics, around our controllers
    lease_conflict   while one of them leads, nothing is written
    shadow           decide, write nothing, and compare with the one that acts

A dialect decides nothing but edges: gates, patches and state are the same for all.
"""
