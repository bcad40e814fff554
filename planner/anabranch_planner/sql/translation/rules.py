"""Common parts of the dialects' translation rules for functions, times and aggregates."""

from __future__ import annotations

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.types import TypeKind
from anabranch_planner.sql.translation.kinds import Types
from anabranch_planner.sql.unresolved import Node, unsupported

#: Remedy for a construct of another dialect that is not translated.
SPARKS = "write the statement in Spark's dialect"


def not_translated(what: str, dialect: str, remedy: str) -> QueryError:
    """The error for ``what`` in ``dialect``; ``what`` ends with a comma after a relative clause."""
    comma = "," if what.endswith(",") else ""
    return unsupported(f"{what.removesuffix(',')} (read as {dialect}){comma}", remedy)


class DialectRules:
    """Translation rules for one statement in ``dialect``, whose expressions have ``types``."""

    def __init__(self, dialect: str, types: Types) -> None:
        self._dialect, self._types = dialect, types

    def _refused(self, what: str, remedy: str) -> QueryError:
        return not_translated(what, self._dialect, remedy)

    def _are(self, node: Node, wanted: frozenset[TypeKind]) -> bool:
        """Whether all possible types of a dialect's expression ``node`` are in ``wanted``."""
        kinds = self._types.of(node)
        return bool(kinds) and kinds <= wanted


def call_of(name: str, *arguments: Node) -> exp.Anonymous:
    """Return a call of a function of Spark with copies of the arguments."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])
