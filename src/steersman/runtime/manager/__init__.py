"""The manager: starts, supervises and stops everything that runs in one process.

`run` is the entry point of a program (signals, exit codes), `manager` the order of starting and stopping, `supervisor`
restarts tasks that fail, `loop_watchdog` finds what blocks the event loop. `operator_bundle` is how a configured
operator is handed over.
"""
