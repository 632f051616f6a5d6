"""Which requests change something, and the same request as a dry run. Pure.

Reviews (TokenReview, SubjectAccessReview and the like) are posted and store nothing: they are reads. Everything else
that is not GET, HEAD or OPTIONS is a write, and so is a GET that opens a connection into a pod. Kubernetes takes
`dryRun=All` as a query parameter of every write but a delete with a body, where the DeleteOptions say it. What acts the
moment it is asked for (a token, a command in a pod or to another API server, a proxied call) has no dry run at all.

A `WriteInterceptor` is asked about every write of the clients made by `Client.guarded`, and about every attempt of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WriteInterceptor", "WriteRequest", "dry_run_of", "is_write"]

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REVIEW: Final = re.compile(r"/apis/auth(?:entication|orization)\.k8s\.io/[^/]+/(?:namespaces/[^/]+/)?[a-z]+reviews")
_NO_DRY_RUN: Final = re.compile(
    r"/api/v1/(?:namespaces/[^/]+/(?:pods|services|serviceaccounts)|nodes)/[^/]+/"
    r"(?:token|exec|attach|portforward|proxy)(?:/.*)?"
)
# A POST to a part of an object is a command to an aggregated API server, which need not know the parameter.
_COMMAND: Final = re.compile(r"/apis/[^/]+/[^/]+/(?:namespaces/[^/]+/)?(?!namespaces/)[^/]+/[^/]+/.+")
_UPGRADED: Final = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/(?:exec|attach|portforward)")  # GET acts there too


class WriteRequest(NamedTuple):
    """A request that may change something."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None


class WriteInterceptor(Protocol):
    """Decides which writes are sent, and how."""

    def prepare(self, write: WriteRequest) -> WriteRequest:
        """The write as it is to be sent, e.g. as a dry run; raises when it must not be sent."""

    def admit(self, write: WriteRequest) -> None:
        """Raise when the write must not be sent now; asked when the connection is there, before every attempt."""


def is_write(method: str, path: str) -> bool:
    """Whether a request may change something.

    >>> is_write("GET", "/api/v1/pods"), is_write("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    (False, False)
    """
    path = path.partition("?")[0]
    if method in _READS:
        return _UPGRADED.fullmatch(path) is not None
    return _REVIEW.fullmatch(path) is None


def dry_run_of(write: WriteRequest) -> WriteRequest | None:
    """The same write as a dry run; None when the request has no dry run.

    >>> dict(dry_run_of(WriteRequest("POST", "/api/v1/namespaces/shop/configmaps", {}, b"{}")).params)
    {'dryRun': 'All'}
    """
    path, _, query = write.path.partition("#")[0].partition("?")
    if _NO_DRY_RUN.fullmatch(path) is not None or (write.method == "POST" and _COMMAND.fullmatch(path) is not None):
        return None
    if write.method == "DELETE" and write.body:
        return write._replace(body=_pretended_delete(write.body))
    kept = "&".join(part for part in query.split("&") if part and not part.startswith("dryRun="))
    return write._replace(path=f"{path}?{kept}" if kept else path, params={**write.params, "dryRun": "All"})


def _pretended_delete(body: bytes) -> bytes:
    options: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    return msgspec.json.encode({**options, "dryRun": ["All"]})
