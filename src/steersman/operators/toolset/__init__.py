"""The toolset operator: discovers observability services and keeps the toolset ConfigMap of an agent true."""
