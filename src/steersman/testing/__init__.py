"""What tests of controllers need: servers, a virtual clock, a fault proxy, and pytest fixtures for all of them.

Naming this package as a pytest plugin (`pytest_plugins = ["steersman.testing"]`) brings the fixtures of `plugin`. Names
are loaded when they are first used. No module here bears the name of something it holds: importing a module sets its
name in the package, in the place of what was meant. PYTEST_DONT_REWRITE: a conftest.py may import it first.
"""

from steersman.lazy_imports import attach

pytest_plugins = ["steersman.testing.plugin"]

__getattr__, __dir__ = attach(__name__, __file__)
