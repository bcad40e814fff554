"""SQL to a logical plan of binary joins.

sqlglot parses the statement and finds out what every name means (``qualify``); queries in FROM that
need not be queries are written out (``inline``). Here the statement becomes a plan: conditions go
to the lowest node that shows what they read, joins are in the order of FROM but for cross products,
which are put off, and rows are exchanged where a join or an aggregation needs them by key.

Queries inside conditions become joins where SQL's meaning allows it:

- ``EXISTS`` and ``IN`` become semi joins, ``NOT EXISTS`` and ``NOT IN`` anti joins; the conditions
  that refer to the outer query become the join's. ``x NOT IN (SELECT y ...)`` holds only where no
  ``y`` is equal to ``x`` and neither is NULL, so the anti join's condition is ``x = y OR x IS NULL
  OR y IS NULL``.
- A comparison with an aggregate (``= (SELECT min(...) ...)``) becomes an inner join with the
  aggregate, grouped by what the outer query's columns must equal. A row whose group is empty would
  be compared with NULL, which holds for no comparison; ``count`` would give 0 there: it is refused.

Other queries stay inside their expression, with a plan of their own, if they depend on nothing
outside; else the statement is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.qualify import qualify

from anabranch_planner.errors import QueryError
from anabranch_planner.logical.inline import inlined, uniquely_named
from anabranch_planner.logical.nodes import (
    ANTI,
    CROSS,
    FULL,
    INNER,
    LEFT,
    RIGHT,
    SEMI,
    Aggregate,
    Condition,
    Distinct,
    Exchange,
    Filter,
    Item,
    Join,
    Limit,
    Named,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    shown,
)
from anabranch_planner.sql.dialects import reader_of
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import unclosed_at, what_is_wrong
from anabranch_planner.sql.unresolved import position_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Table -> column -> type, as sqlglot wants it.
Catalog = dict[str, dict[str, str]]
#: How a query inside an expression is written there: ``QUERY.format(n)``.
QUERY = "__query_{}__"
_DIALECT = "spark"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
#: Operands from which on a chain is made a tree.
_LONG = 16
#: What is NULL where its operand is.
_NULL_KEEPING = (exp.Mul, exp.Add, exp.Sub, exp.Div, exp.Neg, exp.Paren, exp.Cast)
_JOINS = {"LEFT": LEFT, "RIGHT": RIGHT, "FULL": FULL}
_PARTS = {
    "with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "order",
    "limit", "offset", "hint", "kind",
}  # fmt: skip


def translate(sql: str, catalog: Catalog, dialect: str = _DIALECT) -> Node:
    """The plan of ``sql``.

    Args:
        sql: one query, with no semicolon but at its end.
        catalog: the tables that there are.
        dialect: one of sqlglot's, in which ``sql`` is written.

    Raises:
        QueryError: ``malformed-sql``, ``unknown-name``; ``unsupported-sql`` names the construct.
    """
    reader = reader_of(dialect)
    found: list[exp.Expr] = []
    try:
        found += [s for s in reader.parse(sql) if s is not None]
        if len(found) != 1 or not isinstance(found[0], exp.Query):
            raise _refused("what is no single query", found[0] if found else None)
        _check_tables(found[0], catalog)
        statement = _balanced(found[0])
        qualified = qualify(
            statement, schema=dict(catalog), dialect=reader, quote_identifiers=False
        )
        return _Translation().query(inlined(uniquely_named(qualified)), {})
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql", "the statement is nested too deeply", remedy="use fewer parentheses"
        ) from cause
    except SqlglotError as cause:
        message, position = what_is_wrong(cause)
        position = position or _position_of_unknown(message, found[0] if found else None)
        position = position or (None if found else unclosed_at(sql))
        code = "unknown-name" if isinstance(cause, OptimizeError) else "malformed-sql"
        raise QueryError(
            code, message, remedy="check the statement near that place", position=position
        ) from cause


def _balanced(statement: exp.Expr) -> exp.Expr:
    """``statement`` with chains of AND and OR as trees of logarithmic depth.

    As the parser makes them they are as deep as they are long, and what looks at the ancestors of
    each node takes the square of that.
    """
    for kind in (exp.And, exp.Or):
        chains = [n for n in statement.find_all(kind) if not isinstance(n.parent, kind)]
        for chain in chains:
            parts = _operands(chain, kind)
            if len(parts) > _LONG:
                chain.replace(_tree(kind, parts))
    return statement


def _tree(kind: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return kind(this=_tree(kind, parts[:middle]), expression=_tree(kind, parts[middle:]))


def _operands(chain: exp.Expr, kind: type[exp.Connector]) -> list[exp.Expr]:
    """The operands of a chain of one connective, left to right; parentheses stay."""
    found: list[exp.Expr] = []
    pending = [chain]
    while pending:
        node = pending.pop()
        if isinstance(node, kind):
            pending += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _position_of_unknown(message: str, statement: exp.Expr | None) -> tuple[int, int] | None:
    """Where the column is that ``qualify`` has complained about."""
    named = re.search(r"[Uu]nknown column: (\w+)", message)
    if named is None or statement is None:
        return None
    columns = (c for c in statement.find_all(exp.Column) if c.name == named[1])
    return next(filter(None, map(position_of, columns)), None)


def _check_tables(statement: exp.Expr, catalog: Catalog) -> None:
    """Refuse tables that are neither in the catalog nor named by WITH."""
    known = {name.lower() for name in catalog}
    known |= {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name.lower() not in known:
            raise QueryError(
                "unknown-table",
                f"there is no table {table.name!r}",
                remedy=nearest(table.name, known),
                position=position_of(table),
            )


def _refused(what: str, node: exp.Expr | None, remedy: str = "write it as a join") -> QueryError:
    return QueryError(
        "unsupported-sql",
        f"{what} is not supported",
        remedy=remedy,
        position=None if node is None else position_of(node),
    )


@dataclass(slots=True)
class _Block:
    """FROM and WHERE of one SELECT, while its joins are put together.

    Attributes:
        items: what is joined, in the order of FROM.
        on: conditions of inner joins, and ``where``: of WHERE, that have no place yet.
        after: joins that follow when all else is joined: kind, right side, conditions.
    """

    items: list[Node] = field(default_factory=list)
    on: list[Condition] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    after: list[tuple[str, Node, list[Condition]]] = field(default_factory=list)

    @property
    def tables(self) -> frozenset[str]:
        """Those that the items show."""
        return frozenset().union(*(shown(item) for item in self.items))

    def before_outer(self, *, preserved: bool) -> None:
        """Join all items to one, the left side of an outer join.

        Args:
            preserved: all its rows stay, so that WHERE may come first.
        """
        tables = self.tables if preserved else frozenset[str]()
        early, self.where = _within(self.where, tables)
        self._fold([*self.on, *early])
        self.on = []

    def all_joined(self) -> Node:
        """Everything, under all conditions."""
        self._fold([*self.on, *self.where])
        current = self.items[0]
        for kind, right, conditions in self.after:
            current = joined(current, right, kind, conditions)
        return current

    def _fold(self, left: list[Condition]) -> None:
        for at, item in enumerate(self.items):
            own, others = _within(left, shown(item))
            if own and isinstance(item, Scan | Named):
                self.items[at] = Filter(item, tuple(own))
                left = others
        current, *rest = self.items
        while rest:
            here = shown(current)
            near = (i for i in rest if any(_links(c, here, shown(i)) for c in left))
            right = next(near, rest[0])
            rest.remove(right)
            own, left = _within(left, here | shown(right))
            current = joined(current, right, INNER if own else CROSS, own)
        if left and isinstance(current, Join) and current.kind in (INNER, CROSS):
            # Constants, which read no table.
            current = replace(current, kind=INNER, conditions=(*current.conditions, *left))
        elif left:
            current = Filter(current, tuple(left))
        self.items = [current]


def _within(
    conditions: list[Condition], tables: frozenset[str]
) -> tuple[list[Condition], list[Condition]]:
    """The conditions that read ``tables`` and no others, and the rest."""
    inside = [bool(c.tables) and c.tables <= tables for c in conditions]
    return (
        [c for c, kept in zip(conditions, inside, strict=True) if kept],
        [c for c, kept in zip(conditions, inside, strict=True) if not kept],
    )


def _links(condition: Condition, one: frozenset[str], other: frozenset[str]) -> bool:
    tables = condition.tables
    return bool(tables & one and tables & other) and tables <= one | other


def joined(left: Node, right: Node, kind: str, conditions: Sequence[Condition]) -> Join:
    """A join with both sides exchanged by the keys of its equalities, if it has any."""
    keys: list[tuple[str, str]] = []
    for condition in conditions:
        if condition.sides is not None:
            (one, mine), (_, theirs) = condition.sides
            keys.append((mine, theirs) if one in shown(left) else (theirs, mine))
    if keys:
        left = Exchange(left, tuple(k for k, _ in keys))
        right = Exchange(right, tuple(k for _, k in keys))
    else:
        right = Exchange(right, ())
    return Join(left, right, kind, tuple(conditions))


class _Translation:
    """One statement: numbers the names that it makes up."""

    def __init__(self) -> None:
        self._made = 0

    def query(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Node:
        """The plan of a query, wherever it stands."""
        if isinstance(node, exp.Subquery | exp.Paren):
            if any(node.args.get(part) for part in ("order", "limit", "with_")):
                raise _refused("a clause after a query in parentheses", node)
            return self.query(node.this, ctes)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, self._with(node, ctes))
        if not isinstance(node, exp.Select):
            raise _refused(f"{type(node).__name__.upper()} as a query", node)
        return self._select(node, self._with(node, ctes))

    def _with(self, node: exp.Query, ctes: Mapping[str, Node]) -> Mapping[str, Node]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise _refused("WITH RECURSIVE", clause, "write out as many joins as are wanted")
        known = dict(ctes)
        for cte in clause.expressions:
            known[cte.alias] = self.query(cte.this, known)
        return known

    def _set_operation(self, node: exp.SetOperation, ctes: Mapping[str, Node]) -> Node:
        kind = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
        plan: Node = SetOperation(
            self.query(node.this, ctes), self.query(node.expression, ctes), kind
        )
        return self._ordered(node, plan, ctes)

    def _select(self, select: exp.Select, ctes: Mapping[str, Node]) -> Node:
        for part, value in select.args.items():
            if value and part not in _PARTS:
                raise _refused(
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
        calls = _aggregates(select)
        if group is not None or having is not None or calls:
            keys = _keys(group)
            if plan is None:
                raise _refused("an aggregate without FROM", select)
            plan = Aggregate(Exchange(plan, keys) if keys else plan, keys, calls)
        if having is not None and plan is not None:
            conditions = [self._condition(c, ctes) for c in _conjuncts(having.this)]
            plan = Filter(plan, tuple(conditions))
        items = tuple(self._item(e, ctes) for e in select.expressions)
        plan = Project(plan, items)
        distinct = select.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                raise _refused("DISTINCT ON", distinct)
            plan = Distinct(plan)
        return self._ordered(select, plan, ctes)

    def _ordered(self, node: exp.Query, plan: Node, ctes: Mapping[str, Node]) -> Node:
        order, limit, offset = (node.args.get(part) for part in ("order", "limit", "offset"))
        if order is not None:
            plan = Sort(plan, tuple(self._item(e, ctes) for e in order.expressions))
        if limit is not None or offset is not None:
            count = limit.expression.sql(_DIALECT) if isinstance(limit, exp.Limit) else ""
            if limit is not None and not count:
                raise _refused("FETCH", limit)
            skipped = offset.expression.sql(_DIALECT) if offset is not None else ""
            plan = Limit(plan, count, skipped)
        return plan

    # --- FROM and WHERE ------------------------------------------------------------------------

    def _from(self, select: exp.Select, ctes: Mapping[str, Node]) -> Node | None:
        from_ = select.args.get("from_")
        if from_ is None:
            if select.args.get("where") is not None:
                raise _refused("WHERE without FROM", select)
            return None
        block = _Block([self._source(from_.this, ctes)])
        where = select.args.get("where")
        tables = _own_tables(select)
        for conjunct in _conjuncts(where.this) if where is not None else []:
            self._place(conjunct, block, tables, ctes)
        for join in select.args.get("joins") or ():
            self._join(join, block, ctes)
        return block.all_joined()

    def _source(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Node:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            for part, value in node.args.items():
                if value and part not in ("this", "alias", "joins"):
                    raise _refused(f"{part.strip('_').upper()} after a table", node)
            known = ctes.get(node.name)
            if known is None:
                return Scan(node.name, node.alias_or_name)
            return Named(known, node.alias_or_name, columns_of(known))
        if isinstance(node, exp.Subquery) and not node.alias:
            inner = node.this
            if isinstance(inner, exp.Table | exp.Subquery):
                block = _Block([self._source(inner, ctes)])
                for join in inner.args.get("joins") or ():
                    self._join(join, block, ctes)
                return block.all_joined()
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            plan = self.query(node.this, ctes)
            return Named(plan, node.alias_or_name, columns_of(plan))
        raise _refused(f"{node.sql(_DIALECT)[:40]} in FROM", node)

    def _join(self, join: exp.Join, block: _Block, ctes: Mapping[str, Node]) -> None:
        right = self._source(join.this, ctes)
        side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
        on = join.args.get("on")
        conjuncts = _conjuncts(on) if on is not None else []
        if join.args.get("using") or str(join.args.get("method") or ""):
            raise _refused("a join by names that differ in type", join)
        conditions = [self._condition(c, ctes) for c in conjuncts]
        if kind in (SEMI.upper(), ANTI.upper()):
            joins = kind.lower()
        elif side in _JOINS:
            joins = _JOINS[side]
        else:
            block.items.append(right)
            block.on += conditions
            return
        block.before_outer(preserved=joins not in (RIGHT, FULL))
        block.items = [joined(block.items[0], right, joins, conditions)]

    def _place(
        self, conjunct: exp.Expr, block: _Block, tables: set[str], ctes: Mapping[str, Node]
    ) -> None:
        """A conjunct of WHERE: a condition, or a join with the query inside it."""
        negated = isinstance(conjunct, exp.Not)
        core = conjunct.this if negated else conjunct
        while isinstance(core, exp.Paren):
            core = core.this
        if isinstance(core, exp.Exists):
            inner = core.this
            if isinstance(inner, exp.Select) and _plain(inner):
                kind = ANTI if negated else SEMI
                block.after.append(self._semi(inner, kind, [], tables, ctes))
                return
        if isinstance(core, exp.In) and core.args.get("query") is not None:
            inner = core.args["query"].this
            if isinstance(inner, exp.Select) and _plain(inner) and len(inner.expressions) == 1:
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
            scalar = _only_value(core)
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
    ) -> tuple[str, Node, list[Condition]]:
        """A semi or anti join with the rows of ``inner``."""
        own = _own_tables(inner)
        where = inner.args.get("where")
        local: list[exp.Expr] = []
        outer = list(on)
        for conjunct in _conjuncts(where.this) if where is not None else []:
            outside = _outside(conjunct, own)
            if outside - tables:
                raise _refused("a query that refers to more than the query around it", inner)
            (outer if outside else local).append(conjunct)
        if any(
            _outside(join.args["on"], own)
            for join in inner.args.get("joins") or ()
            if join.args.get("on")
        ):
            raise _refused("a correlated condition in ON", inner)
        rows = exp.Select(
            **{**inner.args, "where": exp.Where(this=exp.and_(*local)) if local else None}
        )
        rows = rows.copy()
        plan = self._from(rows, self._with(rows, ctes))
        assert plan is not None
        return kind, plan, [self._condition(c, ctes) for c in outer]

    def _scalar(
        self, comparison: exp.Expr, scalar: exp.Subquery, tables: set[str], ctes: Mapping[str, Node]
    ) -> tuple[Node, list[Condition]] | None:
        """A comparison with one value, as a join with a query that has it for each key.

        None: the query depends on nothing outside and may have several rows, or none.
        """
        inner: exp.Select = scalar.this
        own = _own_tables(inner)
        outside = _read(inner) - _inner_tables(inner)
        single = len(inner.expressions) == 1 and _plain(inner, aggregated=True)
        counts = any(e.find(exp.Count, exp.CountIf) for e in inner.expressions)
        if not single or not _aggregates(inner) or counts:
            if outside:
                raise _refused("a correlated query that is no aggregate but count", scalar)
            return None
        if outside - tables:
            raise _refused("a query that refers to more than the query around it", scalar)
        name = self._name()
        keys: list[exp.Expr] = []
        local: list[exp.Expr] = []
        links: list[exp.Expr] = []
        where = inner.args.get("where")
        for conjunct in _conjuncts(where.this) if where is not None else []:
            if not _outside(conjunct, own):
                local.append(conjunct)
                continue
            sides = (conjunct.this, conjunct.expression) if isinstance(conjunct, exp.EQ) else None
            mine = None if sides is None else [s for s in sides if _read(s) and _read(s) <= own]
            if (
                sides is None
                or not mine
                or len(mine) != 1
                or any(_read(s) & own for s in sides if s is not mine[0])
            ):
                raise _refused("a correlated condition that is no equality", conjunct)
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
        return Named(plan, name, columns_of(plan)), conditions

    def _name(self) -> str:
        self._made += 1
        return f"_q{self._made}"

    # --- expressions ---------------------------------------------------------------------------

    def _condition(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Condition:
        text, queries = self._text(node, ctes)
        sides = None
        if isinstance(node, exp.EQ) and not queries:
            read = [_read(side) for side in (node.this, node.expression)]
            if all(len(r) == 1 for r in read) and read[0] != read[1]:
                one, other = (
                    (next(iter(r)), side.sql(_DIALECT))
                    for r, side in zip(read, (node.this, node.expression), strict=True)
                )
                sides = (one, other)
        return Condition(text, frozenset(_outside(node, set())), sides, queries)

    def _item(self, node: exp.Expr, ctes: Mapping[str, Node]) -> Item:
        if isinstance(node, exp.Alias):
            text, queries = self._text(node.this, ctes)
            return Item(text, node.alias, queries)
        text, queries = self._text(node, ctes)
        return Item(text, node.output_name, queries)

    def _text(self, node: exp.Expr, ctes: Mapping[str, Node]) -> tuple[str, tuple[Node, ...]]:
        """An expression, with a mark in the place of each query inside it."""
        inside = _queries(node)
        if not inside:
            return node.sql(_DIALECT), ()
        copied, plans = node.copy(), []
        for number, query in enumerate(_queries(copied)):
            known = _inner_tables(query)
            if _read(query) - known:
                raise _refused("a correlated query in this place", inside[number])
            plans.append(self.query(query.copy(), ctes))
            query.replace(exp.Var(this=QUERY.format(number)))
        return copied.sql(_DIALECT), tuple(plans)


def columns_of(node: Node) -> tuple[str, ...]:
    """The names of a query's columns."""
    if isinstance(node, Project):
        return tuple(item.name for item in node.items)
    if isinstance(node, SetOperation):
        return columns_of(node.left)
    if isinstance(node, Distinct | Sort | Limit):
        return columns_of(node.input)
    raise TypeError(node)


def _only_value(comparison: exp.Expr) -> exp.Subquery | None:
    """The only query inside a comparison, if the comparison is NULL where its value is."""
    found = [q for q in _queries(comparison) if isinstance(q, exp.Select)]
    if len(found) != 1 or len(_queries(comparison)) != 1:
        return None
    scalar = found[0].parent
    above = scalar.parent if isinstance(scalar, exp.Subquery) else None
    while isinstance(above, _NULL_KEEPING):
        above = above.parent
    return scalar if isinstance(scalar, exp.Subquery) and above is comparison else None


def _queries(node: exp.Expr) -> list[exp.Expr]:
    """The outermost queries inside an expression."""
    found: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = pending.pop(0)
        if isinstance(current, exp.Query) and not isinstance(current, exp.Subquery):
            found.append(current)
        else:
            pending = [*current.iter_expressions(), *pending]
    return found


def _read(node: exp.Expr) -> set[str]:
    """The tables that an expression's columns are of."""
    return {column.table for column in node.find_all(exp.Column) if column.table}


def _outside(node: exp.Expr, own: set[str]) -> set[str]:
    """The tables that an expression reads beside ``own`` and those of queries inside it."""
    inside = {table for query in _queries(node) for table in _inner_tables(query)}
    return _read(node) - own - inside


def _own_tables(select: exp.Select) -> set[str]:
    """The names of what a SELECT reads."""
    sources = [select.args["from_"].this] if select.args.get("from_") else []
    sources += [join.this for join in select.args.get("joins") or ()]
    found = set()
    while sources:
        source = sources.pop()
        sources += [join.this for join in source.args.get("joins") or ()]
        if isinstance(source, exp.Subquery) and not source.alias:
            sources.append(source.this)
        elif source.alias_or_name:
            found.add(source.alias_or_name)
    return found


def _inner_tables(query: exp.Expr) -> set[str]:
    """The names of all that a query and those inside it read."""
    return {t for select in query.find_all(exp.Select) for t in _own_tables(select)}


def _plain(inner: exp.Select, *, aggregated: bool = False) -> bool:
    """Whether a query's rows are those of its FROM and WHERE; or, ``aggregated``, one of all."""
    others = ("group", "having", "distinct", "limit", "offset", "qualify", "windows")
    return not any(inner.args.get(part) for part in others) and (
        aggregated or not _aggregates(inner)
    )


def _aggregates(select: exp.Select) -> tuple[str, ...]:
    """The aggregates that a SELECT computes itself, by text."""
    holders = [*select.expressions, select.args.get("having"), select.args.get("order")]
    found: dict[str, None] = {}
    for holder in holders:
        pending = [holder] if holder is not None else []
        while pending:
            node = pending.pop()
            if isinstance(node, exp.Query):
                continue
            if isinstance(node, exp.Window):
                # Only what is inside the function is of the group: sum(sum(x)) OVER (...).
                pending += [*node.this.iter_expressions(), *node.args.get("partition_by", ())]
                pending += [node.args["order"]] if node.args.get("order") else []
                continue
            if isinstance(node, exp.AggFunc):
                found[node.sql(_DIALECT)] = None
                continue
            pending += list(node.iter_expressions())
    return tuple(sorted(found))


def _keys(group: exp.Group | None) -> tuple[str, ...]:
    if group is None:
        return ()
    sets = [
        e for part in ("grouping_sets", "cube", "rollup") for e in group.args.get(part) or () if e
    ]
    return tuple(e.sql(_DIALECT) for e in [*group.expressions, *sets])


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The conjuncts of a condition; what all alternatives of an OR have in common is one."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [c for part in node.flatten() for c in _conjuncts(part)]
    if not isinstance(node, exp.Or):
        return [node]
    alternatives = [_conjuncts(part) for part in node.flatten()]
    common = [c for c in alternatives[0] if all(c in other for other in alternatives[1:])]
    if not common:
        return [exp.paren(node)]
    rest = [[c for c in alternative if c not in common] for alternative in alternatives]
    if not all(rest):
        return common
    left = exp.or_(*(exp.and_(*(c.copy() for c in part)) for part in rest))
    return [*common, exp.paren(left)]
