"""HTTP to an API server: TLS, streams, retries, and errors made of responses."""
