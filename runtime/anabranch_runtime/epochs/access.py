"""Choice of the stores, and of the batches in them, that each probe reads (``state.coverage``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from anabranch_contract.plans.partial import covers
from anabranch_contract.plans.ruleset import FillStep, KeyPart, ProbeRule, Ruleset, StoreSpec
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Relation, RelationId
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.state.coverage import OPEN, Access, Interval, Tile, tile
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.state.slices import SegmentRows

#: Cache key: the fields of a probe rule that determine which stores and batches it reads.
_Asked = tuple[str, str, frozenset[tuple[str, str]], tuple[FillStep, ...]]
#: Cache key: the fields of a store that determine which batches probes read from it.
_Kept = tuple[str, StoreSpec, tuple[str, ...], tuple[str, ...], tuple[Interval, ...], int | None]


@dataclass(slots=True)
class _Questions:
    """Probe rules of a ruleset, grouped by *access*: the stores and batches that they read.

    Attributes:
        rules: one rule per distinct access. ``numbers``: edge -> index in ``rules``.
        relations: relations of the ruleset, by id.
        stores, batch, found, by_edge: stores and batch of the last computation, and the accesses
            that it found, by rule and by edge; ``gaps``: whether any of these has gaps.
    """

    rules: tuple[ProbeRule, ...]
    numbers: dict[str, int]
    relations: dict[RelationId, Relation]
    stores: list[_Kept] | None = None
    batch: int = -1
    found: list[Access] = field(default_factory=list)
    gaps: bool = False
    by_edge: dict[str, Access] = field(default_factory=dict)


@per_ruleset
def _questions(ruleset: Ruleset) -> _Questions:
    asked: dict[_Asked, int] = {}
    rules: list[ProbeRule] = []
    numbers: dict[str, int] = {}
    for rule in ruleset.probe_rules:
        one = (rule.mir, rule.store, known_attributes(rule.key), tuple(rule.fill))
        if one not in asked:
            asked[one] = len(rules)
            rules.append(rule)
        numbers[rule.out] = asked[one]
    return _Questions(tuple(rules), numbers, {r.id: r for r in ruleset.relations})


def accesses(state: State, ruleset: Ruleset) -> dict[str, Access]:
    """Return, by edge, the stores and batches that its probe reads in ``state.next_batch``.

    Usually only the batch number changes from one batch to the next. If the same stores cover the
    same batches and the same stores still grow, the last accesses are returned, in which intervals
    of growing stores end with ``OPEN``. Accesses with gaps (batches that a materialized join lacks)
    are recomputed, since gaps may depend on stored rows.
    """
    questions, now = _questions(ruleset), state.next_batch
    stores: list[_Kept] = [
        (name, s.spec, s.streams, s.filter, s.intervals, s.open_since)
        for name, s in state.stores.items()
    ]
    known = questions.stores == stores and questions.batch <= now
    if known and not questions.gaps:
        questions.batch = now
        return questions.by_edge
    generations = Generations(state)
    before = questions.found if known else [None] * len(questions.rules)
    found = [
        access
        if access is not None and not access.gaps
        else _access(state, rule, questions.relations, generations)
        for rule, access in zip(questions.rules, before, strict=True)
    ]
    usable = all(s.open_since is None or s.open_since <= now for s in state.stores.values())
    questions.stores, questions.batch = stores if usable else None, now
    if any(one is not other for one, other in zip(found, before, strict=True)):
        questions.by_edge = {edge: found[number] for edge, number in questions.numbers.items()}
    questions.found, questions.gaps = found, any(access.gaps for access in found)
    return questions.by_edge


def _endless(tiles: Iterable[Tile], now: int) -> tuple[Tile, ...]:
    """Return ``tiles`` with ``OPEN`` in place of the end ``now``: stores that still grow."""
    return tuple(
        Tile(tile.store, (tile.interval[0], OPEN)) if tile.interval[1] == now else tile
        for tile in tiles
    )


class Generations:
    """The base stores of a state, grouped by stream at first use.

    All relations passed to one instance must be of one ruleset.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_stream: dict[str, list[tuple[str, StoreState]]] | None = None
        self._first: dict[RelationId, int] = {}

    def first_batch(self, relation: Relation) -> int:
        """The first batch with stored rows of ``relation``; the next batch if there is none."""
        found = self._first.get(relation.id)
        if found is None:
            now = self._state.next_batch
            starts = (low for _, s in self.serving(relation) for low, _ in s.covers(now))
            found = self._first[relation.id] = min(starts, default=now)
        return found

    def serving(self, relation: Relation) -> list[tuple[str, StoreState]]:
        """Return (name, store) of the base stores whose filters keep all rows of ``relation``."""
        if self._by_stream is None:
            self._by_stream = defaultdict(list)
            for name, store in self._state.stores.items():
                if store.is_base:
                    self._by_stream[store.streams[0]].append((name, store))
        conjuncts = {str(f) for f in relation.filter}
        candidates = self._by_stream.get(relation.stream, ())
        return [(name, store) for name, store in candidates if conjuncts.issuperset(store.filter)]


def latest_tiles(
    state: State, ruleset: Ruleset, *, arriving: bool = False
) -> dict[str, tuple[Tile, ...]]:
    """Return, for each table with a key and each stream that keeps only the latest tuple per key,
    the stores and batches (tiles) to search for newer tuples of a key.

    Args:
        arriving: search instead for the rows that arriving rows replace, in tables and streams of
            upserts; these may belong to a version of a table that no tuple looks up yet.
    """
    relations = {r.id: r for r in ruleset.relations}
    since, found = latest_since(state), {}
    streams = {stream.name: stream for stream in ruleset.streams}
    for rule in ruleset.latest_rules:
        stream = streams[rule.stream]
        if not (stream.replaces_rows if arriving else stream.latest):
            continue
        first, last = since[rule.stream], state.next_batch
        versions = state.streams[rule.stream].versions
        if versions is not None:
            is_coming = arriving and versions.coming > 0
            first = max(first, versions.since if is_coming else versions.first)
            last = last if is_coming or versions.until is None else versions.until - 1
        wanted, relation = (first, last), relations[rule.relation]
        found[str(rule.stream)] = (
            relation_tiles(state, relation, wanted, rule.store, rule.key) if first <= last else ()
        )
    return found


def latest_since(state: State) -> dict[str, int]:
    """Return stream -> first batch since which only the latest tuple per key is kept, if at all."""
    return {n: s.latest_since for n, s in state.streams.items() if s.latest_since is not None}


def known_attributes(key: Sequence[KeyPart]) -> frozenset[tuple[str, str]]:
    """Return the stored attributes and types of ``key`` whose values a probing tuple has."""
    return frozenset((k.build.attribute, k.type) for k in key)


def _access(
    state: State, rule: ProbeRule, relations: dict[RelationId, Relation], generations: Generations
) -> Access:
    now = state.next_batch
    if not rule.fill:
        relation = relations[RelationId(rule.mir)]
        known = known_attributes(rule.key)
        tiles = relation_tiles(state, relation, (0, now), rule.store, known, generations)
        return Access(_endless(tiles, now))
    usable = containers(state, rule.store)
    filled = [relations[step.relation] for step in rule.fill]
    first = max(map(generations.first_batch, filled))
    found, gaps = tile([(0, now)], [(name, store.covers(now)) for name, store in usable])
    tiles = _endless(found, now)
    gaps = sorted((max(low, first), high) for low, high in gaps if high >= first)
    if not gaps:
        return Access(tiles)
    reach = (0, max(high for _, high in gaps))
    fill = tuple(
        relation_tiles(state, relation, reach, step.store, known_attributes(step.key), generations)
        for relation, step in zip(filled, rule.fill, strict=True)
    )
    return Access(tiles, tuple(gaps), fill)


def relation_tiles(
    state: State,
    relation: Relation,
    wanted: Interval,
    preferred: str = "",
    known: Collection[tuple[str, str]] = (),
    generations: Generations | None = None,
) -> tuple[Tile, ...]:
    """Choose stores of ``relation`` that cover the batches ``wanted``: first the store
    ``preferred``, then copies partitioned by an attribute in ``known`` (a probing tuple goes to one
    partition only), then all others. In each group, stricter filters precede weaker ones.

    ``generations``: an index over ``state`` that callers with many relations pass.
    """

    def rank(item: tuple[str, StoreState]) -> tuple[bool, bool, int, str]:
        name, store = item
        partition = store.spec.partition
        routed = partition is not None and (partition[0].attribute, partition[1]) in known
        return (name != preferred, not routed, -len(store.filter), name)

    useful = sorted((generations or Generations(state)).serving(relation), key=rank)
    tiles, _ = tile([wanted], [(n, s.covers(state.next_batch)) for n, s in useful])
    return tuple(tiles)


def stored_in(state: State, relation: Relation, batches: Interval) -> tuple[SegmentRows, ...]:
    """Return the row ranges of segments with tuples of ``relation`` that arrived in ``batches``."""
    return tuple(
        SegmentRows(tile.store, segment, tile.interval, 0, segment.rows)
        for tile in relation_tiles(state, relation, batches)
        for segment in state.stores[tile.store].segments
        if segment.first_batch <= tile.interval[1] and segment.last_batch >= tile.interval[0]
    )


def containers(state: State, preferred: str) -> list[tuple[str, StoreState]]:
    """Return older stores of the join of store ``preferred`` that can replace it: they have its
    columns and key values, and time bounds that are not tighter."""
    wanted = state.stores[preferred].spec
    columns = set(wanted.columns)
    bounds = {(b.earlier, b.later): b.micros for b in wanted.bounds}
    found = []
    for name, store in state.stores.items():
        spec = store.spec
        if spec.mir != wanted.mir or not columns <= set(spec.columns):
            continue
        if not covers(spec.kept, wanted.kept):
            continue
        given = ((b, bounds.get((b.earlier, b.later))) for b in spec.bounds)
        if all(own is not None and own <= b.micros for b, own in given):
            found.append((name, store))
    return sorted(found, key=lambda item: (item[0] != preferred, item[0]))


def seen_from(
    activation: Activation, members: tuple[tuple[str, str, str], ...]
) -> dict[str, tuple[int, int | None]]:
    """Return alias -> first (batch, event time) visible to the query; no entry: all is visible."""
    limits = {}
    for alias, label, _ in members:
        seen = activation.visible_from[alias]
        if seen.batch > 0 or seen.event_time is not None:
            limits[label] = (seen.batch, seen.event_time)
    return limits
