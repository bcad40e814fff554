"""Repeated calls while the service does not answer, as during a restart of the pipeline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from anabranch_client.errors import ApiError

T = TypeVar("T")

#: Seconds for which a running stream waits for a service that does not answer.
PATIENCE = 300.0
_PAUSE = 1.0
#: No answer; or answers of a proxy, or of a service that starts or waits for Redis.
_AWAY = frozenset({0, 502, 503, 504})
_LOG = logging.getLogger(__name__)


def patiently(call: Callable[[], T], patience: float = PATIENCE) -> T:
    """Call ``call`` until the service answers.

    Args:
        call: a request that may be sent twice.
        patience: seconds after which the error is raised.

    Raises:
        ApiError: the service refused the request, or has not answered for ``patience``.
    """
    began = time.monotonic()
    warned = False
    while True:
        try:
            return call()
        except ApiError as refused:
            if refused.status not in _AWAY or time.monotonic() - began >= patience:
                raise
            if not warned:
                _LOG.warning("%s; waiting for up to %d s", refused, patience)
                warned = True
            time.sleep(_PAUSE)
