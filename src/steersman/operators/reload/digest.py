"""What a source says, as digests: enough to see that a key changed, and useless for anything else. Pure.

ConfigMaps and Secrets are hashed the moment they are decoded and their values are dropped, so memory holds 32 bytes per
key and no value ever. Two levels:

    key digest     sha256 over one value, in memory only: of its bytes, and of each form in which somebody compares it
    edge digest    sha256 over the used keys, their digests and the name of the source; written to the workload

The name of the source goes into what is written, so that equal values in two places do not look equal, and no table
made beforehand helps anybody to guess one. Other programs' hashes of the whole data (`Hash`) are computed at the same
moment, because it is the only one at which the values are there.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import field

from steersman.kube.objects import ObjectMeta, Resource
from steersman.kube.types.core import ConfigMap, Secret
from steersman.operators.reload.comparison import BYTES, IGNORE, canonical, comparisons_for, form_of
from steersman.operators.reload.settings import SourceSettings, read_source_settings
from steersman.operators.reload.types import PREFIX, SourceKind, SourceRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from steersman.operators.reload.comparison import Comparison
    from steersman.operators.reload.features import CompareConfig

__all__ = [
    "ConfigMapSource",
    "Demand",
    "Hash",
    "SecretSource",
    "Source",
    "edge_digest",
    "key_digest",
    "names_digest",
    "short_digest",
    "source_transform",
]

VERSION: Final = b"steersman/1"  # of the edge digest; another way to compute it is another version
SHORT: Final = 9  # bytes of a short digest, 12 characters: names the keys that changed, decides nothing alone


class Hash(Protocol):
    """Another program's hash over a whole source."""

    name: str

    def __call__(self, kind: SourceKind, data: Mapping[str, Any] | None, binary: Mapping[str, Any] | None) -> str:
        """The hash of data as it is on the wire: text in a ConfigMap's data, base64 text elsewhere."""


class Demand(Protocol):
    """Who compares which source how: `steersman.operators.reload.forms` knows."""

    def of(self, source: SourceRef) -> Iterable[tuple[Comparison, ...]]:
        """All ways in which somebody compares the keys of a source."""

    def superseded(self, source: SourceRef, revision: str) -> None:
        """A version of a source has come."""


class Source(Resource):
    """A ConfigMap or Secret as it is kept: no values, and no annotations but those that mean something here."""

    digests: dict[str, bytes] = field(default_factory=dict, name="steersman.dev/digests")
    hashes: dict[str, str] = field(default_factory=dict, name="steersman.dev/hashes")
    settings: SourceSettings = field(default=SourceSettings(), name="steersman.dev/settings")
    forms: dict[str, dict[str, bytes]] = field(
        default_factory=dict, name="steersman.dev/forms"
    )  # form -> key -> digest
    data: dict[str, Any] | None = None  # on the wire only
    binary_data: dict[str, Any] | None = None  # on the wire only

    @property
    def source(self) -> SourceRef:
        """Its name as edges know it."""
        return SourceRef(SourceKind(type(self).KIND.kind.lower()), self.namespace, self.name)

    def compared(self, ways: Iterable[Comparison]) -> dict[str, bytes]:
        """The digests of the keys that count, each in its form; of bytes, where it was not hashed in that form."""
        if not ways:
            return self.digests
        forms = {key: form_of(key, ways) for key in self.digests}
        return {
            key: digest if forms[key] == BYTES else self.forms.get(forms[key], {}).get(key, digest)
            for key, digest in self.digests.items()
            if forms[key] != IGNORE
        }

    def lacks(self, ways: Iterable[Comparison]) -> bool:
        """Whether a key was not hashed in the form in which it is compared."""
        forms = {key: form_of(key, ways) for key in self.digests} if ways else {}
        return any(form not in (BYTES, IGNORE) and key not in self.forms.get(form, ()) for key, form in forms.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.ref)!r}, keys={sorted(self.digests)})"


class ConfigMapSource(Source, version="v1", kind="ConfigMap"):
    """A ConfigMap."""


class SecretSource(Source, version="v1", kind="Secret"):
    """A Secret."""


assert (ConfigMapSource.KIND, SecretSource.KIND) == (ConfigMap.KIND, Secret.KIND)


@lru_cache(maxsize=64)
def source_transform(
    annotations: frozenset[str],
    hashes: tuple[Hash, ...] = (),
    compare: tuple[CompareConfig, ...] = (),
    demand: Demand | None = None,
) -> Callable[[Source], Source]:
    """What the cache keeps of a source: always the same function for the same arguments, as caches ask for.

    Keys are hashed as bytes, in the forms that the source itself or `compare` asks for, and in those of `demand`.
    """

    def digested(source: Source) -> Source:
        kind = SourceKind(type(source).KIND.kind.lower())
        meta = source.metadata
        kept = {
            name: value for name, value in source.annotations.items() if name in annotations or name.startswith(PREFIX)
        }
        settings = read_source_settings(kept)
        values = bool(source.data or source.binary_data)
        ref = SourceRef(kind, meta.namespace, meta.name)
        ways = {(*settings.compare, *comparisons_for(compare, kind.value, meta.namespace, meta.name))}
        if demand is not None:
            ways.update(demand.of(ref))
            demand.superseded(ref, meta.resource_version)
        digests, forms = _digests(source, ways) if values else (source.digests, source.forms)
        return type(source)(
            metadata=ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                labels=meta.labels,
                annotations=kept or None,
                deletion_timestamp=meta.deletion_timestamp,
            ),
            digests=digests,
            forms=forms,
            hashes=source.hashes or {one.name: one(kind, source.data, source.binary_data) for one in hashes},
            settings=settings,
        )

    return digested


def key_digest(value: bytes, *, binary: bool = False) -> bytes:
    """The digest of one value. A key of `binaryData` differs from one of `data`: environments show only the latter."""
    return hashlib.sha256((b"b" if binary else b"d") + value).digest()


def edge_digest(source: SourceRef, digests: Mapping[str, bytes], keys: Iterable[str] | None = None) -> str:
    """The digest over the used keys of a source (None: all of them): 43 characters, whatever the number of keys."""
    total = _seeded(source)
    for key in sorted(digests if keys is None else set(keys) & set(digests)):
        name = key.encode(errors="surrogatepass")
        total.update(b"%d:%b" % (len(name), name))
        total.update(digests[key])
    return _text(total.digest())


def short_digest(source: SourceRef, key: str, digest: bytes) -> str:
    """A few characters that change when the key changes."""
    one = _seeded(source)
    one.update(key.encode(errors="surrogatepass"))
    one.update(b"\0")
    one.update(digest)
    return _text(one.digest()[:SHORT])


def names_digest(names: Collection[str]) -> str:
    """A few characters for a set of names, for a state too large to list them."""
    return _text(hashlib.sha256(msgspec.json.encode(sorted(names))).digest()[:SHORT])


def _digests(
    source: Source, ways: Collection[tuple[Comparison, ...]]
) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
    """The digests of all keys as bytes, and those in other forms, by form."""
    digests: dict[str, bytes] = {}
    forms: dict[str, dict[str, bytes]] = {}
    for key, value, binary in _values(source):
        digests[key] = key_digest(value, binary=binary)
        for form in {form_of(key, one) for one in ways} - {BYTES, IGNORE}:
            forms.setdefault(form, {})[key] = key_digest(canonical(form, value), binary=binary)
    return digests, forms


def _values(source: Source) -> Iterator[tuple[str, bytes, bool]]:
    """Each key with its bytes, and whether it is one of `binaryData`."""
    secret = isinstance(source, SecretSource)
    for key, value in (source.data or {}).items():
        yield key, _decoded(value) if secret else str(value or "").encode(errors="surrogatepass"), False
    for key, value in (source.binary_data or {}).items():
        yield key, _decoded(value), True


def _decoded(value: Any) -> bytes:
    """The bytes behind base64 text. What is no base64 is hashed as it is: any change of it is still a change."""
    text = str(value or "")
    try:
        decoded: bytes = msgspec.convert(text, bytes)
    except msgspec.ValidationError:
        return text.encode(errors="surrogatepass")
    return decoded


def _seeded(source: SourceRef) -> Any:
    return hashlib.sha256(b"%b\0%b\0" % (VERSION, str(source).encode()))


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
