"""Service-level objectives of a query: part of its registration, its record and its answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from anabranch_contract.rest.documents import Closed, Duration

#: The alias of a query; it has the same maximum length as names of columns.
_Alias = Annotated[str, Field(min_length=1, max_length=256)]


class Slo(Closed):
    """The service level objectives of a query (``docs/semantics.md``, "Rations").

    Attributes:
        latency: maximum time from a row's arrival to the commit of its results, at least 100
            milliseconds.
        freshness: alias -> maximum age, in event time, of its tuple when a result is emitted.
        completeness: minimum share of results to emit under load shedding.
    """

    latency: Duration | None = Field(default=None, examples=["2 seconds"])
    freshness: dict[_Alias, Duration] = Field(
        default_factory=dict, max_length=100, examples=[{"o": "12 minutes"}]
    )
    completeness: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None

    def changed(self, change: Slo | None) -> Slo:
        """Return the objectives with the fields set in ``change``; without objectives if None."""
        given = Slo() if change is None else change
        keys = Slo.model_fields if change is None else given.model_fields_set
        return self.model_copy(update={key: getattr(given, key) for key in keys})
