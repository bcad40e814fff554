"""Deletes of tuples that rows of tables and of upsert streams replace.

A row replaces its predecessor: the stored row with its key that has the greatest (batch, position
in the input) below the row's own. So every row is replaced by at most one other row, in whatever
tasks and batches the rows arrive, and each task finds the predecessors of its own rows. The search
begins once all rows of the batch are stored. A replaced tombstone needs no delete.

A delete has the values of the replaced row, the weight -1, and the position of the row that
replaces it. It is stored and probes with the batch's tuples (``semantics.md``, "Streams of
changes").

With several hosts, each has only some of the stored rows. So replacing rows are sent to all hosts
in turn, with the latest predecessor found so far, and the last host makes the deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.plans.ruleset import KeyPart, LatestRule
from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_runtime.columns.arrays import I32, Bools, Ints, fixed
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.exchange.traffic import Letter, Traffic
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.matching import ANY, TooManyPairs
from anabranch_runtime.probe.probe import Lookup, Prober, Target
from anabranch_runtime.state.coverage import Tile
from anabranch_runtime.storage.partial import Partial, RowSet, Tables, concat_rows
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU
from anabranch_runtime.task.arrivals import TaskArrivals, check_count, filtered

#: Kind of messages: rows that replace others, sent from host to host to find these.
REPLACING = "replacing"
_STORED = Label("replaced")
#: Prefix of the columns with the latest predecessor found so far.
_OLD = "old:"


@dataclass(slots=True)
class Replacing:
    """The search for the stored rows that a task's rows replace, in one batch.

    Attributes:
        tiles: stream -> stores and batches of its rows.
        traffic: messages to other hosts; None on a single host. ``tasks``: number of tasks.
    """

    prober: Prober
    tiles: Mapping[str, tuple[Tile, ...]]
    traffic: Traffic | None
    tasks: int
    _found: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rules(self) -> list[LatestRule]:
        """Rules of the streams with replacements: tables with a key, and streams of upserts."""
        layout = self.prober.layout
        return [r for r in layout.ruleset.latest_rules if layout.streams[r.stream].replaces_rows]

    def begin(self, arrivals: TaskArrivals) -> None:
        """Search for the rows that the arrived rows of this task replace."""
        for rule in self.rules:
            table = arrivals.tables.get(rule.relation)
            if table is not None:
                rows = table.batch.select([*(c for c, _ in rule.key), SIGMA, TAU])
                for name, kind in self._kinds(rule).items():
                    rows = rows.append_column(_OLD + name, pa.nulls(rows.num_rows, kind))
                self._visit(rule, rows, origin=-1)

    def arrived(self, letter: Letter) -> None:
        """Continue the search for predecessors of rows that another host has sent."""
        _, stream, origin = letter.address
        rule = next(r for r in self.rules if r.stream == stream)
        self._visit(rule, letter.rows, int(origin))

    def deletes(
        self, arrivals: TaskArrivals, failed: Callable[[RelationId, AnabranchRuntimeError], None]
    ) -> dict[RelationId, pa.RecordBatch]:
        """Return relation -> deletes of replaced rows, with sigmas above all of ``arrivals``.

        ``failed`` is called with a relation whose filter can't be evaluated.
        """
        layout, made = self.prober.layout, dict[RelationId, pa.RecordBatch]()
        count = sum(m.input for m in arrivals.meters.values())
        for stream, found in sorted(self._found.items()):
            rows = pa.concat_batches(found)
            check_count(count := count + rows.num_rows, self.tasks)
            sigma = arrivals.next_sigma + np.arange(rows.num_rows, dtype=np.int64)
            arrivals.next_sigma += rows.num_rows
            # In the column order of arrived rows, so that a merge can concatenate both.
            rows = rows.add_column(rows.num_columns - 1, SIGMA, pa.array(sigma))
            for relation in layout.ruleset.relations:
                if relation.stream != stream:
                    continue
                try:
                    kept = filtered(relation, rows)
                except EVALUATION as error:
                    failed(relation.id, error)
                    continue
                if kept.num_rows:
                    made[relation.id] = kept
        return made

    def _kinds(self, rule: LatestRule) -> dict[str, pa.DataType]:
        """Return the columns of its predecessor that a replacing row carries, with their types."""
        spec = self.prober.layout.streams[rule.stream]
        kinds = {name: arrow_type(kind) for name, kind in spec.stored_columns}
        return {**kinds, SIGMA: pa.int64(), TAU: pa.int64()}

    def _visit(self, rule: LatestRule, rows: pa.RecordBatch, origin: int) -> None:
        rows = self._searched(rule, rows)
        if self.traffic is not None:
            fleet = self.traffic.fleet
            origin = fleet.here if origin < 0 else origin
            following = (fleet.here + 1) % len(fleet.names)
            if following != origin:
                way = (REPLACING, str(rule.stream), str(origin))
                self.traffic.send(fleet.peer(following), Letter(way, rows, rows.num_rows))
                return
        rows = rows.filter(pc.equal(rows.column(f"{_OLD}{TUPLE_WEIGHT}"), 1))
        if rows.num_rows:
            columns = self.prober.layout.streams[rule.stream].columns
            names = [*(name for name, _ in columns), TUPLE_WEIGHT, TAU]
            arrays = [rows.column(_OLD + name) for name, _ in columns]
            weight = pa.repeat(pa.scalar(-1, pa.int8()), rows.num_rows)
            arrays += [weight, rows.column(TAU)]
            self._found[rule.stream].append(pa.RecordBatch.from_arrays(arrays, names=names))

    def _searched(self, rule: LatestRule, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``rows``, each with the later predecessor: the carried one or this host's."""
        label = Label(rule.relation)
        part = Partial(
            rows.num_rows,
            (RowSet(Tables([BatchTable(rows)]), None, np.arange(rows.num_rows, dtype=np.int32)),),
            {label: (0, "")},
            label,
        )
        key = [KeyPart(AttrRef(label, c), AttrRef(label, c), kind) for c, kind in rule.key]
        found = self._best(part, label, rule, Target(rule.relation, key, (_STORED,), (), True))
        if found is None:
            return rows
        positions, best = found
        at = np.full(rows.num_rows, -1, np.int64)
        at[positions] = np.arange(len(positions))
        place = pa.array(np.maximum(at, 0), mask=at < 0)
        kinds = self._kinds(rule)
        own = {n: best.column(n).cast(kind).take(place) for n, kind in kinds.items()}
        before = {n: rows.column(_OLD + n) for n in kinds}
        mine = pa.array(_later(own, before))
        arrays = [
            pc.if_else(mine, own[name.removeprefix(_OLD)], rows.column(name))
            if name.startswith(_OLD)
            else rows.column(name)
            for name in rows.schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)

    def _best(
        self, tuples: Partial, label: Label, rule: LatestRule, target: Target
    ) -> tuple[I32, RowSet] | None:
        """Return the positions of ``tuples`` with a predecessor here, and it; None: no tuple."""
        most = self.prober.most if tuples.length > 1 else ANY
        found: list[tuple[I32, RowSet]] = []
        try:
            lookup = Lookup(self.prober, tuples, target, ())
            for tile in self.tiles[str(rule.stream)]:
                for group, probes in lookup.routed(tile):
                    pairs = lookup.match(tile, group, probes, None, most)
                    if pairs is not None:
                        found.append(_latest(*pairs, tuples, label))
            self.prober.reads.keep()
        except TooManyPairs:
            self.prober.reads.forget()
            middle = tuples.length // 2
            found = []
            for first, last in ((0, middle), (middle, tuples.length)):
                part = self._best(tuples.cut(first, last), label, rule, target)
                if part is not None:
                    found.append(((part[0] + first).astype(np.int32), part[1]))
        found = [one for one in found if len(one[0])]
        if not found:
            return None
        positions = np.concatenate([at for at, _ in found])
        return _latest(positions, concat_rows([rows for _, rows in found]), tuples, label)


def _latest(positions: I32, rows: RowSet, tuples: Partial, label: Label) -> tuple[I32, RowSet]:
    """Return, per position, the latest of the matching ``rows`` that precede the tuple."""
    batch, tau = rows.int64(SIGMA) >> OFFSET_BITS, rows.int64(TAU)
    own, place = tuples.batch(label)[positions], tuples.tau(label)[positions]
    weight = fixed(rows.column(TUPLE_WEIGHT), np.int8)
    before = np.flatnonzero((batch < own) | ((batch == own) & (tau < place)))
    order = before[np.lexsort((weight[before], tau[before], batch[before], positions[before]))]
    last = np.flatnonzero(np.diff(positions[order], append=-1))
    chosen = order[last].astype(np.int32)
    return positions[chosen], rows.take(chosen)


def _later(one: Mapping[str, pa.Array], other: Mapping[str, pa.Array]) -> Bools:
    """Return the mask of positions where ``one`` has the later predecessor; False if absent."""

    def order(rows: Mapping[str, pa.Array]) -> tuple[Ints, ...]:
        sigma, tau = (rows[n].fill_null(-1).to_numpy(zero_copy_only=False) for n in (SIGMA, TAU))
        weight = rows[TUPLE_WEIGHT].fill_null(-9).to_numpy(zero_copy_only=False)
        return sigma >> OFFSET_BITS, tau, weight.astype(np.int64)

    (a, b, c), (x, y, z) = order(one), order(other)
    found: Bools = (a > x) | ((a == x) & ((b > y) | ((b == y) & (c > z))))
    return found
