"""Which Services are tools: detectors, matching, endpoint URLs, probes, and the health table."""
