"""Custom kinds from Python types: one declaration for the decoder, the schema and the documentation.

`crd_manifest(WebApp)` is the CustomResourceDefinition of a `Resource` class; the markers in this package say what a
type cannot. `drift(live, wanted)` says whether a cluster's definition still is what the code expects.
"""

from steersman.lazy_imports import attach

__getattr__, __dir__ = attach(__name__, __file__)
