"""Pure data of the Kubernetes API: objects, kinds, selectors, quantities, patches, errors. No I/O."""
