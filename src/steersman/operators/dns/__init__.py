"""The dns operator: runs BIND 9 servers, zones and records.

How a record becomes an answer. One pass over a DNSZone is one straight way, over one `ZoneState`:

    ARecord, DNSZone, Bind9Instance, … change ──► mapping (reads only) ──► queue of zones
      select    zone/selection, zone/overlap     instances and servers of the zone; which of two zones is served
      compile   zone/loader, zone/compiler       records, PTR records, catalog members ──► desired RRsets
      inspect   publish/copy_inspector           what each primary has, and what of it is ours
      diff      publish/diff, zone/serial        what is written to each, and one serial for all
      write     publish/publisher                one conditional UPDATE per primary; the whole zone where it is absent
      verify    publish/publisher                primaries have signed the zone, secondaries have the serial
      status    controllers/zone_status          DNSZone status; records and instances are woken and report theirs

Rooms: `api` what users write · `zone` what a zone should be, pure · `publish` bringing servers to it · `bind` how a
server is driven and configured · `wire` DNS messages, transfers, rndc · `dnssec` keys and signing · `deploy` the pods
of managed servers · `sidecar` the HTTP sidecar · `controllers` the table of controllers and their reconcilers ·
`inspect` read-only questions of the command line and the page.
"""
