"""Webhooks: validate, mutate, default and convert as functions of an object.

`admission` decodes a review, calls the function and encodes the answer, `conversion` does so for versions of a kind;
`server` serves them over TLS; `certificates` is when a certificate is issued and renewed (pure), `certificate_source`
where it is kept and how clients learn to trust it. Objects that cannot be decoded are denied, but may always be
repaired or deleted.
"""
