"""What the embedded API server and the real control plane have in common, as far as tests need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ApiServer"]


class ApiServer(Protocol):
    """A running API server, and full access to it."""

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""

    @property
    def token(self) -> str:
        """A bearer token that may do everything."""

    @property
    def ca_pem(self) -> str:
        """The authority that signed its certificate."""

    def kubeconfig(self) -> str:
        """Full access, as YAML."""

    def write_kubeconfig(self, path: Path, /) -> object:
        """Write full access to a file."""
