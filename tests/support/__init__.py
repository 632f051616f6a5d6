"""Helpers of this repository's own tests; nothing of them is in the wheel.

What operator authors need is in `steersman.testing`. Here, by what they help with:

- objects: `manifests`, `states` (every state that objects pass through), `hourglass`, and in `dns/`, `reload/` and
  `toolset/` what tests of one operator need
- servers: `wire_server` (anything that can come over a wire), `kubectl_tour`, `differential/` (the fuzzer that compares
  the embedded API server with the real one)
- real programs: `programs/` (Chromium, Prometheus, Rust crates), `pods/` (pods whose containers are local processes)
- the documentation: `docs/` (pages, and walks through their commands)
"""
