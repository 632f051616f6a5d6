"""BIND 9 servers, zones and records that never serve a lie."""
