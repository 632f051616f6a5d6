"""The two reconcilers: wiring and RBAC (`setup`), writes, the limit of replacements, status, metrics, cached views."""
