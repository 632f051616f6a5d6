"""CustomResourceDefinitions and custom resources.

`definition_rules` and `schema_rules` validate a definition, `structural` compiles its schema and prunes and defaults
objects with it, `custom_resource_validation` validates objects, `formats` knows the string formats, `validation_rules`
evaluates the rules in CEL.
"""
