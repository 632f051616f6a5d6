"""HTTP of the embedded server.

`server` is the public class, `listener` handles one request: `authenticator` ─► `requests` (path, verb, options, media
type) ─► `faults` ─► `dispatch` to the function that answers. `non_resource_endpoints` serves /version, /healthz and the
documents of discovery; `state` is what all handlers share.
"""
