"""Tests of texts whose column would exceed Arrow's 2 GiB: evaluated in parts if single rows fit,
else an error.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import Call, Column
from anabranch_contract.queries.joins import Label, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.errors import ColumnOverflow, ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from anabranch_runtime.expressions.functions.kernels import KERNELS
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.probe.probe import _held
from anabranch_runtime.storage.partial import Partial, RowSet, Tables

STREAM = Stream(StreamName("r"), (("s", parse_type("string")), ("n", parse_type("bigint"))))
SCOPE = Scope.of_stream("r", STREAM)
MANY = ", ".join(["s"] * 40)


def expression(text: str):  # type: ignore[no-untyped-def]
    return typed(parse_expression(text), SCOPE)


def fetched(table: pa.Table):  # type: ignore[no-untyped-def]
    return lambda column: table[column.name].combine_chunks()


def rows(count: int, length: int) -> pa.Table:
    return pa.table({"s": pa.repeat("a" * length, count), "n": np.arange(count)})


@pytest.mark.parametrize(
    "text",
    [
        f"concat({MANY})",
        f"upper(concat({MANY}))",
        f"replace(s, 'a', '{'b' * 200}')",
        f"regexp_replace(s, 'a', '{'b' * 200}')",
        f"regexp_replace(s, '(a+)', '{'$1' * 200}')",
    ],
)
def test_a_text_that_becomes_too_long_is_an_error(text: str) -> None:
    table = rows(1, 60_000_000 if "concat" in text else 12_000_000)
    with pytest.raises(ColumnOverflow, match="longer than 2 GiB") as caught:
        evaluate(expression(text), fetched(table), 1)
    assert caught.value.code == "too-long"
    assert caught.value.field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("replace(s, 'a', 'bc')", "bcbcbc"),
        ("replace(s, 'x', 'bc')", "aaa"),
        ("regexp_replace(s, '(a)a', '$1b$1')", "abaa"),
    ],
)
def test_other_texts_are_replaced_near_the_limit(
    text: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of exactly the row's bytes, matches are replaced; with less, it is an error."""
    texts, table = "anabranch_runtime.expressions.functions.texts._MOST_BYTES", rows(1, 3)
    whole = evaluate(expression(text), fetched(table), 1)
    least = next(n for n in range(200) if _passes(text, table, texts, n, monkeypatch))
    assert len(answer) <= least
    assert evaluate(expression(text), fetched(table), 1).equals(whole)
    assert _passes(text, table, texts, least + 1, monkeypatch)


def _passes(
    text: str, table: pa.Table, limit: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> bool:
    monkeypatch.setattr(limit, bytes_)
    try:
        evaluate(expression(text), fetched(table), 1)
    except ColumnOverflow:
        return False
    return True


@pytest.mark.slow  # GiB of memory
def test_a_filter_tests_long_texts_in_parts() -> None:
    table = rows(8, 8_000_000)
    held = expression(f"length(concat({MANY})) > 0 AND n % 3 = 0")
    mask = filter_mask([held], fetched(table), 8)
    assert mask is not None
    assert mask.tolist() == [n % 3 == 0 for n in range(8)]
    lengths = evaluate(expression(f"length(concat({MANY}))"), fetched(table), 8)
    assert lengths.to_pylist() == [40 * 8_000_000] * 8


@pytest.mark.slow  # GiB of memory
def test_a_residual_reads_long_texts_in_parts() -> None:
    table = BatchTable(rows(4, 1_000_000).combine_chunks().to_batches()[0])
    matches = np.tile(np.arange(4, dtype=np.int32), 600)
    label = Label("r")
    partial = Partial(
        len(matches), (RowSet(Tables([table]), None, matches),), {label: (0, "")}, label
    )
    with pytest.raises(ColumnOverflow, match="2400 rows are longer than 2 GiB"):
        partial.column(label, Column("r", "s", parse_type("string")).name)
    mask = _held(partial, [expression("s LIKE '%a' AND n > 1")])
    assert mask is not None
    assert (mask == (matches > 1)).all()


@pytest.mark.parametrize("kind", [pa.ArrowInvalid, pa.ArrowNotImplementedError])
def test_an_error_of_arrow_is_the_expressions(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the error fails the queries with the expression, not the pipeline; lack of memory may be
    temporary.
    """

    def fails(call: Call, args: list[pa.Array]) -> pa.Array:
        raise kind("no kernel")

    monkeypatch.setitem(KERNELS, "replace", fails)
    with pytest.raises(ExpressionError, match="no kernel") as caught:
        evaluate(expression("upper(replace(s, 'a', 'b'))"), fetched(rows(1, 3)), 1)
    assert (caught.value.code, caught.value.field) == ("failed-kernel", "replace(r.s, 'a', 'b')")
    kind = pa.ArrowMemoryError
    with pytest.raises(MemoryError):
        evaluate(expression("replace(s, 'a', 'b')"), fetched(rows(1, 3)), 1)
