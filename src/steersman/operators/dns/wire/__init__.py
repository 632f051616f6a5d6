"""DNS and rndc on the wire: what a server is sent and what of its answers is accepted. Knows nothing of BIND's zones.

messages      the bulk encoder of updates and decoder of transfers, with their measured cost; the rest is dnspython
tsig          which signed messages are accepted
client        queries, updates and transfers of one server, on pooled connections
rndc          the control channel of named
axfr_server   a server for one zone, from which a named fetches the first copy of it
"""
