"""Notifications about restarts: one message per change and receiver.

    restarts ──group by shared source──► rollouts ended ──message──► queue per receiver ──sender, retries──► HTTP POST

A notification never delays a restart. It is retried and counted, and not persisted.
"""
