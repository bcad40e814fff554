"""Errors of the service as errors of Flight, whose only content is a status and a text."""

from __future__ import annotations

from pyarrow import flight

from anabranch_contract.errors import StructuredError
from anabranch_service.access.gate import Forbidden, TooManyFailures, Unauthorized
from anabranch_service.errors import Busy


def as_flight(error: StructuredError) -> Exception:
    """Return Flight's error with the code, message, field and remedy of ``error``."""
    place = f" ({error.field})" if error.field else ""
    remedy = f"; {error.remedy}" if error.remedy else ""
    text = f"{error.code}{place}: {error.message}{remedy}"
    # Errors of other classes than Flight's would be sent with a traceback.
    kind: type[Exception] = flight.FlightServerError
    if isinstance(error, Unauthorized | TooManyFailures):
        kind = flight.FlightUnauthenticatedError
    elif isinstance(error, Forbidden):
        kind = flight.FlightUnauthorizedError
    elif isinstance(error, Busy):
        kind = flight.FlightUnavailableError
    return kind(text)
