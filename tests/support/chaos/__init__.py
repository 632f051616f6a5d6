"""`make chaos`: seeded schedules of user actions and faults against the real operators, judged by their history.

    schedule    what happens when, from a seed (pure)
    run         one schedule on an embedded API server: users, faults, replicas of the operator
    history     everything that was observed (pure)
    checkers    what must never be in a history (pure)
    shrinking   the fewest steps that still fail (pure)
    report      the table (pure)
    operators/  what each operator is asked to do, and what counts as done

`python -m tests.support.chaos --help` is the command.
"""
