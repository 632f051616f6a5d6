"""What the API server would not have of the objects that we make: for whoever asked for them to say. Pure.

Such an answer does not change until somebody changes what was asked for, or a quota; it is no fault of this process.
Rights that are missing are: those are left to the runtime, which says what Role would help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.errors import BadRequest, Forbidden, Invalid

if TYPE_CHECKING:
    from steersman.kube.errors import KubeError

__all__ = ["denial_of"]

LONGEST: Final = 500  # of what a server says: a policy may say anything


def denial_of(error: KubeError) -> tuple[str, str] | None:
    """Reason and message of a condition, when the server looked at an object and said no."""
    text = f"the API server refuses it: {error.message[:LONGEST]}"
    if isinstance(error, (BadRequest, Invalid)):
        return "ConfigurationInvalid", text
    if isinstance(error, Forbidden) and error.rule is None:  # a quota, or a policy of the cluster
        return "Forbidden", text
    return None
