"""The logical plan of a bound query: its joins as binary joins, and the operators after them.

The plan is built from the planner's input: relations with their filters, equalities as written, and
closed time bounds. So the SQL is not parsed separately, and the plan shows the joins that actually
run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch_contract.durations import format_duration
from anabranch_contract.queries.expressions import Call, Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, Stream
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import (
    GROUPING_ID,
    PLACE,
    WINDOW_END,
    WINDOW_START,
    SortKey,
    View,
    call_text,
    limit_text,
    window_text,
    windowed_text,
)
from anabranch_planner.logical.expression_text import conjuncts, quoted, text_of
from anabranch_planner.logical.joins import join_tree, joined, within
from anabranch_planner.logical.nodes import (
    ASOF,
    ASOF_LEFT,
    Aggregate,
    Conjunct,
    Copies,
    Exchange,
    Expand,
    Filter,
    Limit,
    Node,
    Project,
    ProjectedColumn,
    Scan,
    Sort,
    Union,
)
from anabranch_planner.normal.time_bounds import irredundant


def logical_plan(query: JoinQuery, streams: Mapping[str, Stream]) -> Node:
    """The logical plan of ``query`` with binary joins in the order of FROM. If the query has no
    output columns, the plan consists of its joins only."""
    parts = query.planned if query.is_asof else (query, *query.others)
    names = _short_names(list(dict.fromkeys(m.alias for part in parts for m in part.members)))
    joins = [_Joins(part, streams, names) for part in parts]
    below = {o.name: one.aliased(o.expr) for one in joins for o in one.query.projection}
    outer = query.outer
    if query.united and query.others:
        called = _shown_names(query)
        branches = (
            _projected(one.tree(), [one.shown(o, called) for o in one.query.projection])
            for one in joins
        )
        plan: Node = Union(tuple(branches))
        below = {o.name: Column("", called[o.name], o.expr.type) for o in query.projection}
        if query.view is None:
            return plan
    elif outer is None or query.left is None:
        plan = joins[0].tree()
    else:
        if query.is_asof:
            plan = _nearest(joins[1].tree(), joins[0].tree(), outer, below)
        else:
            kinds = [one.kind for one in outer.look_ups] or [outer.kind]
            plan = _outer_joins(_Joins(query.left, streams, names), zip(joins, kinds, strict=False))
        if outer.where:
            plan = Filter((plan,), tuple(_condition(_over(e, below)) for e in outer.where))
        below = {o.name: _over(o.expr, below) for o in outer.projection}
    if query.view is not None:
        return _post_join(plan, query.view, below)
    return _projected(plan, [Output(name, expr) for name, expr in below.items()])


def _short_names(aliases: Sequence[str]) -> dict[str, str]:
    """Alias -> the alias without the names of enclosing subqueries, if it is then still unique."""
    short = [alias.rpartition(".")[2] for alias in aliases]
    return {a: s if short.count(s) == 1 else a for a, s in zip(aliases, short, strict=True)}


def _shown_names(query: JoinQuery) -> dict[str, str]:
    """Generated name of a union's column -> its name in SELECT, for columns listed unchanged."""
    names = {o.name: o.name for o in query.projection}
    for output in () if query.view is None else query.view.projection:
        column = output.expr
        if isinstance(column, Column) and output.name not in names.values():
            names |= {column.name: output.name} if column.name in names else {}
    return names


class _Joins:
    """One inner join of a query as scans, filters and conditions, with the user's aliases."""

    def __init__(
        self, query: JoinQuery, streams: Mapping[str, Stream], names: Mapping[str, str]
    ) -> None:
        self.query = query
        self.alias_of = {m.label: names[m.alias] for m in query.members}
        self.streams = {m.label: streams[query.relation_of(m.label).stream] for m in query.members}
        self.derived = {(stream, text): expr for stream, text, expr in query.derived}

    def aliased(self, expr: Expr) -> Expr:
        """``expr`` in a logical plan, with the user's aliases instead of canonical labels."""

        def named(column: Column) -> Column:
            alias = self.alias_of.get(Label(column.alias), column.alias)
            return Column(alias, column.name, column.type)

        return substitute(expr, named)

    def shown(self, output: Output, called: Mapping[str, str]) -> Output:
        """``output`` with the user's aliases in its expression, and its name from ``called``."""
        return Output(called[output.name], self.aliased(output.expr))

    def tree(self) -> Node:
        plan = join_tree([self.table(label) for label in self.query.labels], self.conditions())
        for one in self.query.expansions:
            made = one.over(self.aliased)
            plan = Expand((plan,), f"{quoted(made.name)} = {made.called}({text_of(made.value)})")
            if made.conditions:
                plan = Filter((plan,), tuple(map(_condition, made.conditions)))
        return plan

    def filters(self, label: Label) -> list[Conjunct]:
        alias = self.alias_of[label]
        return [_condition(_of_alias(e, alias)) for e in self.query.relation_of(label).filter]

    def table(self, label: Label) -> Node:
        scan = Scan((), self.streams[label].name, self.alias_of[label])
        filters = self.filters(label)
        return Filter((scan,), tuple(filters)) if filters else scan

    def conditions(self) -> list[Conjunct]:
        """Join conditions of the logical plan: equalities, residuals and time bounds."""
        found = []
        for equality in self.query.predicates:
            one, other = self._side(equality.left), self._side(equality.right)
            tables = frozenset((one[0], other[0]))
            found.append(Conjunct(f"{one[1]} = {other[1]}", tables, (one, other)))
        found += [_condition(self.aliased(expr)) for expr in self.query.residuals]
        return found + self._time_bounds()

    def _side(self, ref: AttrRef) -> tuple[str, str]:
        """Alias and SQL text of one side of a join equality in the logical plan."""
        alias = self.alias_of[ref.label]
        derived = self.derived.get((self.streams[ref.label].name, ref.attribute))
        if derived is None:
            return alias, f"{quoted(alias)}.{quoted(ref.attribute)}"
        return alias, text_of(_of_alias(derived, alias))

    def _time_bounds(self) -> list[Conjunct]:
        bounds, labels = irredundant(self.query.bounds), self.query.labels
        found = []
        for i, one in enumerate(labels):
            for j in range(i + 1, len(labels)):
                text = _between(self._time(one), self._time(labels[j]), bounds[i][j], bounds[j][i])
                tables = frozenset((self.alias_of[one], self.alias_of[labels[j]]))
                found += [Conjunct(text, tables)] if text else []
        return found

    def _time(self, label: Label) -> str:
        """SQL text of the event-time column of ``label``, an alias with time bounds."""
        return f"{quoted(self.alias_of[label])}.{quoted(self.streams[label].event_time or '')}"


def _of_alias(expr: Expr, alias: str) -> Expr:
    return substitute(expr, lambda c: Column(alias, c.name, c.type))


def _condition(expr: Expr) -> Conjunct:
    text = text_of(expr)
    if isinstance(expr, Call) and expr.op == "or":
        text = f"({text})"
    return Conjunct(text, frozenset(c.alias for c in columns(expr)))


def _between(one: str, other: str, ahead: int | None, behind: int | None) -> str:
    """SQL text of ``-behind <= other - one <= ahead``, where None means no limit."""
    if ahead is not None and behind is not None:
        return f"{other} BETWEEN {_moved(one, -behind)} AND {_moved(one, ahead)}"
    if ahead is not None:
        return f"{other} <= {_moved(one, ahead)}"
    return "" if behind is None else f"{one} <= {_moved(other, behind)}"


def _moved(time: str, micros: int) -> str:
    """SQL text of ``time`` plus an interval of ``micros`` microseconds."""
    sign = "-" if micros < 0 else "+"
    return f"{time} {sign} INTERVAL '{format_duration(abs(micros))}'" if micros else time


def _outer_joins(left: _Joins, steps: Iterable[tuple[_Joins, str]]) -> Node:
    """Tree of outer, semi or anti joins over the inner join ``left``.

    Args:
        left: the join that produces left rows.
        steps: for each outer join, in order: the inner join that produces its matched pairs, and
            its kind. An outer join gets the conditions of its pairs that no earlier join has.
    """
    plan, tables = left.tree(), set(left.alias_of.values())
    known = {c.text for label in left.query.labels for c in left.filters(label)}
    known |= {c.text for c in left.conditions()}
    for pairs, kind in steps:
        partners = [label for label, alias in pairs.alias_of.items() if alias not in tables]
        conditions = pairs.conditions()
        for label in pairs.query.labels:
            conditions += pairs.filters(label) if label not in partners else []
        own = frozenset(pairs.alias_of[label] for label in partners)
        inside, on = within([c for c in conditions if c.text not in known], own)
        right = join_tree([pairs.table(label) for label in partners], inside)
        plan = joined(plan, right, kind, on)
        tables |= own
        known |= {c.text for c in on}
    return plan


def _nearest(left: Node, right: Node, outer: OuterJoin, below: Mapping[str, Expr]) -> Node:
    """ASOF join of left and right rows in a plan; ``below``: expressions of their columns."""
    on = []
    for condition in (_over(e, below) for e in outer.conditions):
        found = _condition(condition)
        if isinstance(condition, Call) and condition.op == "eq":
            sides = [(next(columns(e)).alias, text_of(e)) for e in condition.args]
            found = replace(found, sides=(sides[0], sides[1]))
        on.append(found)
    return joined(left, right, ASOF_LEFT if outer.kind is JoinKind.LEFT else ASOF, on)


# --- post-join operators -------------------------------------------------------------------------


def _over(expr: Expr, terms: Mapping[str, Expr]) -> Expr:
    return substitute(expr, lambda c: terms[c.name])


def _projected(plan: Node, outputs: Iterable[Output]) -> Node:
    items = tuple(ProjectedColumn(text_of(o.expr), o.name) for o in outputs)
    return Project((plan,), items) if items else plan


def _post_join(plan: Node, view: View, below: Mapping[str, Expr]) -> Node:
    """Aggregation, HAVING, ORDER BY and LIMIT of ``view`` as operators over the joined rows, whose
    columns have the expressions ``below``."""
    terms = dict(below)
    if view.limits:
        said = (limit_text(one, text_of(below[one.column])) for one in view.limits)
        plan = Filter((plan,), tuple(Conjunct(text, frozenset()) for text in said))
    if view.grouped:
        keys = {name: below[name] for name, _ in view.keys} | _window(view, below)
        calls = _calls(view, below)
        texts = _sets(view, keys)
        source = Exchange((plan,), texts) if texts else plan
        plan = Aggregate((source,), texts, tuple(call.name for call in calls.values()))
        terms = {**keys, **calls}
        if view.sets:
            terms[GROUPING_ID] = Column("", "grouping_id()", dict(view.group_keys)[GROUPING_ID])
    ranked = view.ranked
    if ranked:
        plan = _ranked(plan, view, terms)
    if view.having is not None:
        kept = conjuncts(_over(view.having, terms))
        plan = Filter((plan,), tuple(map(_condition, kept)))
    if view.copies is not None:
        plan = Copies((plan,), text_of(_over(view.copies, terms)))
    plan = _projected(plan, [Output(o.name, _over(o.expr, terms)) for o in view.projection])
    if ranked:
        return plan
    if view.order:
        shown = {o.expr: quoted(o.name) for o in reversed(view.projection)}
        by = [_direction(s, shown.get(s.expr) or text_of(_over(s.expr, terms))) for s in view.order]
        plan = Sort((plan,), tuple(by))
    if view.limit is None and not view.offset:
        return plan
    count = "" if view.limit is None else str(view.limit)
    return Limit((plan,), count, str(view.offset or ""))


def _window(view: View, below: Mapping[str, Expr]) -> dict[str, Expr]:
    if view.window is None:
        return {}
    said = window_text(view.window, text_of(below[view.window.column]))
    kinds = dict(view.group_keys)
    ends = {WINDOW_START: "start", WINDOW_END: "end"}
    return {name: Column("", f"{said}.{end}", kinds[name]) for name, end in ends.items()}


def _sets(view: View, keys: Mapping[str, Expr]) -> tuple[str, ...]:
    """SQL texts of the entries of GROUP BY in a logical plan; GROUPING SETS are one entry."""
    names = [name for name, _ in view.keys]
    if not view.sets:
        return tuple(map(text_of, keys.values()))
    sets = [", ".join(text_of(keys[names[place]]) for place in one) for one in view.sets]
    others = (text_of(expr) for name, expr in keys.items() if name not in names)
    return (f"GROUPING SETS ({', '.join(f'({one})' for one in sets)})", *others)


def _calls(view: View, below: Mapping[str, Expr]) -> dict[str, Column]:
    """Column name -> SQL text of its aggregate; totals over groups are window functions."""
    texts = {name: text_of(expr) for name, expr in below.items()}
    found = {c.name: Column("", call_text(c, texts), c.type) for c in view.aggregates}
    for total in view.totals:
        text = f"{total.function}({found[total.aggregate].name}) OVER ()"
        found[total.name] = Column("", text, total.type)
    return found


def _ranked(plan: Node, view: View, terms: dict[str, Expr]) -> Node:
    """Plan operators for a ranking up to a limit; adds rank and window functions to ``terms``."""
    order = [_direction(s, text_of(_over(s.expr, terms))) for s in view.order]
    by = [text_of(terms[name]) for name, _ in view.partition]
    over = [f"PARTITION BY {', '.join(by)}"] if by else []
    over += [f"ORDER BY {', '.join(order)}"] if order else []
    text = f"{view.ranking}() OVER ({' '.join(over)})"
    terms[PLACE] = Column("", text, DataType(TypeKind.INT))
    texts = {name: text_of(expr) for name, expr in terms.items()}
    key = view.order[0].expr.type if view.order else None
    for one in view.windowed:
        terms[one.name] = Column("", windowed_text(one, texts, " ".join(over), key), one.type)
    source = Exchange((plan,), tuple(by)) if by else plan
    if view.limit is None:
        return source
    return Filter((source,), (Conjunct(f"{text} <= {view.limit}", frozenset()),))


def _direction(order: SortKey, text: str) -> str:
    nulls = "" if order.nulls_first != order.descending else (
        " NULLS FIRST" if order.nulls_first else " NULLS LAST"
    )  # fmt: skip
    return text + (" DESC" if order.descending else "") + nulls
