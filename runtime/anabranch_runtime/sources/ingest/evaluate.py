"""Evaluation of a stream's columns from rows that Spark has read, in the task that writes them.

The expressions of the stream's definition are evaluated here, because Spark would fail the batch,
and so the whole stream, for a single bad row. A row is invalid if an expression fails on it (ANSI
mode: a division by zero, an overflow, a cast) or if its text is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Column, Expr
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sources.invalid import ARRIVED, convert_values, raw_text


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluator of a stream's rows, which is sent to tasks.

    Attributes:
        inputs: the first columns of Spark's rows; a flag for invalid rows and the raw input follow
            (``spark_source.SparkSource``).
        names: names of the stream's columns.
        columns: each of the stream's columns as an expression over the inputs.
    """

    inputs: tuple[Column, ...]
    names: tuple[str, ...]
    columns: tuple[Expr, ...]

    def rows(self, part: pa.RecordBatch) -> pa.RecordBatch:
        """Return the stream's columns, the raw input of invalid rows (``invalid.ARRIVED``, NULL in
        valid rows), and the remaining columns of ``part``."""
        count = len(self.inputs)
        given = dict(zip(self.inputs, part.columns[:count], strict=True))
        numbers = pa.array(np.arange(part.num_rows))
        bad = pc.fill_null(part.column(count), False).to_numpy(zero_copy_only=False).copy()
        arrays = []
        for expr in self.columns:
            convert = partial(_evaluated, expr, given, part.num_rows)
            values, wrong = convert_values(numbers, arrow_type(expr.type), convert)
            arrays.append(values)
            if wrong is not None:
                bad |= wrong
        arrived = _arrived(part.column(count + 1), bad, given)
        names = [*self.names, ARRIVED, *part.schema.names[count + 2 :]]
        return pa.RecordBatch.from_arrays(
            [*arrays, arrived, *part.columns[count + 2 :]], names=names
        )


def _evaluated(
    expr: Expr, given: Mapping[Column, pa.Array], total: int, rows: pa.Array
) -> pa.Array:
    """Evaluate ``expr`` on rows given by ascending numbers; the result for a NULL number is NULL.

    Raises:
        ExpressionError, ArrowException, ValueError: the evaluation fails on a row.
    """
    if rows.null_count:
        valid = rows.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return _evaluated(expr, given, total, rows.drop_null()).take(places)
    count = len(rows)
    first = rows[0].as_py() if count else 0
    together = not count or rows[-1].as_py() - first == count - 1

    def fetch(column: Column) -> pa.Array:
        values = given[column]
        if count < total:
            values = values.slice(first, count) if together else values.take(rows)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            # The full check finds texts that are not UTF-8, which Spark accepts.
            values.validate(full=True)
        return values

    return evaluate(expr, fetch, count)


def _arrived(text: pa.Array, bad: NDArray[np.bool_], given: Mapping[Column, pa.Array]) -> pa.Array:
    """Return the raw input of ``bad`` (invalid) rows: Spark's ``text`` if there is one, else a JSON
    object with the source's columns, or with the inputs."""
    text = pc.if_else(pa.array(bad), text.cast(pa.binary()), pa.scalar(None, pa.binary()))
    rest = bad & text.is_null().to_numpy(zero_copy_only=False)
    if not rest.any():
        return text
    shown = {c.name: values for c, values in given.items() if not c.alias} or {
        c.name: values for c, values in given.items()
    }
    rows = pa.StructArray.from_arrays(list(shown.values()), names=list(shown))
    shown_text = raw_text(rows.filter(pa.array(rest))).cast(pa.binary())
    return pc.replace_with_mask(text, pa.array(rest), shown_text)
