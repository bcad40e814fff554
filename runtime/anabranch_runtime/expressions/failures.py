"""Failed expressions of a task, and the queries whose results are missing for them.

An expression that fails (ANSI mode: division by zero, overflow, a cast) concerns exactly the
queries that need it. A task records it, skips the work that depends on it, and goes on: its batch
is whole for all other queries. The driver then takes the failed queries out (``driver``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch_contract.protocol.activations import Failure
from anabranch_runtime.errors import AnabranchRuntimeError, ExpressionError, KeyTypeError

#: Errors that belong to an expression, and so to the queries that have it.
EVALUATION = (ExpressionError, KeyTypeError)


@dataclass(slots=True)
class Failures:
    """The failures of one task in one batch: of each query the first."""

    batch: int
    found: dict[str, Failure] = field(default_factory=dict)

    def add(self, queries: Iterable[str], error: AnabranchRuntimeError) -> None:
        """Record that ``error`` concerns ``queries``.

        Raises:
            AnabranchRuntimeError: ``error`` itself, where it concerns no query: then something else
                is wrong.
        """
        concerned = sorted(queries)
        if not concerned:
            raise error
        for query in concerned:
            self.found.setdefault(
                query,
                Failure(error.code, error.message, error.field, self.batch, error.remedy),
            )
