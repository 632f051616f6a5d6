"""DNSSEC: who signs a zone, with which keys, and where the keys are stored.

One primary signs a zone and the others transfer from it (`signer`). Key files, lifetimes and DS records are in `keys`;
`key_storage` decides between a Secret, a volume and the disk of the pod. named signs, and dnspython computes key tags
and DS records: there is no cryptography of our own here.
"""
