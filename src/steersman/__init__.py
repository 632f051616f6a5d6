"""Steersman: a Kubernetes controller runtime for Python.

    import steersman as sm

Everything an operator needs is here. Names are loaded on first use, so importing the package costs next to nothing.
"""

from steersman.lazy_imports import attach

__getattr__, __dir__ = attach(__name__, __file__)
