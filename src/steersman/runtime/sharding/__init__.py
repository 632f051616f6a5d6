"""Sharding: several processes share the namespaces of a cluster, each namespace being worked on by one of them.

`assignment` is the pure part: which member owns which slot, and the next step that never lets two act on one. `member`
carries it out on Leases; `handover` stops and starts the work of this process.
"""
