"""BIND 9: the servers behind instances, their configuration, and the drivers that talk to them.

    instance, cluster, Secrets, pods ──servers──► Server ──pool──► Driver ──breaker──► rndc + DNS, or HTTP sidecar + DNS

`servers`, `named_conf`, `statements` and `zone_statements` are pure: objects in, servers and statements out. A driver
(`rndc_driver`, `http_driver`) belongs to one server and keeps no state about zones; what it can do is in `driver`.
"""
