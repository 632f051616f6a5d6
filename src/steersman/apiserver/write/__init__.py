"""create, update, patch and delete: decoding ─► strategy ─► admission ─► validation ─► storage.

`verbs` turns a request into the object that is wanted, `pipeline` stores it, `deletion` removes it. `strategy` says
which fields a write may set, `admission` and `service_allocator` fill in what comes from the cluster.
"""
