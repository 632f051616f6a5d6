"""Commands that print what an installation needs: CRDs, RBAC, manifests, webhooks."""
