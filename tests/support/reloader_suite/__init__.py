"""Reloader's own end-to-end suites, with Reloader or with `steersman reload --profile reloader` in its place.

    make reloader         (python -m tests.support.reloader_suite --help)

`suites` builds and runs them, `cluster` is the cluster they find. Nothing of Reloader is part of this repository.
"""
