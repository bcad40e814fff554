"""Probe trees of many edges, depth by depth: all edges at one depth are one call of a kernel.

With many tuples, a tree is probed edge by edge (``probe``). With few tuples, the Python call per
edge dominates, and with hundreds of queries these calls are most of a batch. So the rules of the
program (``program``) probe together: a *front* has the tuples at one depth and, per edge, the range
of tuples that it sends. The matches form the next front. Only tuples with other uses (stores,
outputs, rules outside the program) become partial results.

Each edge has the same results and counts as alone. The CPU time of a call is divided among its
edges by their work: tuples sent, segments looked into, matches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import ProbeRule
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index import prefetch
from anabranch_runtime.index.rounds import (
    ALIVE,
    FIRST,
    FOUND,
    HELD,
    HITS,
    LAST,
    LAST_BATCH,
    MATCHES,
    QUESTION,
    RULE,
    STORED,
    TABLE,
    WITHIN,
    match_round,
)
from anabranch_runtime.probe import probe
from anabranch_runtime.probe.numbered import NumberedTables
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.probe.program import ProbeProgram, program
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey, SegmentReader

#: Takes a rule's results, the rule, and the rules outside the program that continue from it.
Deliver = Callable[[Partial, ProbeRule, Sequence[ProbeRule]], None]
#: Takes tuples and a rule; probes by this rule outside of rounds.
Alone = Callable[[Partial, ProbeRule], None]


#: Maximum number of a start's tuples in a round: with more, the saved call does not matter.
LONGEST = 1 << 8
_UNKNOWN, _ELSEWHERE = -2, -1
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
#: Counters of an edge; its CPU time is in an array of floats.
_PROBES, _MATCHES, _PAIRS, _HITS, _FOUND, _CALLS, _LOOKED, _MADE = range(8)


@dataclass(frozen=True, slots=True)
class Front:
    """Tuples at one depth of the trees, and the edges that they are sent over.

    Attributes:
        edges: per edge, its first tuple, the end of its tuples, and the number of its rule.
        which, rows: per member and tuple, the table's number and the row.
    """

    edges: Ints
    which: I32
    rows: I32


class Targets:
    """The stores that a batch's rules probe, as tables for a kernel, filled on first use.

    Attributes:
        questions: per lookup of the program, the range of its stores; ``_ELSEWHERE``: its rules are
            not probed in rounds in this batch, as a store's rows need further checks.
        stores: per store of a lookup, the range of its segments.
        names: (store, index) of each. ``outside``: number of segments skipped by their batches.
    """

    def __init__(self, made: ProbeProgram, prober: Prober, tables: NumberedTables) -> None:
        self._program, self._prober, self._tables = made, prober, tables
        self.questions = np.full((len(made.questions), 2), _UNKNOWN, np.int64)
        self._stores: list[tuple[int, int]] = []
        self._outside: list[int] = []
        self._numbers: list[int] = []
        self._lines: list[bytes] = []
        self.names: list[tuple[str, str]] = []
        self.stores = self.segments = np.zeros((0, 0), np.int64)
        self.outside = np.zeros(0, np.int64)

    def ask(self, rules: Ints, access: Mapping[str, Access]) -> None:
        """Add the stores that these rules probe."""
        questions = np.unique(self._program.table[rules, QUESTION])
        unknown = questions[self.questions[questions, 0] == _UNKNOWN]
        for question in unknown.tolist():
            rule, index, name = self._program.questions[question]
            known = len(self._stores)
            self.questions[question] = _ELSEWHERE
            if self._add(rule, index, name, access[rule.out]):
                self.questions[question] = known, len(self._stores)
        if len(unknown):
            self.stores = np.array(self._stores, np.int64).reshape(-1, 2)
            self.outside = np.array(self._outside, np.int64)
            lines = np.frombuffer(bytearray().join(self._lines), np.int64)
            self.segments = lines.reshape(-1, LAST_BATCH + 1)
            self.segments[:, TABLE] = self._numbers

    def _add(self, rule: ProbeRule, index: IndexKey, name: str, access: Access) -> bool:
        """Add the stores of ``rule``'s tiles; False if a store may have rows outside the relation
        or the tile's batches.
        """
        layout, live = self._prober.layout, self._prober.segments
        stream = layout.stream(rule.members[0])
        found: dict[str, list[SegmentReader]] = {}
        outside: dict[str, int] = {}
        for tile in access.tiles:
            if layout.missing_filter(rule.mir, tile.store):
                return False
            readers = live.within(tile.store, tile.interval)
            low, high = tile.interval
            if any(r.segment.first_batch < low or r.segment.last_batch > high for r in readers):
                return False
            found.setdefault(tile.store, []).extend(readers)
            passed = live.count(tile.store) - len(readers)
            outside[tile.store] = outside.get(tile.store, 0) + passed
        for store, readers in found.items():
            first = len(self._numbers)
            self._numbers += [self._tables.number(reader, stream) for reader in readers]
            self._lines += [
                reader.lines.get(name) or _described(reader, index, name) for reader in readers
            ]
            self._stores.append((first, len(self._numbers)))
            self._outside.append(outside[store])
            self.names.append((store, name))
        return True


def _described(reader: SegmentReader, index: IndexKey, name: str) -> bytes:
    """The segment's row of the kernel's table, without its table number; cached in ``reader``."""
    one = reader.segment
    least, greatest = one.tau_min[0], one.tau_max[0]
    line = (
        *reader.index(index, lambda: [reader.column(index.columns[0])]).words,
        -1,
        reader.place(SIGMA).first,
        0 if least is None else reader.place(TAU).first,
        _EARLIEST if least is None else least,
        _LATEST if greatest is None else greatest,
        one.rows,
        one.last_batch,
    )
    found = reader.lines[name] = np.array(line, np.int64).tobytes()
    return found


@dataclass(slots=True)
class Rounds:
    """The rounds of one batch in one task.

    Attributes:
        access: edge -> tiles and gaps of its probe.
        deliver: receives results with uses outside the program.
        alone: receives edges unfit for a round: further checks, too many tuples or pairs.
    """

    prober: Prober
    access: Mapping[str, Access]
    deliver: Deliver
    alone: Alone
    _program: ProbeProgram = field(init=False)
    _tables: NumberedTables = field(init=False)
    _targets: Targets = field(init=False)
    _counts: Ints = field(init=False)
    _seconds: NDArray[np.float64] = field(init=False)
    #: Per store of a lookup: tuples sent, tuples with a match, matches; segments skipped by batch,
    #: skipped by time, filtered, looked into.
    _reads: Ints = field(init=False)
    _edges: list[tuple[int, int, int]] = field(default_factory=list)
    _which: list[I32] = field(default_factory=list)
    _rows: list[I32] = field(default_factory=list)
    _length: int = 0

    def __post_init__(self) -> None:
        self._program = program(self.prober.layout.ruleset)
        self._tables = NumberedTables(self._program.names, self._program.read)
        self._targets = Targets(self._program, self.prober, self._tables)
        self._counts = np.zeros((len(self._program.rules), _MADE + 1), np.int64)
        self._seconds = np.zeros(len(self._program.rules))
        self._reads = np.zeros((0, 7), np.int64)

    def roots(self, start: Partial) -> Mapping[str, int]:
        """Edge -> number of its rule, for rules that may probe with the arrivals ``start``."""
        if start.length > LONGEST or self.prober.by_stream or prefetch.is_enabled():
            return {}
        return self._program.roots.get(start.start, {})

    def add(self, start: Partial, rules: Sequence[int]) -> None:
        """Queue ``start`` for these rules in the first round."""
        if not rules or not start.length:
            return
        (rows,) = start.sets
        (table,) = rows.tables.members
        stream = self.prober.layout.stream(start.start)
        number = self._tables.number(table, stream)
        first, self._length = self._length, self._length + start.length
        self._edges += ((first, self._length, rule) for rule in rules)
        self._which.append(np.full(start.length, number, np.int32))
        self._rows.append(rows.rows)

    def run(self) -> None:
        """Send the queued tuples down the trees."""
        if not self._edges:
            return
        edges = np.array(self._edges, np.int64)
        which, rows = np.concatenate(self._which), np.concatenate(self._rows)
        self._tables.locate(which)
        self._run(Front(edges, which.reshape(1, -1), rows.reshape(1, -1)))
        self._edges, self._which, self._rows, self._length = [], [], [], 0
        self._account()

    def _run(self, front: Front) -> None:
        front = self._sorted_out(front)
        while len(front.edges):
            began = time.process_time()
            done, made, ends = self._match(front, began)
            if not done:
                # The first edge's result is too large for a round.
                self._send_alone(front, front.edges[0])
                front = Front(front.edges[1:], front.which, front.rows)
                continue
            edges, front = front.edges[:done], Front(front.edges[done:], front.which, front.rows)
            self._go_on(edges, made, ends)

    def _sorted_out(self, front: Front) -> Front:
        """The front with the edges that fit a round; the others are sent alone."""
        edges = front.edges
        self._targets.ask(edges[:, RULE], self.access)
        questions = self._program.table[edges[:, RULE], QUESTION]
        fit = (self._targets.questions[questions, 0] != _ELSEWHERE) & (
            edges[:, LAST] - edges[:, FIRST] <= probe.FEW
        )
        for edge in edges[~fit]:
            self._send_alone(front, edge)
        return Front(edges[fit], front.which, front.rows)

    def _match(self, front: Front, began: float) -> tuple[int, Front, Ints]:
        """Number of finished edges; a front of their results, without edges; each edge's end."""
        targets, known = self._targets, self._program
        done, positions, tables, rows, ends, found, counts = match_round(
            front.edges,
            front.which,
            front.rows,
            known.table,
            known.bounds,
            targets.questions,
            targets.stores,
            targets.segments,
            self._tables.places,
            self.prober.batch,
            self.prober.most,
        )
        made = Front(
            front.edges[:0],
            np.vstack([front.which.take(positions, axis=1), tables]),
            np.vstack([front.rows.take(positions, axis=1), rows]),
        )
        if done:
            self._count(front.edges[:done], ends[:done], found[:done], counts, began)
        return done, made, ends[:done]

    def _count(self, edges: Ints, ends: Ints, found: Ints, counts: Ints, began: float) -> None:
        rules, sent = edges[:, RULE], edges[:, LAST] - edges[:, FIRST]
        ranges = self._targets.questions[self._program.table[rules, QUESTION]]
        lines = ranges[:, 1] - ranges[:, 0]
        by = np.repeat(np.arange(len(edges)), lines)
        stores = _ranged(ranges[:, 0], lines)
        counts = counts[: len(stores)]
        tuples, living = sent[by], counts[:, ALIVE]
        segments = self._targets.stores[stores]
        looked = living * counts[:, WITHIN] - counts[:, HELD]
        one = np.zeros((len(edges), _MADE + 1), np.int64)
        for column, values in (
            (_MATCHES, counts[:, MATCHES]),
            (_PAIRS, tuples * counts[:, STORED]),
            (_HITS, counts[:, HITS]),
            (_LOOKED, looked),
        ):
            np.add.at(one[:, column], by, values)
        one[:, _PROBES], one[:, _FOUND], one[:, _CALLS] = sent, found, 1
        one[:, _MADE] = np.diff(ends, prepend=0)
        np.add.at(self._counts, rules, one)
        if len(self._reads) < len(self._targets.stores):
            more = len(self._targets.stores) - len(self._reads)
            self._reads = np.concatenate([self._reads, np.zeros((more, 7), np.int64)])
        reads = (
            tuples,
            counts[:, FOUND],
            counts[:, MATCHES],
            living * self._targets.outside[stores],
            living * (segments[:, 1] - segments[:, 0] - counts[:, WITHIN]),
            counts[:, HELD],
            looked,
        )
        np.add.at(self._reads, stores, np.stack(reads, axis=1))
        work = sent + one[:, _LOOKED] + one[:, _MATCHES]
        spent = time.process_time() - began
        np.add.at(self._seconds, rules, spent * work / max(work.sum(), 1))

    def _go_on(self, edges: Ints, made: Front, ends: Ints) -> None:
        """Deliver results with uses outside the program; run the next front."""
        known = self._program
        rules, firsts = edges[:, RULE], np.concatenate([[0], ends[:-1]])
        some = ends > firsts
        for e in np.flatnonzero(some & known.delivers[rules]).tolist():
            rule = int(rules[e])
            self.deliver(
                self._partial(made, int(firsts[e]), int(ends[e]), rule),
                known.rules[rule],
                known.others[rule],
            )
        begin, count = known.child_ends[rules], known.child_ends[rules + 1]
        count = np.where(some, count - begin, 0)
        if not count.any():
            return
        children = known.children[_ranged(begin, count)]
        firsts, ends = np.repeat(firsts, count), np.repeat(ends, count)
        self._tables.locate(made.which[-1])
        self._run(Front(np.stack([firsts, ends, children], axis=1), made.which, made.rows))

    def _send_alone(self, front: Front, edge: Ints) -> None:
        first, last, rule = edge.tolist()
        sent = self._partial(front, first, last, rule)
        self.alone(sent, self._program.rules[rule])

    def _partial(self, front: Front, first: int, last: int, rule: int) -> Partial:
        """The front's tuples ``[first, last)``, input or results of ``rule``, as one partial."""
        labels = self._program.labels[rule][: len(front.which)]
        sets = tuple(
            self._tables.rows(which[first:last], rows[first:last])
            for which, rows in zip(front.which, front.rows, strict=True)
        )
        place = {label: (at, "") for at, label in enumerate(labels)}
        return Partial(last - first, sets, place, labels[0])

    def _account(self) -> None:
        """Add the counts to the meters."""
        for number in np.flatnonzero(self._counts[:, _CALLS]).tolist():
            meter = self.prober.meters[self._program.rules[number].out]
            counts = self._counts[number].tolist()
            meter.probes += counts[_PROBES]
            meter.matches += counts[_MATCHES]
            meter.seconds += float(self._seconds[number])
            meter.pairs += counts[_PAIRS]
            meter.hits += counts[_HITS]
            meter.found += counts[_FOUND]
            meter.calls += counts[_CALLS]
            meter.looked += counts[_LOOKED]
            meter.made += counts[_MADE]
        for number in np.flatnonzero(self._reads[:, 0]).tolist():
            tuples, found, matches, by_batch, by_time, held, looked = self._reads[number].tolist()
            store, index = self._targets.names[number]
            reads = Reads(tuples, found, matches, by_batch, 0, by_time, held, looked)
            by_index = self.prober.reads.found[store]
            by_index[index] = by_index.get(index, Reads()) + reads
        self._counts[:], self._seconds[:], self._reads[:] = 0, 0, 0


def _ranged(first: Ints, count: Ints) -> Ints:
    """``first[i]``, ``first[i] + 1`` and so on, ``count[i]`` numbers of each."""
    total = int(count.sum())
    begun = np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first, count) + np.arange(total) - begun
