"""Queries over a stream whose columns change, and whose results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, as_seen


def going_on(
    queries: Sequence[QueryRecord],
    before: Mapping[str, Stream],
    after: Mapping[str, Stream],
    forms: NormalForms,
    given: Callable[[QueryRecord, JoinQuery], QueryRecord] = lambda query, form: query,
) -> tuple[list[QueryRecord], str]:
    """Return the queries whose results over the streams ``after`` a change are the same as
    ``before`` it, with new descriptions; and a text that names the other queries.

    Args:
        given: function from a query, and its normal form over ``before``, to its record over
            ``after``.
    """
    changed, stopped = list[QueryRecord](), dict[str, None]()
    for query in queries:
        try:
            form = forms.of(query, before)
        except PlannerError:
            continue  # it can't be planned as it is
        found = given(query, form)
        try:
            again = NormalForms().of(found, after)
            same = list(_meaning(form)) == list(_meaning(again))
        except PlannerError:
            same = False
        if same:
            meaning = describe(again, as_seen(found.columns, after))
            changed.append(found.model_copy(update={"normalised": meaning}))
        else:
            stopped[query.part_of or query.id] = None
    names = list(stopped)
    return changed, ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _meaning(query: JoinQuery) -> Iterator[tuple[object, ...]]:
    """Yield the parts of a normal form that must not change. Expressions are compared as texts, in
    which functions of a widened column contain a cast to its type (``planner.normal.widened``)."""
    yield query.view, query.outer, query.united, query.unsorted
    for one in query.planned:
        yield one.id, one.members, one.predicates, one.classes, one.bounds, one.looked_up
        for relation in one.relations:
            yield relation.id, relation.stream, [str(e) for e in relation.filter]
        for stream, name, expr in one.derived:
            yield stream, name, str(expr), expr.type
        yield "residuals", *map(str, one.residuals)
        for output in one.projection:
            yield output.name, str(output.expr), output.expr.type
        for made in one.expansions:
            yield str(made), *(expr.type for expr in made.exprs)
