"""The catalog in the configuration of a secondary that the operator makes: two files beside its named.conf. Pure.

named wants its catalog in its own configuration, with the addresses that the catalog and its members are fetched from,
and those move with the pods of primaries. So they are in files that named.conf includes and that its checksum leaves
out: when a primary moves, named reads its configuration again, and nothing restarts. Statements that were given are not
taken back while there is a catalog: without them named would drop every zone that it has from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.dns.fleet import ZONES
from steersman.operators.dns.names import name_of
from steersman.operators.dns.zonetext import file_name, quote, statement_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.operators.dns.zonetext import Statement

__all__ = ["IN_OPTIONS", "IN_ZONES", "Source", "catalog_files", "catalog_zone", "kept_files"]

IN_OPTIONS: Final = "catalog.options"
IN_ZONES: Final = "catalog.zones"
NOBODY: Final = "# there is nobody to fetch the catalog from yet\n"

Source = tuple[str, int]  # address and port of a primary


def catalog_zone(catalog: str, sources: Sequence[Source], key: str) -> tuple[Statement, ...]:
    """The catalog itself, as named has it configured."""
    return (
        ("type", "secondary"),
        ("file", f"{ZONES}/{file_name(name_of(catalog)).removesuffix('.zone')}.catalog"),
        ("primaries", _called(sources, key)),
        ("allow-notify", (("key", key),)),
        ("notify", "no"),
    )


def catalog_files(catalog: str, sources: Sequence[Source], key: str) -> dict[str, str]:
    """What goes into the options of named, and what beside them."""
    if not sources:
        return {IN_OPTIONS: NOBODY, IN_ZONES: NOBODY}
    listed = ("zone", catalog, "default-primaries", _called(sources, key), "min-update-interval", "1")
    zone = ("zone", catalog, catalog_zone(catalog, sources, key))
    return {
        IN_OPTIONS: statement_text([("catalog-zones", (listed,))]) + "\n",
        IN_ZONES: statement_text([zone]) + "\n",
    }


def kept_files(catalog: str, held: Mapping[str, str]) -> dict[str, str]:
    """The files as they are, if they are about this catalog."""
    found = {name: held.get(name, "") for name in (IN_OPTIONS, IN_ZONES)}
    return found if all(f"zone {quote(catalog)} " in text for text in found.values()) else {}


def _called(sources: Sequence[Source], key: str) -> tuple[Statement, ...]:
    return tuple((address, "port", str(port), "key", key) for address, port in sources)
