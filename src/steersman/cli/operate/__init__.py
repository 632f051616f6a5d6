"""Commands about what runs: what it would do, why an object is as it is, how a process is."""
