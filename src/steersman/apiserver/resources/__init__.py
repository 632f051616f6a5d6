"""What is served and of which type: kinds, the registry with custom resources, schemas, defaults, conversion."""
