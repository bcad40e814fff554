"""The planner's normalised form of a query: part of the query's record and of answers."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Closed


class AliasInfo(Closed):
    """One alias of a query.

    Attributes:
        alias: name of the alias.
        stream: stream whose tuples the alias has.
        relation: id of the alias's relation, which has the stream's tuples that pass the filter.
        label: its canonical name in plans.
        filter: conditions of its local filter; empty: all tuples.
    """

    alias: str
    stream: str
    relation: str
    label: str
    filter: list[str] = Field(default=[])


class ClassInfo(Closed):
    """A key class: attributes that the query's equi-joins make equal.

    Attributes:
        type: common type for comparison.
        members: the attributes, each as ``alias.attribute``.
    """

    type: str
    members: list[str]


class BoundInfo(Closed):
    """Time bound: the event time of ``later`` minus that of ``earlier`` is at most ``micros``.

    Attributes:
        earlier: alias whose event time is subtracted.
        later: alias from whose event time it is subtracted.
        micros: greatest difference, in microseconds.
        duration: the same difference as a duration.
    """

    earlier: str
    later: str
    micros: int
    duration: str


class OutputInfo(Closed):
    """One column of a query's results.

    Attributes:
        name: name of the column.
        type: type of the column, as Spark's simple type string.
    """

    name: str
    type: str


class ViewInfo(Closed):
    """The post-join part of a query.

    Attributes:
        identity: the columns that identify a row of the view in changes; empty: it has one row.
        joined: the columns of the joined rows, with their expressions.
        keys: the GROUP BY keys; empty if joined rows are ranked.
        aggregates: the aggregates; empty if joined rows are ranked.
        having: condition of HAVING; None: none.
        copies: number of rows per group (an expression), for INTERSECT ALL or EXCEPT ALL.
        order: keys of ORDER BY, with ``DESC`` where descending.
        limit: maximum number of rows; None: no limit.
        offset: number of first rows that are skipped.
        limits: the conditions on `current_timestamp` by which joined rows enter and leave the view.
        sets: the keys of each of the GROUPING SETS; empty: rows are grouped by all keys.
        partition: columns of PARTITION BY; rows with equal values are ranked separately.
        ranking: `row_number`, `rank` or `dense_rank`; null: the view has no ranking function.
        changes: all columns of a change (an upsert or delete of a row of the view).
    """

    identity: list[str]
    joined: list[str]
    keys: list[str]
    aggregates: list[str]
    having: str | None = None
    copies: str | None = None
    order: list[str] = Field(default=[])
    limit: int | None = None
    offset: int = 0
    limits: list[str] = Field(default=[])
    sets: list[list[str]] = Field(default=[])
    partition: list[str] = Field(default=[])
    ranking: str | None = None
    changes: list[OutputInfo]


class LookUpInfo(Closed):
    """One join of a chain of outer, semi and anti joins.

    Attributes:
        kind: ``left``, ``full``, ``semi``, ``anti``, or ``inner`` for a join after such a join.
        partner: the alias on the right side; the first alias if the right side is a join.
        nearest: condition of an ASOF join; null: it is no ASOF join.
    """

    kind: str
    partner: str
    nearest: str | None = None

    @property
    def join(self) -> str:
        """Name of this join, such as ``left join``."""
        kinds = [] if self.nearest is None else ["asof"]
        kinds += [self.kind] if self.nearest is None or self.kind != "inner" else []
        return " ".join([*kinds, "join"])


class OuterInfo(Closed):
    """A query's outer, semi or anti join after its inner joins, or a chain of such joins.

    Attributes:
        kind: ``left``, ``full``, ``semi`` or ``anti``; in a chain the kind of the first join.
        partner: the alias on the right side; in a chain that of the first join.
        left: the columns that identify left rows.
        deadline: the latest event time of a partner, as an expression over event times. Null for a
            chain: rows of tables are looked up in the left row's batch, and partners in streams may
            arrive at any time.
        look_ups: the joins of a chain, in order; empty: no chain.
        where: conditions on the results of these joins.
        changes: whether right sides are streams without a deadline, so results may be deleted.
    """

    kind: str
    partner: str
    left: list[str]
    deadline: str | None
    look_ups: list[LookUpInfo] = Field(default=[])
    where: list[str] = Field(default=[])
    changes: bool = False


class NormalisedInfo(Closed):
    """A query in the planner's normal form.

    Attributes:
        aliases: the aliases of all joins of the query.
        classes: classes of attributes that its equi-joins make equal.
        bounds: all time bounds between two aliases, including implied ones.
        unbounded: aliases whose tuples have to be stored for ever.
        residuals: conditions over several aliases that are neither equalities nor time bounds.
        output: the columns of its results.
        view: the aggregates, ORDER BY and LIMIT that define the columns ``output``; null: none.
        outer: the outer, semi or anti join; null: none.
        branches: the aliases of each branch of a set operation. The branches' rows together are the
            results, or the joined rows of the view. Empty: no set operation.
        expansions: functions that expand arrays and maps into rows, with the conditions over them;
            output columns read the elements of the first as ``#1.col``.
        notes: properties of the query that may surprise, as sentences.
    """

    aliases: list[AliasInfo]
    classes: list[ClassInfo]
    bounds: list[BoundInfo]
    unbounded: list[str]
    residuals: list[str]
    output: list[OutputInfo]
    view: ViewInfo | None = None
    outer: OuterInfo | None = None
    branches: list[list[str]] = Field(default=[])
    expansions: list[str] = Field(default=[])
    notes: list[str] = Field(default=[])

    @property
    def post_join(self) -> bool:
        """Whether the sink receives rows of a view or an outer join instead of joined rows."""
        return self.view is not None or self.outer is not None
