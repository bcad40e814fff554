"""Places of ``current_timestamp``: columns of results that are never deleted.

Its value is the time of the batch that emits a result (``semantics.md``, "Time of a batch"). A
condition with it would change its value without any tuple, and a delete would carry another value
than its insert did.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract import codec
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import NOW
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.views import CHANGE

_CALL = f'"op":"{NOW}"'


def check(query: JoinQuery) -> None:
    """Refuse ``current_timestamp`` elsewhere.

    Raises:
        QueryError: ``unsupported-sql``.
    """
    if not _reads(query):
        return
    # Branches of a union all have the same kinds of columns.
    parts = [
        replace(one, projection=(), view=None, outer=None, left=None, others=())
        for one in query.planned
    ]
    if any(map(_reads, parts)):
        raise _refused(
            "in a condition, which would change with the time alone",
            "compare event times with each other or a literal; for the last day write GROUP BY "
            "window(ts, '24 hours', '1 hour')",
        )
    if query.view is not None or query.outer is not None:
        raise _refused(
            "beside groups, DISTINCT, LIMIT or an outer join, whose results may be deleted again",
            "leave it out, or compute it where the results are read",
        )
    if any(output.name == CHANGE for output in query.projection):
        raise _refused(
            "in a query over streams of changes, where a delete would have another value",
            "leave it out; streams and queries without changes may have it",
        )


def _reads(query: JoinQuery) -> bool:
    return _CALL in codec.dumps(query)


def _refused(where: str, remedy: str) -> QueryError:
    return QueryError("unsupported-sql", f"{NOW}() stands {where}", remedy=remedy)
