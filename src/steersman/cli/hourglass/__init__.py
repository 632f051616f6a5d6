"""`steersman hourglass`: plan executors and performers, and why one is pending."""
