"""Real programs for tests: Chromium, Prometheus and its neighbours, programs from Go modules, Rust crates and PyPI."""
