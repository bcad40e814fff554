"""Failed expressions of a task, and the queries that fail with them.

An expression that fails (ANSI mode: division by zero, overflow, a cast) fails exactly the queries
that need it. A task records the error, skips the work that depends on the expression, and goes on,
so that its batch is complete for all other queries. The driver then removes the failed queries
(``epochs.failed_queries``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch_contract.protocol.activations import Failure
from anabranch_runtime.errors import AnabranchRuntimeError, ExpressionError, KeyTypeError

#: Types of errors of an expression that make only the queries that use it fail.
EVALUATION = (ExpressionError, KeyTypeError)


@dataclass(slots=True)
class Failures:
    """Failed queries of one task in one batch, each with its first error."""

    batch: int
    found: dict[str, Failure] = field(default_factory=dict)

    def add(self, queries: Iterable[str], error: AnabranchRuntimeError) -> None:
        """Record an expression's ``error`` as the failure of ``queries``.

        Raises:
            AnabranchRuntimeError: ``error`` itself, if ``queries`` is empty.
        """
        concerned = sorted(queries)
        if not concerned:
            raise error
        for query in concerned:
            self.found.setdefault(
                query, Failure(error.code, error.message, error.field, self.batch, error.remedy)
            )
