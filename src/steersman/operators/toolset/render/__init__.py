"""The texts of the ConfigMaps, pure: model, two dialects, overrides, layout over parts, YAML, conformance."""
