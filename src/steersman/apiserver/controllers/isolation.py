"""One key at a time: what goes wrong with one object never keeps a controller from the others.

A refusal is an answer, and the object stays as it is. Anything else is a bug and is logged with its place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ParamSpec

from steersman.apiserver.status_errors import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
_logger = logging.getLogger(__name__)


def reconcile_alone(step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call `step`; the caller goes on with its next key in any case."""
    try:
        step(*args, **kwargs)
    except StatusError as error:
        _logger.debug("refused", extra={"why": error.message})
    except Exception:
        _logger.exception("reconcile failed", extra={"step": step.__qualname__, "key": str(args)})
