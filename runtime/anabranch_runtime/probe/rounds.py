"""Probe trees depth by depth: all edges at one depth are one call of a kernel.

With many tuples, each probe is a kernel call of its own (``probe``). With few tuples the Python
code per edge dominates, and most batches have few tuples on most edges. So the rules of the program
(``program``) probe together, in a *round*: a *front* has the tuples at one depth and, per edge, the
range of tuples that it sends. The matches form the next front. Only tuples for stores, outputs or
rules outside the program become partial results.

Results and counts of an edge are the same in a round as in a probe of its own. The CPU time of a
call is divided among its edges by their work: tuples sent, look-ups in segments, matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule, ProbeRule
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.expressions import Expr
from anabranch_runtime.columns.arrays import I32, Bools, Ints, ranged
from anabranch_runtime.cpu import process_seconds
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index import prefetch
from anabranch_runtime.index.rounds import (
    CALLS,
    FIRST,
    FOUND,
    GREATEST,
    HITS,
    LAST,
    LOOKED,
    LOOKUP,
    MATCHES,
    NEWEST,
    PAIRS,
    PROBES,
    READ_LOOKED,
    RULE,
    TABLE,
    match_round,
)
from anabranch_runtime.probe import probe
from anabranch_runtime.probe.numbered import NumberedTables
from anabranch_runtime.probe.probe import Prober, check
from anabranch_runtime.probe.program import ProbeProgram, RoundOutputs, StoreLookup, program
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, SegmentReader
from anabranch_runtime.tags.tags import Tags

#: Callback that takes a rule's results, the rule, and the next rules, which rounds did not run.
Deliver = Callable[[Partial, ProbeRule, Sequence[ProbeRule]], None]
#: Callback that probes an edge outside of rounds. It takes tuples, their probe rule, and the number
#: of tuples for which pairs are counted.
Alone = Callable[[Partial, ProbeRule, int], None]
#: Callback that takes a probe rule whose results an expression failed on, and the error.
Failed = Callable[[ProbeRule, AnabranchRuntimeError], None]

#: Number of waiting tuples above which a round starts, even if more tuples may come.
MANY = 1 << 16
#: Key in a segment reader's cache for the addresses of the segment's members.
MEMBERS = "members"
_UNKNOWN, _ELSEWHERE = -2, -1
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
#: Column after the kernel's counts of an edge: number of the edge's result tuples.
_MADE = LOOKED + 1


@dataclass(frozen=True, slots=True)
class Front:
    """Tuples at one depth of the trees, and the edges that they are sent over.

    Attributes:
        edges: rows of ``index.rounds``' table of edges.
        which, rows: shape (row sets, tuples): table number and row.
    """

    edges: Ints
    which: I32
    rows: I32


class Targets:
    """The stores that a batch's rules probe, as tables for a kernel, filled on first use.

    Attributes:
        lookups: per look-up of the program, the range of its rows in ``stores``; ``_ELSEWHERE``:
            its rules can't run in rounds in this batch: some rows are in gaps or need more checks.
        stores: per store of a look-up, the range of its rows in ``segments``.
        names: (store, index) per row of ``stores``. ``outside``: per row, number of segments
            outside the batches of the look-up's tiles.
        segments, members: see ``index.rounds``. ``work``: look-ups plus matches per segment.
        partitions: (store, partition) of each segment.
    """

    def __init__(self, made: ProbeProgram, prober: Prober, tables: NumberedTables) -> None:
        self._program, self._prober, self._tables = made, prober, tables
        #: Value of ``LiveSegments.changes`` up to which the tables include the segments.
        self._changes = prober.segments.changes
        self.lookups = np.full((len(made.lookups), 2), _UNKNOWN, np.int64)
        self._stores: list[tuple[int, int]] = []
        self._outside: list[int] = []
        self._lines: list[bytes] = []
        self._members: list[bytes] = []
        self._rest: list[tuple[int, int, int, int]] = []
        self._first = 0
        self.names: list[tuple[str, str]] = []
        self.partitions: list[tuple[str, int]] = []
        self.stores = self.segments = self.members = np.zeros((0, 0), np.int64)
        self.outside = self.work = np.zeros(0, np.int64)
        self.reads = np.zeros((0, READ_LOOKED + 1), np.int64)

    def renew(self) -> None:
        """Drop the look-ups of stores that got segments; their old rows stay, unused."""
        live = self._prober.segments
        changed = live.changed(self._changes)
        self._changes = live.changes
        if changed:
            for number in np.flatnonzero(self.lookups[:, 0] >= 0).tolist():
                first, last = self.lookups[number].tolist()
                if any(store in changed for store, _ in self.names[first:last]):
                    self.lookups[number] = _UNKNOWN

    def require(self, rules: Ints, access: Mapping[str, Access]) -> None:
        """Add the stores that these probe rules read to the kernel's tables."""
        needed = np.unique(self._program.table[rules, LOOKUP])
        unknown = needed[self.lookups[needed, 0] == _UNKNOWN]
        if not len(unknown):
            return
        for number in unknown.tolist():
            lookup = self._program.lookups[number]
            known = len(self._stores)
            self.lookups[number] = _ELSEWHERE
            if self._add(lookup, access[lookup.rule.out]):
                self.lookups[number] = known, len(self._stores)
        self.stores = np.array(self._stores, np.int64).reshape(-1, 2)
        self.outside = np.array(self._outside, np.int64)
        lines = np.frombuffer(bytearray().join(self._lines), np.int64).reshape(-1, NEWEST + 1)
        columns = [TABLE, NEWEST - 2, NEWEST - 1, NEWEST]
        lines[:, columns] = np.array(self._rest, np.int64).reshape(-1, 4)
        members = np.frombuffer(bytearray().join(self._members), np.int64)
        self.segments, self.members = lines, members.reshape(-1, GREATEST + 1)
        self._tables.locate(lines[:, TABLE])
        self.work = _longer(self.work, len(lines))
        self.reads = _longer(self.reads, len(self._stores))

    def _add(self, lookup: StoreLookup, access: Access) -> bool:
        """Add the stores of a look-up's tiles to the tables. Return False if some rows are in gaps,
        or if a store may have rows that are not in the relation."""
        layout, live = self._prober.layout, self._prober.segments
        if access.gaps or any(
            layout.missing_filter(lookup.rule.mir, t.store) for t in access.tiles
        ):
            return False
        found: dict[str, list[tuple[SegmentReader, int, int]]] = {}
        outside: dict[str, int] = {}
        for tile in access.tiles:
            low, high = tile.interval
            least, greatest = low << OFFSET_BITS, ((high + 1) << OFFSET_BITS) - 1
            readers = live.within(tile.store, tile.interval)
            there = found.setdefault(tile.store, [])
            for reader in readers:
                one = reader.segment
                if one.first_batch < low or one.last_batch > high:
                    there.append((reader, least, greatest))
                else:
                    there.append((reader, _EARLIEST, _LATEST))
            passed = live.count(tile.store) - len(readers)
            outside[tile.store] = outside.get(tile.store, 0) + passed
        for store, pieces in found.items():
            first = len(self._lines)
            for reader, least, greatest in pieces:
                number = self._tables.number(reader, lookup.kind)
                self._rest.append((number, self._first, least, greatest))
                self._lines.append(reader.lines.get(lookup.name) or _described(reader, lookup))
                members = reader.lines.get(MEMBERS) or _members(reader, lookup.rule)
                self._members.append(members)
                self._first += len(members) // (8 * (GREATEST + 1))
                self.partitions.append((store, reader.segment.partition))
            self._stores.append((first, len(self._lines)))
            self._outside.append(outside[store])
            self.names.append((store, lookup.name))
        return True


def _longer(values: Ints, length: int) -> Ints:
    more = np.zeros((length - len(values), *values.shape[1:]), np.int64)
    return np.concatenate([values, more])


def _described(reader: SegmentReader, lookup: StoreLookup) -> bytes:
    """Return a segment's row in the kernel's table (cached), with 0 for values of the batch."""
    one = reader.segment
    index = reader.index(lookup.index, lambda: [reader.column(c) for c in lookup.index.columns])
    line = (*index.words, 0, one.rows, one.last_batch, 0, 0, 0)
    found = reader.lines[lookup.name] = np.array(line, np.int64).tobytes()
    return found


def _members(reader: SegmentReader, rule: ProbeRule) -> bytes:
    """Return the rows of a segment's members in the kernel's table; ``reader`` caches them."""
    one, lines = reader.segment, []
    joined = len(rule.members) > 1 or bool(rule.fill)
    for at, member in enumerate(rule.members):
        end = f":{member}" if joined else ""
        least, greatest = one.tau_min[at], one.tau_max[at]
        lines += [
            reader.place(SIGMA + end).first,
            0 if least is None else reader.place(TAU + end).first,
            _EARLIEST if least is None else least,
            _LATEST if greatest is None else greatest,
        ]
    found = reader.lines[MEMBERS] = np.array(lines, np.int64).tobytes()
    return found


@dataclass(slots=True)
class _Queue:
    """Tuples that wait for the next round, all with the same number of row sets."""

    edges: list[tuple[int, int, int, int]] = field(default_factory=list)
    which: list[I32] = field(default_factory=list)
    rows: list[I32] = field(default_factory=list)
    length: int = 0
    #: ``id()`` of a partial result -> the result (kept, so that no other has the id), first tuple.
    known: dict[int, tuple[Partial, int]] = field(default_factory=dict)

    def front(self) -> Front:
        """Return all waiting tuples as a front, to probe in one round."""
        edges = np.array(self.edges, np.int64)
        return Front(edges, np.concatenate(self.which, axis=1), np.concatenate(self.rows, axis=1))


@dataclass(slots=True)
class Rounds:
    """The rounds of one batch in one task.

    Attributes:
        access: edge -> tiles and gaps of its probe.
        deliver: receives results for stores, rules outside rounds, and outputs without tags.
        output: receives the results of a rule for an output with tags.
        alone: receives edges that a round can't probe: they need further checks, or are too large.
        failed: receives rules whose residuals can't be evaluated.
        follows: whether results probe by the next rules in the same run; if not, all are delivered.
        tags: select the tuples that edges send.
    """

    prober: Prober
    access: Mapping[str, Access]
    deliver: Deliver
    output: Callable[[Partial, ProbeRule, OutputRule], None]
    alone: Alone
    failed: Failed
    follows: bool
    tags: Tags
    _program: ProbeProgram = field(init=False)
    _tables: NumberedTables = field(init=False)
    _checks: Bools = field(init=False)
    _targets: Targets = field(init=False)
    _totals: Ints = field(init=False)
    #: CPU seconds of kernel calls that are not yet in the meters of edges.
    _seconds: float = 0.0
    #: Number of row sets -> waiting tuples.
    _waiting: dict[int, _Queue] = field(default_factory=dict)
    _running: bool = False

    def __post_init__(self) -> None:
        self._program = program(self.prober.layout.ruleset, self.tags.program)
        tagged = self._program.choices is not None or self._program.outputs is not None
        self._tables = NumberedTables(
            self._program.names, self._program.read, self.tags.prepare if tagged else None
        )
        complete = self.tags.complete
        self._checks = self._program.untagged if complete else self._program.checked
        self._targets = Targets(self._program, self.prober, self._tables)
        self._totals = np.zeros((len(self._program.rules), _MADE + 1), np.int64)

    def add(self, partial: Partial, rule: ProbeRule, of: int) -> bool:
        """Queue ``partial`` for the next round by ``rule``; return False if it needs its own probe.

        Args:
            of: number of tuples, on this host and on others, for which pairs are counted.
        """
        number = self._program.numbers.get(rule.out)
        if number is None or partial.length > probe.FEW or prefetch.is_enabled():
            return False
        kinds = self._program.kinds[number][:-1]
        queue = self._waiting.get(len(kinds))
        if queue is None:
            queue = self._waiting[len(kinds)] = _Queue()
        known = queue.known.get(id(partial))
        if known is None:
            place = self._program.places[number]
            if any(place[label] != there for label, there in partial.place.items()):
                return False
            first = queue.length
            queue.known[id(partial)] = partial, first
            tables = self._tables
            queue.which.append(
                np.stack([tables.of(s, k) for s, k in zip(partial.sets, kinds, strict=True)])
            )
            queue.rows.append(np.stack([s.rows for s in partial.sets]))
            queue.length += partial.length
        else:
            first = known[1]
        queue.edges.append((first, first + partial.length, number, of))
        if queue.length > MANY and not self._running:
            self.run()
        return True

    def run(self) -> None:
        """Send the waiting tuples down the probe trees, until none waits."""
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                queue = self._waiting.pop(min(self._waiting))
                if queue.edges:
                    front = queue.front()
                    for which in front.which:
                        self._tables.locate(which)
                    self._run(front)
        finally:
            self._running = False
        self._account()

    def _run(self, front: Front) -> None:
        front = self._sorted_out(self._sent(front))
        while len(front.edges):
            done, made, ends = self._match(front)
            if not done:
                # The first edge's result is too large for a round.
                self._send_alone(front, front.edges[0])
                front = Front(front.edges[1:], front.which, front.rows)
                continue
            edges, front = front.edges[:done], Front(front.edges[done:], front.which, front.rows)
            self._go_on(edges, *self._checked(edges, made, ends))

    def _sent(self, front: Front) -> Front:
        """Return the front without tuples that, by their tags, no query needs."""
        choices = self._program.choices
        if choices is None or not (self.tags.complete or len(front.which) == 1):
            return front
        began = process_seconds()
        positions, edges = self.tags.sent(
            front.edges, front.which, front.rows, choices, self._tables.places
        )
        edges = edges[edges[:, LAST] > edges[:, FIRST]]
        front = Front(edges, front.which.take(positions, 1), front.rows.take(positions, 1))
        self._seconds += process_seconds() - began
        return front

    def _sorted_out(self, front: Front) -> Front:
        """Return the front with the edges that fit a round; the other edges are probed alone."""
        edges = front.edges
        self._targets.renew()
        self._targets.require(edges[:, RULE], self.access)
        lookups = self._program.table[edges[:, RULE], LOOKUP]
        fit = (self._targets.lookups[lookups, 0] != _ELSEWHERE) & (
            edges[:, LAST] - edges[:, FIRST] <= probe.FEW
        )
        if fit.all():
            return front
        for edge in edges[~fit]:
            self._send_alone(front, edge)
        return Front(edges[fit], front.which, front.rows)

    def _match(self, front: Front) -> tuple[int, Front, Ints]:
        """Probe a front; return the number of finished edges, their results, and each one's end."""
        targets, known, batch = self._targets, self._program, self.prober.batch
        began = process_seconds()
        done, positions, tables, rows, ends = match_round(
            front.edges,
            front.which,
            front.rows,
            known.table,
            known.keys,
            known.orders,
            known.bounds,
            targets.lookups,
            targets.stores,
            targets.outside,
            targets.segments,
            targets.members,
            self._tables.places,
            batch,
            batch << OFFSET_BITS,
            ((batch + 1) << OFFSET_BITS) - 1,
            self.prober.by_stream,
            self.prober.most,
            self._totals,
            targets.reads,
            targets.work,
        )
        made = Front(
            front.edges[:0],
            np.vstack([front.which.take(positions, axis=1), tables]),
            np.vstack([front.rows.take(positions, axis=1), rows]),
        )
        self._seconds += process_seconds() - began
        return done, made, ends[:done]

    def _checked(self, edges: Ints, made: Front, ends: Ints) -> tuple[Front, Ints]:
        """Return results ``made`` and ``ends`` without results that fail residuals or bounds."""
        rules, firsts = edges[:, RULE], np.concatenate([[0], ends[:-1]])
        tested = np.flatnonzero(self._checks[rules] & (ends > firsts)).tolist()
        kept = np.ones(made.rows.shape[1], np.bool_) if tested else None
        began = process_seconds()
        for e in tested:
            first, last, rule = int(firsts[e]), int(ends[e]), int(rules[e])
            partial = self._partial(made, first, last, rule).numbered()
            one = self._program.rules[rule]
            assert kept is not None
            kept[first:last] = False
            try:
                left = check(partial, one.bounds, self._residuals(one))
            except EVALUATION as error:
                self.failed(one, error)
                continue
            assert left.origins is not None
            kept[first + left.origins] = True
        if kept is not None and not kept.all():
            places = np.flatnonzero(kept)
            made = Front(made.edges, made.which.take(places, 1), made.rows.take(places, 1))
            ends = np.concatenate([[0], np.cumsum(kept)])[ends]
        if tested:
            self._seconds += process_seconds() - began
        np.add.at(self._totals[:, _MADE], rules, np.diff(ends, prepend=0))
        return made, ends

    def _residuals(self, rule: ProbeRule) -> tuple[Expr, ...]:
        """Return the residuals of a rule that tags do not test."""
        if not self.tags.complete:
            return rule.residuals
        return self.tags.program.residuals.get(rule.out, rule.residuals)

    def _go_on(self, edges: Ints, made: Front, ends: Ints) -> None:
        """Deliver results that are needed outside rounds; probe by the next rules in a round."""
        known = self._program
        rules, firsts = edges[:, RULE], np.concatenate([[0], ends[:-1]])
        some = ends > firsts
        outputs = known.outputs if self.tags.complete else None
        if outputs is not None:
            self._put_out(outputs, rules, firsts, ends, made)
        delivers = known.delivers if outputs is None else outputs.delivers
        delivered = some & delivers[rules] if self.follows else some
        for e in np.flatnonzero(delivered).tolist():
            rule = int(rules[e])
            one = known.rules[rule]
            self.deliver(
                self._partial(made, int(firsts[e]), int(ends[e]), rule),
                one,
                known.others[rule] if self.follows else self.prober.layout.probes.get(one.out, ()),
            )
        if not self.follows:
            return
        begin, count = known.child_ends[rules], known.child_ends[rules + 1]
        count = np.where(some, count - begin, 0)
        if not count.any():
            return
        children = known.children[ranged(begin, count)]
        firsts, ends = np.repeat(firsts, count), np.repeat(ends, count)
        self._tables.locate(made.which[-1])
        following = np.stack([firsts, ends, children, ends - firsts], axis=1)
        self._run(Front(following, made.which, made.rows))

    def _put_out(
        self, outputs: RoundOutputs, rules: Ints, firsts: Ints, ends: Ints, made: Front
    ) -> None:
        """Deliver results ``[firsts[i], ends[i])`` of ``rules[i]`` that have an output's tags."""
        begin, count = outputs.ends[rules], outputs.ends[rules + 1]
        count = np.where(ends > firsts, count - begin, 0)
        if not count.any():
            return
        began = process_seconds()
        self._tables.locate(made.which[-1])
        numbers = ranged(begin, count)
        firsts, ends = np.repeat(firsts, count), np.repeat(ends, count)
        edges = np.stack([firsts, ends, numbers, ends - firsts], axis=1)
        choices, places = outputs.choices, self._tables.places
        positions, edges = self.tags.sent(edges, made.which, made.rows, choices, places)
        exact = not any(index.overflowed for index in choices.indexes)
        front = Front(edges, made.which.take(positions, 1), made.rows.take(positions, 1))
        self._seconds += process_seconds() - began
        for first, last, number, _ in edges[edges[:, LAST] > edges[:, FIRST]].tolist():
            rule, tagged = outputs.rules[number]
            partial = self._partial(front, first, last, rule)
            for one in tagged:
                self.output(partial, self._program.rules[rule], one.tested if exact else one.whole)

    def _send_alone(self, front: Front, edge: Ints) -> None:
        first, last, rule, of = edge.tolist()
        sent = self._partial(front, first, last, rule)
        self.alone(sent, self._program.rules[rule], of)

    def _partial(self, front: Front, first: int, last: int, rule: int) -> Partial:
        """Return a front's tuples ``[first, last)`` on the edge into or out of ``rule``."""
        kinds = self._program.kinds[rule][: len(front.which)]
        sets = tuple(
            self._tables.rows(which[first:last], rows[first:last], kind)
            for which, rows, kind in zip(front.which, front.rows, kinds, strict=True)
        )
        place = self._program.places[rule]
        if len(kinds) < len(self._program.kinds[rule]):
            place = {label: there for label, there in place.items() if there[0] < len(sets)}
        return Partial(last - first, sets, place, self._program.rules[rule].start)

    def _account(self) -> None:
        """Add the counts of calls since the last time to the meters of edges and stores."""
        called = np.flatnonzero(self._totals[:, CALLS])
        work = self._totals[called][:, [PROBES, LOOKED, MATCHES]].sum(axis=1)
        seconds = self._seconds * work / max(int(work.sum()), 1)
        for number, spent in zip(called.tolist(), seconds.tolist(), strict=True):
            meter = self.prober.meters[self._program.rules[number].out]
            counts = self._totals[number].tolist()
            meter.probes += counts[PROBES]
            meter.matches += counts[MATCHES]
            meter.seconds += spent
            meter.pairs += counts[PAIRS]
            meter.hits += counts[HITS]
            meter.found += counts[FOUND]
            meter.calls += counts[CALLS]
            meter.looked += counts[LOOKED]
            meter.made += counts[_MADE]
        targets = self._targets
        for number in np.flatnonzero(targets.reads[:, 0]).tolist():
            tuples, found, matches, by_batch, by_time, held, looked = targets.reads[number].tolist()
            store, index = targets.names[number]
            reads = Reads(tuples, found, matches, by_batch, 0, by_time, held, looked)
            by_index = self.prober.reads.found[store]
            by_index[index] = by_index.get(index, Reads()) + reads
        self.prober.segments.add_work(targets.partitions, targets.work)
        self._totals[:], targets.reads[:], targets.work[:] = 0, 0, 0
        self._seconds = 0.0
