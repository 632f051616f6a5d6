"""Tables for `kubectl get`: columns, the cells of each kind, and how values are written in them."""
