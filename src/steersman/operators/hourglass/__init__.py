"""The hourglass operator: runs HourglassExecutor and Performer resources on the hardware they need.

One reconcile of a performer; an executor's is the same without replacement:

    Performer, its HourglassExecutor, Pods, Service
          │
          ▼
    read spec ──► pod template ──► needs a slot? ──► next steps ──► write ──► status, Events, metrics
    validation    children/pod     replacement_limit  children/       controllers/  controllers/status
                  (hash)           (only to begin a   replacement     apply
                                    replacement)      (pure)

A pod is replaced when, and only when, the hash of its template differs. The status records what a crash must not lose:
that a replacement has begun, and how often pods were lost.
"""
