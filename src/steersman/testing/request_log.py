"""What a client asked of its server: "this reconcile made exactly these writes", on any server.

with RequestLog(client) as log:
    ...
assert log.writes == ["PATCH /apis/apps/v1/namespaces/shop/deployments/web"]
log.clear()                       # and go on
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from steersman.kube.client.client import Client

__all__ = ["RequestLog"]


class RequestLog:
    """The requests of one client between two moments. Clients made by `with_options` share it."""

    def __init__(self, client: Client) -> None:
        self._transport: Any = client.transport
        self.requests: list[str] = []  # method and path, in order

    @property
    def writes(self) -> list[str]:
        """The requests that could change something."""
        return [request for request in self.requests if not request.startswith("GET ")]

    def clear(self) -> None:
        """Forget what was asked so far."""
        self.requests.clear()

    def __enter__(self) -> Self:
        request, stream = self._transport.request, self._transport.stream

        def noting(forward: Any) -> Any:
            def noted(*arguments: Any, **options: Any) -> Any:
                place = inspect.signature(forward).bind(*arguments, **options).arguments
                self.requests.append(f"{place.get('method', 'GET')} {place['path']}")
                return forward(*arguments, **options)

            return noted

        self._transport.request, self._transport.stream = noting(request), noting(stream)
        return self

    def __exit__(self, *error: object) -> None:
        del self._transport.request, self._transport.stream
