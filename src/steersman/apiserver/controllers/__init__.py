"""Controllers of the embedded control plane: they act after a write, before the next request is handled.

CustomResourceDefinitions are served, new namespaces get their defaults, terminating ones are emptied, and the garbage
collector deletes what has no owner any more. `control_plane` runs them and creates the objects of a new cluster.
"""
