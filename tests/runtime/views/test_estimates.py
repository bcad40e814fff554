"""Tests that views' estimates from rationed rows are unbiased, and their stated errors correct.

The sample is of ranks: all rows of a rank in a batch are kept or none. Each seed is another batch
number, so other ranks. Populations are fixed, with ranks that have many rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import View
from anabranch_planner.passes import parse_sql
from anabranch_runtime.expressions.finishing import COUNT, Finisher, with_counts
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from anabranch_runtime.sinks.parquet import output_schema
from anabranch_runtime.sinks.sampling import RANK, SHARE, with_slots
from anabranch_runtime.views.estimates import (
    GROUP,
    KEPT_RANKS,
    MOST_GROUPS,
    added_up,
    after,
    corrections,
    schema_of_estimates,
)
from anabranch_runtime.views.left_out import GroupKnowledge
from anabranch_runtime.views.scaled import DEVIATIONS, scaled_rows

STREAM = Stream(
    StreamName("t"), tuple((n, parse_type("bigint")) for n in "gx"), None, lateness=None
)
SQL = "SELECT g, count(*) AS c, sum(x) AS s, avg(x) AS a FROM t GROUP BY g"
RANKING = Ranking((("u", "bigint"),), by_batch=True)
SEEDS = range(300)
GROUPS = 3


def _query() -> tuple[QuerySpec, View]:
    found = parse_sql("v", SQL, {"t": STREAM})
    assert found.view is not None
    view = with_counts(found.view)
    members = tuple((m.alias, m.label, m.relation) for m in found.members)
    return QuerySpec(found.id, members, found.bounds, found.projection, view=view), view


QUERY, VIEW = _query()


@dataclass(frozen=True, slots=True)
class Population:
    """Joined rows: group, value, and the unit (rank) of each slot."""

    group: NDArray[np.int64]
    value: NDArray[np.int64]
    units: Sequence[NDArray[np.int64]]


def population(seed: int, units: int = 120, slots: int = 1) -> Population:
    """Return units with one to twelve rows, whose values depend on the unit and on the group."""
    draw = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), draw.integers(1, 13, units))
    group = draw.integers(0, GROUPS, len(unit))
    value = 10 * group + unit % 7 + draw.integers(0, 5, len(unit))
    others = [draw.integers(0, units, len(unit)) for _ in range(slots - 1)]
    return Population(group, value, [unit, *others])


def _ranks(unit: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
    return ranks(RANKING, lambda _: pa.array(unit), len(unit), batch)


def draw(
    rows: Population, shares: Sequence[NDArray[np.float64]], batch: int
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The corrections by one batch in which ``rows`` arrived, and which of them were kept."""
    found, kept = sample(rows, shares, batch)
    return corrections(QUERY, VIEW, found), kept


def sample(
    rows: Population, shares: Sequence[NDArray[np.float64]], batch: int
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Return the joined rows of one batch in which ``rows`` arrived, and which of them were kept.

    Args:
        shares: of each slot, what its rows are given.
    """
    found = [_ranks(unit, batch) for unit in rows.units]
    kept = np.ones(len(rows.group), np.bool_)
    columns = [pa.array(rows.group), pa.array(rows.value)]
    for rank, share in zip(found, shares, strict=True):
        limits = np.array([limit(s) for s in share])
        kept &= rank < limits
        columns += [pa.array(rank), pa.array(limits / WHOLE)]
    schema = with_slots(output_schema(QUERY), len(found))
    assert [f.name for f in schema][2:4] == [RANK.format(0), SHARE.format(0)]
    table = pa.table(columns, schema=schema).filter(pa.array(kept))
    # As several tasks write them: rows of one unit are in several pieces.
    pieces = [table.filter(pa.array(np.arange(table.num_rows) % 2 == task)) for task in range(2)]
    return pa.concat_tables(pieces), kept


def answers(rows: Population, kept: NDArray[np.bool_], table: pa.Table) -> NDArray[np.float64]:
    """Return estimates as (group, column, value or error)."""
    aggregates = pa.RecordBatch.from_pylist(
        [
            {
                **{a.name: None for a in VIEW.aggregates},
                VIEW.keys[0][0]: g,
                **_aggregates(rows.value[kept & (rows.group == g)]),
            }
            for g in range(GROUPS)
        ]
    )
    shown = pa.Table.from_batches([Finisher(VIEW)(aggregates)])
    texts = scaled_rows(VIEW, shown, np.full(GROUPS, GroupKnowledge.BOUNDED, np.int8), table)
    documents = [json.loads(text) for text in texts]
    return np.array(
        [[[d[c]["value"], d[c]["error"]] for c in ("c", "s", "a")] for d in documents], np.float64
    )


def _aggregates(values: NDArray[np.int64]) -> dict[str, object]:
    found: dict[str, object] = {}
    for one in VIEW.aggregates:
        if one.function == "count":
            found[one.name] = len(values)
        elif one.function == "sum":
            found[one.name] = int(values.sum())
        else:
            found[one.name] = float(values.mean())
    return found


def truth(rows: Population) -> NDArray[np.float64]:
    values = [rows.value[rows.group == g] for g in range(GROUPS)]
    return np.array([[len(v), v.sum(), v.mean()] for v in values], np.float64)


def simulate(
    rows: Population, shares: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All seeds' estimates minus true values, and their errors: (seed, group, column) each."""
    found = []
    for batch in SEEDS:
        table, kept = draw(rows, shares, batch)
        found.append(answers(rows, kept, table))
    every = np.array(found)
    return every[..., 0] - truth(rows), every[..., 1]


def _is_unbiased(missed: NDArray[np.float64], *, but: NDArray[np.float64] | float = 0.0) -> bool:
    """Whether the mean is within four of its standard errors of zero, or within ``but``."""
    spread = missed.std(axis=0, ddof=1) / np.sqrt(len(missed))
    return bool((np.abs(missed.mean(axis=0)) <= 4 * spread + but).all())


def _variances(
    missed: NDArray[np.float64], errors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean estimated variance, and the observed variance."""
    return ((errors / DEVIATIONS) ** 2).mean(axis=0), missed.var(axis=0, ddof=1)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_one_goal(share: float) -> None:
    rows = population(1)
    missed, errors = simulate(rows, [np.full(len(rows.group), share)])
    # A ratio has a bias that is small compared with its error.
    assert _is_unbiased(missed, but=np.array([0, 0, 0.1]))
    estimated, met = _variances(missed, errors)
    assert (estimated / met > 0.75).all()
    assert (estimated / met < 1.35).all()
    covered = (np.abs(missed) <= errors).mean(axis=0)
    assert (covered > 0.88).all()
    assert (covered[:, :2] < 0.99).all()


def test_goals_with_one_rank_and_different_shares() -> None:
    """A unit's rows may belong to several goals: those with the smaller share are kept within the
    others.
    """
    rows = population(2)
    share = np.where(np.arange(len(rows.group)) % 3 == 0, 0.35, 0.6)
    missed, errors = simulate(rows, [share])
    assert _is_unbiased(missed, but=np.array([0, 0, 0.1]))
    estimated, met = _variances(missed, errors)
    assert (estimated / met > 0.75).all()
    assert (estimated / met < 1.35).all()
    assert ((np.abs(missed) <= errors).mean(axis=0) > 0.88).all()


def test_rows_that_need_two_ranks() -> None:
    """The stated errors may be too large then, but not too small."""
    rows = population(3, units=200, slots=2)
    length = len(rows.group)
    second = np.where(np.arange(length) % 2 == 0, 0.7, 1.0)
    missed, errors = simulate(rows, [np.full(length, 0.6), second])
    assert _is_unbiased(missed, but=np.array([0, 0, 0.1]))
    estimated, met = _variances(missed, errors)
    assert (estimated / met > 0.8).all()
    assert ((np.abs(missed) <= errors).mean(axis=0) > 0.9).all()


def test_rows_alone_would_seem_more_certain_than_they_are() -> None:
    """This is why variances are by units: by rows they would be several times too small."""
    rows = population(4)
    share = 0.5
    missed, _ = simulate(rows, [np.full(len(rows.group), share)])
    by_rows = truth(rows)[:, 0] * (1 - share) / share
    assert (missed[..., 0].var(axis=0, ddof=1) > 1.5 * by_rows).all()


def test_several_batches_add_up() -> None:
    rows = population(5)
    share = [np.full(len(rows.group), 0.5)]
    tables = [draw(rows, share, batch)[0] for batch in range(3)]
    together = added_up([schema_of_estimates(VIEW).empty_table(), *tables])
    assert together.schema == schema_of_estimates(VIEW)
    assert together.num_rows == GROUPS
    for group in together[GROUP].to_pylist():
        parts = [t.filter(pc.equal(t[GROUP], group)).to_pylist() for t in tables]
        found = together.filter(pc.equal(together[GROUP], group)).to_pylist()[0]
        for name, value in found.items():
            if name != GROUP:
                assert value == pytest.approx(sum(p[0][name] for p in parts if p))


def test_few_ranks_have_no_error() -> None:
    rows = population(6, units=6)
    table, kept = draw(rows, [np.full(len(rows.group), 0.9)], 1)
    found = answers(rows, kept, table)
    assert max(table[KEPT_RANKS].to_pylist()) < 10
    assert np.isnan(found[..., 1]).all()
    assert np.isfinite(found[..., 0]).all()


def test_a_group_without_corrections_is_as_it_is() -> None:
    rows = population(7)
    everything = np.ones(len(rows.group), np.bool_)
    found = answers(rows, everything, schema_of_estimates(VIEW).empty_table())
    assert np.allclose(found[..., 0], truth(rows))
    # Nothing was kept of a rationed batch, so it is unknown how much was withheld.
    assert np.isnan(found[..., 1]).all()


def test_too_many_groups_have_no_estimates() -> None:
    rows = population(8)
    share = [np.full(len(rows.group), 0.5)]
    table, found = draw(rows, share, 10)[0], sample(rows, share, 10)[0]
    assert after(None, QUERY, VIEW, found) is None
    large = table.slice(0, 1).take(pa.array([0] * MOST_GROUPS))
    names = pa.array([str(n) for n in range(MOST_GROUPS)], pa.large_string())
    large = large.set_column(0, GROUP, names)
    assert after(large, QUERY, VIEW, found) is None
    assert after(large.slice(0, 5), QUERY, VIEW, found) == added_up([large.slice(0, 5), table])


def test_an_average_is_counted_beside() -> None:
    assert [a.name for a in VIEW.aggregates][-1].startswith("anabranch_counting_")
    assert with_counts(VIEW) == VIEW
    again = parse_sql("v", SQL.replace("count(*)", "count(x)"), {"t": STREAM}).view
    assert again is not None
    assert with_counts(again) == again
    names = Finisher(VIEW)(_nothing()).schema.names
    assert COUNT.format(0) in names


def _nothing() -> pa.RecordBatch:
    document: dict[str, object] = {a.name: None for a in VIEW.aggregates}
    return pa.RecordBatch.from_pylist([{**document, VIEW.keys[0][0]: None}])
