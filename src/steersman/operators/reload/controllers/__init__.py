"""The controllers: one per kind of workload, and one per kind of policy.

`setup` is the wiring, `reconciler` one pass over a workload, `report` what people read about it. `change_tracker` and
`digest_key_store` are memory and keys, `restart_guard` says whether anything may be restarted now.
"""
