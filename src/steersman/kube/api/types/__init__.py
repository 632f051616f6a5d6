"""The built-in kinds that controllers meet, as slim structs; `meta` says how to read them. Pure data."""

from steersman.lazy_imports import attach

__getattr__, __dir__ = attach(__name__, __file__)
