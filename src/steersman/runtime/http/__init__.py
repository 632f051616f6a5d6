"""HTTP: listeners, and requests to servers other than the API server.

`server` bounds connections, headers and bodies, so that slow or many callers cannot stop a process; `authentication`
asks the cluster who shows a token and what that user may do; `outbound` sends requests that are repeated and that pass
the write guard. What a route answers is the business of its operator.
"""
