"""The REST API: handlers, the middleware that admits requests, and the OpenAPI document."""
