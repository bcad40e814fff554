"""Translation of SQL into a logical plan of binary joins.

sqlglot parses the statement and resolves all names (``qualify``); queries in FROM that only join,
filter and project are inlined (``inline``). Then the statement is converted into a plan: each
condition is in the lowest node that has all columns it reads, joins are in the order of FROM except
for cross products, which come last, and exchange nodes are inserted where a join or an aggregation
needs rows partitioned by key.

Queries inside conditions become joins where SQL's meaning allows it:

- ``EXISTS`` and ``IN`` become semi joins, ``NOT EXISTS`` and ``NOT IN`` anti joins; conditions that
  refer to the outer query become conditions of the join. ``x NOT IN (SELECT y ...)`` holds only
  where no ``y`` is equal to ``x`` and neither is NULL, so the anti join's condition is ``x = y OR x
  IS NULL OR y IS NULL``.
- A comparison with an aggregate (``= (SELECT min(...) ...)``) becomes an inner join with the
  aggregate, grouped by the columns that the outer query's columns must equal. A row without a group
  would be compared with NULL, which is never true, so losing it is correct; ``count`` is refused,
  since it would be 0 for such a row.

Other queries stay inside their expression, with a separate plan, if they are uncorrelated; else the
statement is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.logical.nodes import (
    ANTI,
    FULL,
    LEFT,
    RIGHT,
    SEMI,
    Aggregate,
    Conjunct,
    Exchange,
    Limit,
    Node,
    Project,
    ProjectedColumn,
    Scan,
    Sort,
)
from anabranch_planner.sql.dialects import SPARK
from anabranch_planner.sql.unresolved import position_of
from benchmarks.papers.tsc.blocks import Block, outer_joined
from benchmarks.papers.tsc.nodes import (
    Distinct,
    Named,
    NestedCondition,
    NestedItem,
    Query,
    SetOperation,
    filtered,
    queries_of,
)
from benchmarks.papers.tsc.reading import (
    aggregates_of,
    conjuncts,
    grouping_keys,
    inner_tables,
    is_plain,
    only_value,
    own_tables,
    queries_in,
    tables_outside,
    tables_read,
)
from benchmarks.papers.tsc.statements import Catalog, read_statement, refused

#: Mark of a query inside an expression: ``QUERY.format(n)``; queries are numbered per statement.
QUERY = "__query_{}__"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_JOINS = {"LEFT": LEFT, "RIGHT": RIGHT, "FULL": FULL}
_PARTS = {
    "with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "order",
    "limit", "offset", "hint", "kind",
}  # fmt: skip


def translate(sql: str, catalog: Catalog, dialect: str = SPARK) -> Node:
    """Return the logical plan of ``sql``.

    Args:
        sql: one query, with no semicolon but at its end.
        catalog: the existing tables.
        dialect: sqlglot's name of the dialect of ``sql``.

    Raises:
        QueryError: ``malformed-sql``, ``unknown-name``; ``unsupported-sql`` names the construct.
    """
    statement = read_statement(sql, catalog, dialect)
    try:
        return _Translation().query(statement, {})
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql", "the statement is nested too deeply", remedy="use fewer parentheses"
        ) from cause


class _Translation:
    """Translation of one statement; numbers the names that it invents."""

    def __init__(self) -> None:
        self._made = 0
        self._marks = 0

    def query(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Node:
        """Return the plan of a query, at any place in the statement."""
        if isinstance(node, exp.Subquery | exp.Paren):
            if any(node.args.get(part) for part in ("order", "limit", "with_")):
                raise refused("a clause after a query in parentheses", node)
            return self.query(node.this, ctes)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, self._with(node, ctes))
        if not isinstance(node, exp.Select):
            raise refused(f"{type(node).__name__.upper()} as a query", node)
        return self._select(node, self._with(node, ctes))

    def _with(self, node: exp.Query, ctes: Mapping[str, Node]) -> Mapping[str, Node]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise refused("WITH RECURSIVE", clause, "write out as many joins as are wanted")
        known = dict(ctes)
        for cte in clause.expressions:
            known[cte.alias] = self.query(cte.this, known)
        return known

    def _set_operation(self, node: exp.SetOperation, ctes: Mapping[str, Node]) -> Node:
        kind = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
        sides = self.query(node.this, ctes), self.query(node.expression, ctes)
        plan: Node = SetOperation(sides, kind)
        return self._ordered(node, plan, ctes)

    def _select(self, select: exp.Select, ctes: Mapping[str, Node]) -> Node:
        for part, value in select.args.items():
            if value and part not in _PARTS:
                raise refused(
                    part.strip("_").upper(), value if isinstance(value, exp.Expr) else select
                )
        if not select.expressions:
            raise QueryError(
                "malformed-sql",
                "a SELECT list is empty",
                remedy="name columns in it",
                position=position_of(select),
            )
        plan = self._from(select, ctes)
        group, having = select.args.get("group"), select.args.get("having")
        calls = aggregates_of(select)
        if group is not None or having is not None or calls:
            keys = grouping_keys(group)
            if plan is None:
                raise refused("an aggregate without FROM", select)
            plan = Aggregate((Exchange((plan,), keys) if keys else plan,), keys, calls)
        if having is not None and plan is not None:
            plan = filtered(plan, [self._condition(c, ctes) for c in conjuncts(having.this)])
        items = tuple(self._item(e, ctes) for e in select.expressions)
        rows = () if plan is None else (plan,)
        plan = Project((*rows, *queries_of(items)), items)
        distinct = select.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                raise refused("DISTINCT ON", distinct)
            plan = Distinct((plan,))
        return self._ordered(select, plan, ctes)

    def _ordered(self, node: exp.Query, plan: Node, ctes: Mapping[str, Node]) -> Node:
        order, limit, offset = (node.args.get(part) for part in ("order", "limit", "offset"))
        if order is not None:
            by = tuple(self._item(e, ctes) for e in order.expressions)
            plan = Sort((plan, *queries_of(by)), tuple(item.text for item in by))
        if limit is not None or offset is not None:
            count = limit.expression.sql(SPARK) if isinstance(limit, exp.Limit) else ""
            if limit is not None and not count:
                raise refused("FETCH", limit)
            skipped = offset.expression.sql(SPARK) if offset is not None else ""
            plan = Limit((plan,), count, skipped)
        return plan

    # --- FROM and WHERE ------------------------------------------------------------------------

    def _from(self, select: exp.Select, ctes: Mapping[str, Node]) -> Node | None:
        from_ = select.args.get("from_")
        if from_ is None:
            if select.args.get("where") is not None:
                raise refused("WHERE without FROM", select)
            return None
        block = Block([self._source(from_.this, ctes)])
        where = select.args.get("where")
        tables = own_tables(select)
        for conjunct in conjuncts(where.this) if where is not None else []:
            self._place(conjunct, block, tables, ctes)
        for join in select.args.get("joins") or ():
            self._join(join, block, ctes)
        return block.all_joined()

    def _source(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Node:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            for part, value in node.args.items():
                if value and part not in ("this", "alias", "joins"):
                    raise refused(f"{part.strip('_').upper()} after a table", node)
            known = ctes.get(node.name)
            if known is None:
                return Scan((), node.name, node.alias_or_name)
            return Named((known,), node.alias_or_name, columns_of(known))
        if isinstance(node, exp.Subquery) and not node.alias:
            inner = node.this
            if isinstance(inner, exp.Table | exp.Subquery):
                block = Block([self._source(inner, ctes)])
                for join in inner.args.get("joins") or ():
                    self._join(join, block, ctes)
                return block.all_joined()
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            plan = self.query(node.this, ctes)
            return Named((plan,), node.alias_or_name, columns_of(plan))
        raise refused(f"{node.sql(SPARK)[:40]} in FROM", node)

    def _join(self, join: exp.Join, block: Block, ctes: Mapping[str, Node]) -> None:
        right = self._source(join.this, ctes)
        side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
        on = join.args.get("on")
        if join.args.get("using") or str(join.args.get("method") or ""):
            raise refused("a join by names that differ in type", join)
        conditions = [self._condition(c, ctes) for c in (conjuncts(on) if on is not None else [])]
        if kind in (SEMI.upper(), ANTI.upper()):
            joins = kind.lower()
        elif side in _JOINS:
            joins = _JOINS[side]
        else:
            block.items.append(right)
            block.on += conditions
            return
        block.before_outer(preserved=joins not in (RIGHT, FULL))
        block.items = [outer_joined(block.items[0], right, joins, conditions)]

    def _place(
        self, conjunct: exp.Expr, block: Block, tables: set[str], ctes: Mapping[str, Node]
    ) -> None:
        """Add a conjunct of WHERE to ``block``: a condition, or a join with the query inside it."""
        negated = isinstance(conjunct, exp.Not)
        core = conjunct.this if negated else conjunct
        while isinstance(core, exp.Paren):
            core = core.this
        if isinstance(core, exp.Exists):
            inner = core.this
            if isinstance(inner, exp.Select) and is_plain(inner):
                kind = ANTI if negated else SEMI
                block.after.append(self._semi(inner, kind, [], tables, ctes))
                return
        if isinstance(core, exp.In) and core.args.get("query") is not None:
            inner = core.args["query"].this
            if isinstance(inner, exp.Select) and is_plain(inner) and len(inner.expressions) == 1:
                value = inner.expressions[0].unalias()
                on: exp.Expr = exp.EQ(this=core.this.copy(), expression=value.copy())
                if negated:
                    nulls = (
                        exp.Is(this=e.copy(), expression=exp.Null()) for e in (core.this, value)
                    )
                    on = exp.paren(exp.or_(on, *nulls))
                kind = ANTI if negated else SEMI
                block.after.append(self._semi(inner, kind, [on], tables, ctes))
                return
        if not negated and isinstance(core, _COMPARISONS):
            scalar = only_value(core)
            if scalar is not None:
                found = self._scalar(core, scalar, tables, ctes)
                if found is not None:
                    item, conditions = found
                    block.items.append(item)
                    block.where += conditions
                    return
        block.where.append(self._condition(conjunct, ctes))

    def _semi(
        self,
        inner: exp.Select,
        kind: str,
        on: list[exp.Expr],
        tables: set[str],
        ctes: Mapping[str, Node],
    ) -> tuple[str, Node, list[Conjunct]]:
        """Return a semi or anti join with the rows of ``inner``."""
        own = own_tables(inner)
        where = inner.args.get("where")
        local: list[exp.Expr] = []
        outer = list(on)
        for conjunct in conjuncts(where.this) if where is not None else []:
            outside = tables_outside(conjunct, own)
            if outside - tables:
                raise refused("a query that refers to more than the query around it", inner)
            (outer if outside else local).append(conjunct)
        if any(
            tables_outside(join.args["on"], own)
            for join in inner.args.get("joins") or ()
            if join.args.get("on")
        ):
            raise refused("a correlated condition in ON", inner)
        rows = exp.Select(
            **{**inner.args, "where": exp.Where(this=exp.and_(*local)) if local else None}
        )
        rows = rows.copy()
        plan = self._from(rows, self._with(rows, ctes))
        assert plan is not None
        return kind, plan, [self._condition(c, ctes) for c in outer]

    def _scalar(
        self, comparison: exp.Expr, scalar: exp.Subquery, tables: set[str], ctes: Mapping[str, Node]
    ) -> tuple[Node, list[Conjunct]] | None:
        """Return a comparison with a scalar query as a join with that query, grouped by key.

        None: the query is uncorrelated and may have several rows, or none.
        """
        inner: exp.Select = scalar.this
        own = own_tables(inner)
        outside = tables_read(inner) - inner_tables(inner)
        single = len(inner.expressions) == 1 and is_plain(inner, aggregated=True)
        counts = any(e.find(exp.Count, exp.CountIf) for e in inner.expressions)
        if not single or not aggregates_of(inner) or counts:
            if outside:
                raise refused("a correlated query that is not an aggregate but count", scalar)
            return None
        if outside - tables:
            raise refused("a query that refers to more than the query around it", scalar)
        name = self._name()
        keys: list[exp.Expr] = []
        local: list[exp.Expr] = []
        links: list[exp.Expr] = []
        where = inner.args.get("where")
        for conjunct in conjuncts(where.this) if where is not None else []:
            if not tables_outside(conjunct, own):
                local.append(conjunct)
                continue
            sides = (conjunct.this, conjunct.expression) if isinstance(conjunct, exp.EQ) else None
            mine = (
                None
                if sides is None
                else [s for s in sides if tables_read(s) and tables_read(s) <= own]
            )
            if (
                sides is None
                or not mine
                or len(mine) != 1
                or any(tables_read(s) & own for s in sides if s is not mine[0])
            ):
                raise refused("a correlated condition that is not an equality", conjunct)
            theirs = sides[1] if mine[0] is sides[0] else sides[0]
            alias = f"k{len(keys)}"
            keys.append(mine[0].copy())
            links.append(exp.EQ(this=theirs.copy(), expression=exp.column(alias, name)))
        value = inner.expressions[0].unalias().copy()
        grouped = exp.Select(
            **{
                **{k: v for k, v in inner.args.items() if k in ("from_", "joins", "with_")},
                "where": exp.Where(this=exp.and_(*local)) if local else None,
                "expressions": [
                    *(exp.alias_(k.copy(), f"k{i}") for i, k in enumerate(keys)),
                    exp.alias_(value, "value"),
                ],
                "group": exp.Group(expressions=[k.copy() for k in keys]) if keys else None,
            }
        ).copy()
        plan = self.query(grouped, ctes)
        replaced = comparison.copy()
        for query in replaced.find_all(exp.Subquery):
            query.replace(exp.column("value", name))
        conditions = [self._condition(c, ctes) for c in (replaced, *links)]
        return Named((plan,), name, columns_of(plan)), conditions

    def _name(self) -> str:
        self._made += 1
        return f"_q{self._made}"

    # --- expressions ---------------------------------------------------------------------------

    def _condition(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Conjunct:
        text, queries = self._text(node, ctes)
        sides = None
        if isinstance(node, exp.EQ) and not queries:
            read = [tables_read(side) for side in (node.this, node.expression)]
            if all(len(r) == 1 for r in read) and read[0] != read[1]:
                one, other = (
                    (next(iter(r)), side.sql(SPARK))
                    for r, side in zip(read, (node.this, node.expression), strict=True)
                )
                sides = (one, other)
        return NestedCondition(text, frozenset(tables_outside(node, set())), sides, queries)

    def _item(self, node: exp.Expr, ctes: Mapping[str, Node]) -> ProjectedColumn:
        if isinstance(node, exp.Alias):
            text, queries = self._text(node.this, ctes)
            return NestedItem(text, node.alias, queries)
        text, queries = self._text(node, ctes)
        return NestedItem(text, node.output_name, queries)

    def _text(self, node: exp.Expr, ctes: Mapping[str, Node]) -> tuple[str, tuple[Query, ...]]:
        """Return an expression as text, with a mark in place of each query inside it."""
        inside = queries_in(node)
        if not inside:
            return node.sql(SPARK), ()
        copied, plans = node.copy(), []
        for number, query in enumerate(queries_in(copied)):
            known = inner_tables(query)
            if tables_read(query) - known:
                raise refused("a correlated query in this place", inside[number])
            mark = QUERY.format(self._marks)
            self._marks += 1
            plans.append(Query((self.query(query.copy(), ctes),), mark))
            query.replace(exp.Var(this=mark))
        return copied.sql(SPARK), tuple(plans)


def columns_of(node: Node) -> tuple[str, ...]:
    """Return the names of a query's columns."""
    if isinstance(node, Project):
        return tuple(item.name for item in node.items)
    if isinstance(node, SetOperation | Distinct | Sort | Limit):
        return columns_of(node.inputs[0])
    raise TypeError(node)
