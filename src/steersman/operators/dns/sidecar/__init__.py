"""The sidecar of a named: the HTTP interface of the original, with its defects fixed.

    request ──access──► server ──messages──► local_named ──rndc, DNS──► named

`messages`, `zone_data` and `zone_settings` are shared with the client side, `bind.http_driver`. `process` runs it all
for `steersman dns sidecar`.
"""
