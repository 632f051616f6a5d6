"""CEL, the expression language of the Kubernetes API, for rules of definitions and for admission.

    schema ──schema_types──► types of variables ─┐
                                                 ├─ expressions ──► CompiledExpression ──evaluate──► a value
    expression ──────────────────────────────────┘     ▲
                                functions ─────────────┘  the function libraries of Kubernetes

Google's C++ implementation parses, checks and evaluates. It is the optional extra `steersman[cel]`, loaded with the
first expression; a server without expressions never imports it.
"""
