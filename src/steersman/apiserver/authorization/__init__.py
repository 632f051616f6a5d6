"""Authorization: who may do what, evaluated as kube-apiserver evaluates RBAC. Used only when a server is asked to.

`request_attributes` says what a request does, `rbac` whether roles and bindings allow it, `escalation` whether a user
may grant a rule to others. These three are pure. `impersonation` reads the headers with which a user acts as another
one, `bootstrap_roles` holds the roles every server starts with, and `authorizer` asks all of them for one server.
"""
