"""Sources as digests: enough to see that a key changed, and useless for anything else. Pure.

ConfigMaps and Secrets are hashed the moment they are decoded and their values are dropped, so memory holds 32 bytes per
key and no value ever. Two levels:

    key digest     sha256 over one value, in memory only: of its bytes, and of each canonical form it is compared in
    edge digest    sha256 over the used keys, their digests and the name of the source, and of that an HMAC-SHA256 with
                   a key of the operator (`digest_keys`); written to the workload

The name of the source is part of the edge digest, so equal values in two sources do not have equal digests. Without
the key no guess can be tested against a digest. Other programs' hashes of the whole data (`Hash`) are computed at the
same moment, the only one at which the values are in memory.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import field
from msgspec.structs import replace

from steersman.bounded_parsing import BudgetError
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.api.types.core import ConfigMap, Secret
from steersman.operators.reload.api.annotations import (
    PREFIX,
    SourceSettings,
    misspelt_dialect,
    read_source_settings,
)
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.sources.compare import AT_DECODE, IGNORE, Canonical, comparisons_for, forms_by_key
from steersman.operators.reload.sources.digest_keys import UNKEYED, DigestKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from steersman.operators.reload.api.config import CompareConfig
    from steersman.operators.reload.sources.compare import CompareRule

VERSION: Final = b"steersman/1"  # of the edge digest; computed otherwise it is another version
SHORT: Final = 9  # bytes of a short digest, 12 characters: names the keys that changed, decides nothing alone


class Hash(Protocol):
    """Another program's hash over a whole source."""

    name: str

    def __call__(self, kind: SourceKind, data: Mapping[str, Any] | None, binary: Mapping[str, Any] | None) -> str:
        """The hash of data as it is on the wire: text in a ConfigMap's data, base64 text elsewhere."""


class Demand(Protocol):
    """By which rules sources are compared; implemented by `sources.digest_cache`."""

    while_decoding: bool  # hash values in all forms at once; otherwise only in those that take next to no time

    def of(self, source: SourceRef) -> Iterable[tuple[CompareRule, ...]]:
        """All lists of rules by which workloads compare the keys of a source."""

    def superseded(self, source: SourceRef, revision: str) -> None:
        """A version of a source was decoded."""


class Source(Resource):
    """A ConfigMap or Secret as it is kept: no values, and no annotations but those that mean something here."""

    digests: dict[str, bytes] = field(default_factory=dict, name="steersman.dev/digests")
    hashes: dict[str, str] = field(default_factory=dict, name="steersman.dev/hashes")
    settings: SourceSettings = field(default=SourceSettings(), name="steersman.dev/settings")
    forms: dict[str, dict[str, bytes]] = field(
        default_factory=dict, name="steersman.dev/forms"
    )  # form -> key -> digest
    beyond: frozenset[str] = field(
        default=frozenset(), name="steersman.dev/beyond"
    )  # keys that cost too much to compare them in another form than their bytes
    data: dict[str, Any] | None = None  # on the wire only
    binary_data: dict[str, Any] | None = None  # on the wire only

    @property
    def source(self) -> SourceRef:
        """Its name as edges know it."""
        return SourceRef(SourceKind(type(self).KIND.kind.lower()), self.namespace, self.name)

    def compared(self, rules: Collection[CompareRule]) -> dict[str, bytes]:
        """The digests of the keys that count, each in its form; of bytes, where it was not hashed in that form."""
        if not rules:
            return self.digests
        forms = forms_by_key(self.digests, rules)
        return {
            key: self.forms.get(forms[key], {}).get(key, digest) if key in forms else digest
            for key, digest in self.digests.items()
            if forms.get(key) != IGNORE
        }

    def lacks(self, rules: Collection[CompareRule]) -> bool:
        """Whether a key was not hashed in the form in which it is compared."""
        forms = forms_by_key(self.digests, rules)
        return any(form != IGNORE and key not in self.forms.get(form, ()) for key, form in forms.items())

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

    Keys are hashed as bytes, and in the forms of `demand`: nothing is parsed unless a workload asks for it. Without
    `demand`, in the forms that the source itself or `compare` asks for.
    """

    def digested(source: Source) -> Source:
        kind = SourceKind(type(source).KIND.kind.lower())
        meta = source.metadata
        kept = {
            name: value for name, value in source.annotations.items() if name in annotations or name.startswith(PREFIX)
        }
        settings = read_source_settings(kept)
        if wrong := misspelt_dialect(source.annotations, annotations):
            settings = replace(settings, problems=(*settings.problems, *wrong))
        values = bool(source.data or source.binary_data)
        ref = SourceRef(kind, meta.namespace, meta.name)
        if demand is None or demand.while_decoding:
            rule_sets = {(*settings.compare, *comparisons_for(compare, kind.value, meta.namespace, meta.name))}
            rule_sets.update(demand.of(ref) if demand is not None else ())
            forms, beyond = hash_forms(source, rule_sets)
        else:
            forms, beyond = hash_forms(source, demand.of(ref), at_once=True)
        if demand is not None:
            demand.superseded(ref, meta.resource_version)
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
            digests=_digests(source) if values else source.digests,
            forms=forms if values else source.forms,
            beyond=beyond if values else source.beyond,
            hashes=source.hashes
            or {compute.name: compute(kind, source.data, source.binary_data) for compute in hashes},
            settings=settings,
        )

    return digested


def key_digest(value: bytes, *, binary: bool = False) -> bytes:
    """The digest of one value. A key of `binaryData` differs from one of `data`: environments show only the latter."""
    return hashlib.sha256((b"b" if binary else b"d") + value).digest()


def edge_digest(
    source: SourceRef, digests: Mapping[str, bytes], keys: Iterable[str] | None = None, *, key: DigestKey = UNKEYED
) -> str:
    """The digest over the used keys of a source (None: all of them): 43 characters, whatever the number of keys."""
    total = _seeded(source)
    for used in sorted(digests if keys is None else set(keys) & set(digests)):
        name = used.encode(errors="surrogatepass")
        total.update(b"%d:%b" % (len(name), name))
        total.update(digests[used])
    return _text(_keyed(total.digest(), key))


def short_digest(source: SourceRef, name: str, digest: bytes, *, key: DigestKey = UNKEYED) -> str:
    """A few characters that change when the key of that name changes."""
    total = _seeded(source)
    total.update(name.encode(errors="surrogatepass"))
    total.update(b"\0")
    total.update(digest)
    return _text(_keyed(total.digest(), key)[:SHORT])


def names_digest(names: Collection[str]) -> str:
    """A few characters for a set of names, for a state too large to list them."""
    return _text(hashlib.sha256(msgspec.json.encode(sorted(names))).digest()[:SHORT])


def hash_forms(
    source: Source, rule_sets: Iterable[tuple[CompareRule, ...]], *, at_once: bool = False
) -> tuple[dict[str, dict[str, bytes]], frozenset[str]]:
    """The digests of the values in other forms than bytes, by form, and the keys whose bytes were hashed
    instead, because they cost too much.

    This may take a second: `steersman.bounded_parsing.off_loop` is for that. With `at_once`, only JSON that is short
    enough to take no longer than hashing does; the rest is left out.
    """
    forms: dict[str, dict[str, bytes]] = {}
    beyond: set[str] = set()
    keys = {*(source.data or ()), *(source.binary_data or ())}
    asked = {row for rules in rule_sets for row in forms_by_key(keys, rules).items() if row[1] != IGNORE}
    if at_once:
        asked = {row for row in asked if row[1] == "json"}
    if not asked:
        return forms, frozenset()
    values = {key: (value, binary) for key, value, binary in _values(source)}
    if at_once and sum(len(values[key][0]) for key, _ in asked) > AT_DECODE:
        return forms, frozenset()
    canonical = Canonical()
    for key, form in sorted(asked):
        value, binary = values[key]
        try:
            value = canonical(form, value)
        except BudgetError:
            beyond.add(key)
        forms.setdefault(form, {})[key] = key_digest(value, binary=binary)
    return forms, frozenset(beyond)


def _digests(source: Source) -> dict[str, bytes]:
    """The digests of all keys as bytes."""
    return {key: key_digest(value, binary=binary) for key, value, binary in _values(source)}


def _values(source: Source) -> Iterator[tuple[str, bytes, bool]]:
    """Each key with its bytes, and whether it is one of `binaryData`."""
    secret = isinstance(source, SecretSource)
    for key, value in (source.data or {}).items():
        yield key, _decoded(value) if secret else str(value or "").encode(errors="surrogatepass"), False
    for key, value in (source.binary_data or {}).items():
        yield key, _decoded(value), True


def _decoded(value: Any) -> bytes:
    """The bytes behind base64 text. Invalid base64 is hashed as it is: any change of it is still a change."""
    text = str(value or "")
    try:
        decoded: bytes = msgspec.convert(text, bytes)
    except msgspec.ValidationError:
        return text.encode(errors="surrogatepass")
    return decoded


def _seeded(source: SourceRef) -> Any:
    return hashlib.sha256(b"%b\0%b\0" % (VERSION, str(source).encode()))


def _keyed(digest: bytes, key: DigestKey) -> bytes:
    return hmac.digest(key.secret, digest, "sha256") if key.secret else digest


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
