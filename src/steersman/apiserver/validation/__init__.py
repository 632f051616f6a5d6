"""Validation of objects before they are stored: metadata, and the rules of the built-in kinds.

Every violation is a `Cause` with the field and reason of kube-apiserver (`field_errors`).
"""
