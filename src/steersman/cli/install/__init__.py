"""Commands that print what an installation needs: CRDs, RBAC, manifests, webhooks; and one that migrates storage."""
