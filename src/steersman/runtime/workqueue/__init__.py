"""The work queue: which key is reconciled next, and how long a failed key waits.

client-go's three sets (dirty, processing, ready) with priorities, delays, debouncing and fairness between namespaces.
`queue` is the contract, `ready_queue` the order among ready keys, `rate_limiters` the delays. Nothing here does I/O or
knows what a key means.
"""
