"""Bringing servers to the desired zone, and taking zones off servers that should no longer have them.

    desired zone ──► inspect ──► diff ──► write ──► verify

`publisher.publish` runs the steps over one `ZoneState`; a failure of one server never stops another.
"""
