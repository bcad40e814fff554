"""Estimates of counts and sums over all joined rows, from the sample kept by load shedding.

A joined row that was kept with probability ``p`` stands for ``1/p`` rows (Horvitz and Thompson). So
the estimate of a sum is the sum over kept rows plus, for each row of a batch with load shedding,
``1/p - 1`` times its value. This module computes only this addition, the *correction*. Groups
without such rows have no correction. The aggregates of the table are not changed.

**Variance.** Sampling selects ranks (hashes of key values), not rows. Let ``R`` be uniform on [0,
1): rows with this rank in a batch are kept if ``R < p``, and ranks are independent. Let ``W(x)`` be
the sum of ``value / p`` over the rank's kept rows with ``p <= x``. Then the integral of ``W(x)^2``
over ``x`` from 0 to 1 is an unbiased estimate of the rank's contribution to the variance: two rows
with probabilities ``p <= q`` have the covariance ``1/q - 1``, both are kept with probability ``p``,
and the integral weighs their product by ``1 - q``. With a single ``p`` it is ``(1 - p)/p^2`` times
the square of the rank's total. A row with several ranks counts fully for each of them: by the
Efron-Stein inequality the expected sum is then at least the variance. The variance of an average is
that of its residuals, hence the sums of products.

The corrections are part of the view's checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.scaling import scalable
from anabranch_contract.queries.views import WINDOW_END, WINDOW_START, View
from anabranch_runtime.columns.arrays import Floats, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.sinks.parquet import output_schema
from anabranch_runtime.sinks.sampling import RANK, SHARE, with_slots
from anabranch_runtime.tables.inputs import windows
from anabranch_runtime.views.identities import texts

#: Maximum number of groups with corrections per view.
MOST_GROUPS = 100_000
#: Columns: group as a JSON object; number of different ranks of its rows in sampled batches.
GROUP, KEPT_RANKS = "group", "ranks"
#: Columns per estimated column: corrections of its count and of its sum; variances and covariance
#: of these.
PARTS = ("count", "sum", "count_count", "count_sum", "sum_sum")


def measured(view: View) -> tuple[str | None, ...]:
    """Return the columns whose counts and sums are estimated; None stands for ``count(*)``."""
    return tuple(dict.fromkeys(a.column for a in scalable(view).values()))


def part(number: int, name: str) -> str:
    """Return the column for ``name`` (of :data:`PARTS`) of the estimated column ``number``."""
    return f"{number}.{name}"


def schema_of_estimates(view: View) -> pa.Schema:
    """Return the schema of the table of corrections (estimates) of a view."""
    parts = [part(n, name) for n in range(len(measured(view))) for name in PARTS]
    fields: list[Any] = [(GROUP, pa.large_string()), (KEPT_RANKS, pa.int64())]
    return pa.schema([*fields, *((name, pa.float64()) for name in parts)])


def after(before: pa.Table | None, query: QuerySpec, view: View, rows: pa.Table) -> Any:
    """Add the corrections of a sampled batch's joined ``rows`` to the table ``before``; return it,
    or None if there are too many groups, now or in an earlier batch."""
    if before is None:
        return None
    found = added_up([before, corrections(query, view, rows)])
    return None if found.num_rows > MOST_GROUPS else found


def are_sampled(rows: pa.Table) -> bool:
    """Whether a view's joined rows have inclusion probabilities."""
    return RANK.format(0) in rows.column_names


def added_up(tables: Sequence[pa.Table]) -> pa.Table:
    """Add up the corrections of estimates in several tables, by group."""
    together, schema = pa.concat_tables(tables), tables[0].schema
    names = [name for name in schema.names if name != GROUP]
    sums = together.group_by(GROUP, use_threads=False).aggregate([(n, "sum") for n in names])
    return pa.table([sums[GROUP], *(sums[f"{n}_sum"] for n in names)], schema=schema)


def corrections(query: QuerySpec, view: View, rows: pa.Table) -> pa.Table:
    """Compute the corrections of estimates from one batch's joined rows."""
    slots = sum(SHARE.format(n) in rows.column_names for n in range(rows.num_columns))
    rows = rows.select(with_slots(output_schema(query), slots).names).combine_chunks()
    at, identities = _groups(view, rows)
    coded = identities.dictionary_encode()
    groups, codes = len(coded.dictionary), coded.indices.to_numpy().astype(np.int64)
    drawn = [(_numbers(rows[RANK.format(s)]), _floats(rows[SHARE.format(s)])) for s in range(slots)]
    weight = np.ones(rows.num_rows)
    for _, share in drawn:
        weight /= share
    drawn = [(rank[at], share[at]) for rank, share in drawn]
    units, entries = _units(codes, drawn)
    columns: list[Any] = [coded.dictionary, np.bincount(units, minlength=groups)]
    for name in measured(view):
        counted, summed = _values(rows, name)
        count, total = (weight * counted)[at], (weight * summed)[at]
        more = [_by(codes, count - counted[at], groups), _by(codes, total - summed[at], groups)]
        columns += [*more, *_products(units, entries, count, total, groups)]
    return pa.table(columns, schema=schema_of_estimates(view))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Rows kept with one probability: their positions, and each one's unit (group and rank)."""

    share: float
    row: Ints
    unit: Ints


def _units(codes: Ints, drawn: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, list[_Entry]]:
    """Number the units (pairs of group and rank) of sampled rows; return the group of each unit,
    and the units' rows by ascending inclusion probability."""
    row = np.concatenate([np.flatnonzero(share < 1) for _, share in drawn])
    rank = np.concatenate([rank[share < 1] for rank, share in drawn])
    shares = np.concatenate([share[share < 1] for _, share in drawn])
    order = np.lexsort((rank, codes[row]))
    row, rank, shares = row[order], rank[order], shares[order]
    group = codes[row]
    first = np.ones(len(row), np.bool_)
    first[1:] = (group[1:] != group[:-1]) | (rank[1:] != rank[:-1])
    unit = np.cumsum(first) - 1
    # The loop is short, since there are at most as many probabilities as goals.
    entries = [_Entry(float(s), row[shares == s], unit[shares == s]) for s in np.unique(shares)]
    return group[first], entries


def _products(
    units: Ints, entries: Sequence[_Entry], count: Floats, total: Floats, groups: int
) -> list[Floats]:
    """Return the variance integrals of the module docstring, summed over each group's ranks."""
    found = [np.zeros(groups) for _ in range(3)]
    counts, totals = np.zeros(len(units)), np.zeros(len(units))
    limits = [*(e.share for e in entries[1:]), 1.0]
    for entry, following in zip(entries, limits, strict=True):
        counts += _by(entry.unit, count[entry.row], len(counts))
        totals += _by(entry.unit, total[entry.row], len(totals))
        width = following - entry.share
        for n, product in enumerate((counts * counts, counts * totals, totals * totals)):
            found[n] += width * _by(units, product, groups)
    return found


def _by(codes: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(codes, weights=values, minlength=count).astype(np.float64, copy=False)


def _values(rows: pa.Table, name: str | None) -> tuple[Floats, Floats]:
    """Return per row 1 if the column is not NULL (else 0), and the column's value (NULL: 0)."""
    if name is None:
        return np.ones(rows.num_rows), np.zeros(rows.num_rows)
    column = rows[name]
    counted = pc.is_valid(column).to_numpy().astype(np.float64)
    kind = column.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    # Text and time columns are only counted.
    return counted, _floats(column) if number else np.zeros(rows.num_rows)


def _floats(column: pa.ChunkedArray) -> Floats:
    found: Floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
    return found


def _numbers(column: pa.ChunkedArray) -> Ints:
    found: Ints = column.to_numpy()
    return found


def _groups(view: View, rows: pa.Table) -> tuple[Ints, pa.Array]:
    """Assign joined rows to groups: return pairs of a row's position and a group's identity.

    A row whose window column is NULL is in no group.
    """
    at = np.arange(rows.num_rows)
    starts = ends = at
    if view.window is not None:
        times = rows[view.window.column]
        moments = _numbers(pc.fill_null(times.cast(pa.int64()), 0))
        at, starts, ends = windows(view.window, moments, pc.is_valid(times).to_numpy())
    arrays, names = list[pa.Array](), list[str]()
    for (name, kind), shown in zip(view.group_keys, view.identity, strict=True):
        if view.window is not None and name == WINDOW_START:
            column = pa.array(starts).cast(arrow_type(kind))
        elif view.window is not None and name == WINDOW_END:
            column = pa.array(ends).cast(arrow_type(kind))
        else:
            column = rows[name].combine_chunks().take(pa.array(at))
        if pa.types.is_floating(column.type):
            # Adding 0.0 turns -0.0 into 0.0: Spark groups both together.
            column = pc.add(column, pa.scalar(0.0, column.type))
        arrays.append(column)
        names.append(shown)
    if not names:
        return at, pa.array(["{}"] * len(at), pa.large_string())
    return at, texts(pa.table(arrays, names=names))
