"""Admission webhooks and policies: which are asked about a request, what they are asked, and what their answers change.

    configurations ─► matching ─► review ─► chain ─► replay
    policies ─► matching ─► policy_review ────┘ ▲       │ calls
                                                └───────┘ answers

A request is one synchronous step and stays one. Where the chain needs an answer that is not there yet, the step ends
with `PendingCalls` before anything is written; `replay` makes the calls and runs the step again, with the answers and
with the same time and randomness. What is finally stored was decided in one step, on the store as it is by then. So no
lock is needed, and an object that changed while a webhook was thinking is reviewed again.

Conversion webhooks (`resources.conversion_webhook`) work the same way, also for reads.

Policies (`policies`, `policy_review`) are CEL and need no call: they are evaluated inside the step.

Without a configuration and a binding of a policy a write costs one test for emptiness.
"""
