"""The planner's normalised form of a query: part of the query's record and of answers."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Closed


class AliasInfo(Closed):
    """One alias of a query: its stream, local filter, relation and canonical label."""

    alias: str
    stream: str
    relation: str
    label: str
    filter: list[str] = Field(default=[])


class ClassInfo(Closed):
    """Attributes (``alias.attribute``) that the query's equi-joins make equal."""

    type: str
    members: list[str]


class BoundInfo(Closed):
    """Time bound: ``later``'s event time minus ``earlier``'s is at most ``micros`` microseconds."""

    earlier: str
    later: str
    micros: int
    duration: str


class OutputInfo(Closed):
    """One column of a query's results."""

    name: str
    type: str


class ViewInfo(Closed):
    """Post-join operators of a query.

    Attributes:
        identity: the columns of a change that identify the view's row; empty: the view has one row
            only.
        joined: the columns of the joined rows, with their expressions.
        keys, aggregates: the GROUP BY keys and the aggregates; empty if joined rows are ranked.
        copies: number of rows per group, if the view has INTERSECT ALL or EXCEPT ALL.
        limits: the conditions on `current_timestamp`, by which joined rows come and leave.
        sets: the keys of each of the GROUPING SETS; empty: rows are grouped by all keys.
        partition: columns of PARTITION BY: joined rows are ranked and limited per value.
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
        partner: the alias of its right side; of the first, if it is a join.
        nearest: condition of an ASOF join; null: another join.
    """

    kind: str
    partner: str
    nearest: str | None = None

    @property
    def join(self) -> str:
        """Name of the join, such as ``left join``."""
        kinds = [] if self.nearest is None else ["asof"]
        kinds += [self.kind] if self.nearest is None or self.kind != "inner" else []
        return " ".join([*kinds, "join"])


class OuterInfo(Closed):
    """A query's outer, semi or anti join after its inner joins, or a chain of such joins.

    Attributes:
        kind: ``left``, ``full``, ``semi`` or ``anti``; with several joins, of the first.
        partner: the alias of the right side; with several joins, of the first.
        left: the columns that identify left rows.
        deadline: the latest event time of a partner, as an expression over event times; null for
            a chain: rows of tables are looked up in the left row's batch, partners in streams may
            come at any time.
        look_ups: the joins of a chain, in order.
        where: conditions on the results of these joins.
        changes: whether right sides are streams without a deadline: results are then changes.
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
        view: aggregates, ORDER BY and LIMIT, which define the columns ``output``; null: none.
        outer: the outer, semi or anti join; null: none.
        branches: the aliases of each branch of a set operation, whose rows together are the
            results, or the joined rows of the view; empty: it has none.
        expansions: functions that make rows of the elements of arrays and maps, with the conditions
            over them; output columns read the elements of the first as ``#1.col``.
        bounds: all time bounds between two aliases, including implied ones.
        unbounded: aliases whose tuples have to be stored for ever.
        notes: possible surprises, in sentences.
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
        """Whether the sink gets a view's or an outer join's rows instead of joined rows."""
        return self.view is not None or self.outer is not None
