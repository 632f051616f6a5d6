"""ConfigMaps, Secrets and SecretProviderClasses: which of them pods refer to, and their digests.

    object ──digest──► hashed per key while it is decoded, values dropped ──► cache
             compare, digest_cache: other forms than bytes, on demand
             csi: versions that the secrets store CSI driver mounted
    pod template ──references──► the sources and keys it uses
    named_watch: the same sources one by one by name, where lists are not allowed or not wanted

Invariant: no value of a source is kept in memory or written anywhere; stored digests of Secrets are keyed
(`digest_keys`).
"""
