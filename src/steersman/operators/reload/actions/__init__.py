"""What a plan does to a workload: patch its template, call its pods, evict them, or recreate a Job."""
