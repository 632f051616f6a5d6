"""What users write: the CRDs of zones, records, servers and clusters, annotations, and the operator configuration."""
