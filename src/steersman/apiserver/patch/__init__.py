"""JSON patch, merge patch, strategic merge patch and server-side apply, and the ownership of fields.

dispatch ─► strategic_merge | apply ─► typed_values (fields of a value, by its schema) ─► field_sets (managedFields)
"""
