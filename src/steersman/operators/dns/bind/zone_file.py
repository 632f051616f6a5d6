"""Zone files: the name, the text and the writing of the file that named loads a zone from.

Every name is escaped and every string quoted, so no value can become another line of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.zone.names import text_of
from steersman.operators.dns.zone.rdata import SOA, type_name, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from steersman.operators.dns.zone.rdata import Key, RRset, Soa

LONGEST: Final = 200  # characters of a file name; named appends some for journals and temporary files
_SAFE: Final = re.compile(r"[^a-z0-9._-]")


def file_name(zone: bytes) -> str:
    """The file name of a zone: unique, and without a path.

    >>> file_name(b"\\x040/25\\x03org\\x00"), file_name(b"\\x03org\\x00")
    ('0%2f25.org.zone', 'org.zone')
    """
    text = text_of(zone).removesuffix(".") or "root"
    stem = _SAFE.sub(lambda sign: f"%{ord(sign.group()):02x}", text.lower())
    if len(stem) > LONGEST:
        stem = f"{stem[: LONGEST - 41]}%{hashlib.sha256(zone).hexdigest()[:40]}"
    return f"{stem}.zone"


def zone_file(zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> str:
    """The text of a whole zone."""
    lines = [f"$ORIGIN {text_of(zone)}", f"$TTL {ttl}", f"@ {ttl} IN SOA {value_text(SOA, soa.value())}"]
    for (owner, kind), rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        name = text_of(owner)
        lines += [
            f"{name} {rrset.ttl} IN {type_name(kind)} {value_text(kind, value)}" for value in sorted(rrset.values)
        ]
    return "\n".join(lines) + "\n"


def write_file(path: Path, text: str) -> bool:
    """Replace a file atomically and remove the journal of its predecessor; returns whether that worked."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.chmod(0o644)
        path.with_name(f"{path.name}.jnl").unlink(missing_ok=True)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True
