"""What a zone should be, as pure functions of the caches: no I/O, no clock.

Which instances serve it, which records belong to it, and which RRsets they add up to. Nothing here knows a server.
"""
