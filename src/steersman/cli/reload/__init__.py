"""Commands about restarts: `plan`, `why`, `audit`, `graph`, and the group `reload`.

`inspection` reads the cluster, or files, into an offline inspection; each command shows one answer of
`operators.reload.inspect`. `marks` and `trigger` are the only ones that write, each with one patch.
"""
