"""Evaluation of a statement over whole tables by nested loops and the runtime's evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Expr, substitute
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Stream, StreamName
from anabranch_planner.passes import parse_sql
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from anabranch_runtime.tables.table import MaintainedTable
from tests.support.oracles.evaluate import key_of


def streams_of(tables: Mapping[str, pa.Table]) -> dict[str, Stream]:
    """Return streams with the columns of the tables."""
    return {
        name: Stream(StreamName(name), tuple((c.name, spark_type(c.type)) for c in table.schema))
        for name, table in tables.items()
    }


def batch_rows(sql: str, tables: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement in Spark's dialect without time conditions.

    Raises:
        QueryError: the statement is refused. ExpressionError: an expression fails on a row.
    """
    streams = streams_of(tables)
    query = parse_sql("q", sql, streams)
    assert query.outer is None
    found = [row for join in query.planned for row in _joined_rows(join, tables, streams)]
    if query.view is None:
        return found
    kinds = [(o.name, arrow_type(o.expr.type)) for o in query.projection]
    schema, columns = pa.schema(kinds), list(zip(*found, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    table = MaintainedTable(query.view, schema)
    table.apply(pa.Table.from_arrays(arrays, schema=schema), None, 1)
    shown = table.rows(None).select([o.name for o in query.view.projection])
    return [tuple(row.values()) for row in shown.to_pylist()]


def _joined_rows(
    query: JoinQuery, tables: Mapping[str, pa.Table], streams: Mapping[str, Stream]
) -> list[tuple[Any, ...]]:
    combined = _crossed(query, tables)
    length = combined.num_rows

    def fetch(column: Column) -> pa.Array:
        return combined[f"{column.alias} {column.name}"].combine_chunks()

    def made(expr: Expr) -> list[Any]:
        return list(evaluate(expr, fetch, length).to_pylist())

    mask = [True] * length
    for predicate in query.predicates:
        kind = next(c.type for c in query.classes if predicate.left in c.members)
        left, right = (
            [key_of(value, kind) for value in made(_side(query, ref, streams))]
            for ref in (predicate.left, predicate.right)
        )
        mask = [
            held and a is not None and a == b for a, b, held in zip(left, right, mask, strict=True)
        ]
    # A condition is evaluated on joined rows only, since it may fail on others.
    combined = combined.filter(pa.array(mask, pa.bool_()))
    length = combined.num_rows
    passing = filter_mask(query.residuals, fetch, length)
    if passing is not None:
        combined = combined.filter(pa.array(passing))
        length = combined.num_rows
    return list(zip(*(made(output.expr) for output in query.projection), strict=True))


def _side(query: JoinQuery, ref: AttrRef, streams: Mapping[str, Stream]) -> Expr:
    """Return the expression that is one side of an equality."""
    stream = query.relation_of(ref.label).stream
    for name, text, expr in query.derived:
        if (name, text) == (stream, ref.attribute):
            return substitute(expr, lambda c: Column(ref.label, c.name, c.type))
    kind = streams[stream].type_of(ref.attribute)
    assert kind is not None
    return Column(ref.label, ref.attribute, kind)


def _crossed(query: JoinQuery, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return every combination of rows that pass their filters, with columns by label and name."""
    combined = pa.table({" ": pa.array([0])})
    for member in query.members:
        relation = query.relation_of(member.label)
        table = tables[relation.stream]
        passing = filter_mask(relation.filter, partial(_own, table), table.num_rows)
        table = table if passing is None else table.filter(pa.array(passing))
        left = [n for n in range(combined.num_rows) for _ in range(table.num_rows)]
        right = [n for _ in range(combined.num_rows) for n in range(table.num_rows)]
        combined = combined.take(pa.array(left, pa.int64()))
        for name in table.column_names:
            taken = table[name].take(pa.array(right, pa.int64()))
            combined = combined.append_column(f"{member.label} {name}", taken)
    return combined


def _own(table: pa.Table, column: Column) -> pa.Array:
    return table[column.name].combine_chunks()
